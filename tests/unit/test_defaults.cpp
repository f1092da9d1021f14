// input/defaults.ini against the code: every key, with the value that is read without it.
#include "longstraw/sim/settings.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace longstraw {
namespace {

const std::string file = std::string(LONGSTRAW_SOURCE_DIR) + "/input/defaults.ini";
const std::vector<std::string> required = {"model.checkpoint=/m", "rollouts.file=/r"};

std::vector<std::string> sorted_keys(Deck deck) {
  read_settings(deck);
  deck.check_all_read();
  std::vector<std::string> keys;
  std::istringstream lines(deck.completed());
  std::string line, section;
  while (std::getline(lines, line)) {
    if (line.starts_with('[')) section = line;
    if (line.find('=') != std::string::npos) keys.push_back(section + line);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(Defaults, AreWhatTheCodeReads) {
  EXPECT_EQ(sorted_keys(Deck::read(file, required)), sorted_keys(Deck("", "empty.ini", required)));
}

TEST(Defaults, EveryKeyHasItsMeaning) {
  std::istringstream lines(support::get(file));
  std::string line;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 100u) << line;
    if (line.find(" =") == std::string::npos) continue;
    EXPECT_NE(line.find("  # "), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace longstraw
