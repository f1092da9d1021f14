// The input is a deck. Behind a zero byte: an argument that replaces a key.
#include "fuzz/fuzz.hpp"

#include "longstraw/deck/deck.hpp"

#include <cmath>

using namespace longstraw;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  std::vector<std::string> arguments;
  if (cut != std::string_view::npos) arguments.emplace_back(input.substr(cut + 1));
  fuzz::read_or_refuse([&] {
    Deck deck(input.substr(0, cut), "folder/deck.ini", arguments);
    fuzz::read_or_refuse([&] { deck.get<int64_t>("run.steps"); });
    fuzz::read_or_refuse([&] { fuzz::must(std::isfinite(deck.get<double>("objective.lr", 0.5))); });
    fuzz::read_or_refuse([&] { deck.get<bool>("objective.exact", true); });
    fuzz::read_or_refuse([&] { deck.one_of("model.compute", "float32", {"float32", "float64"}); });
    fuzz::read_or_refuse([&] { deck.path("model.checkpoint", ""); });
    fuzz::read_or_refuse([&] {
      const auto value = deck.get_in<int64_t>("run.ranks", 3, 1, 9);
      fuzz::must(value >= 1 && value <= 9);
    });
    deck.check_all_read();
    // The completed deck says the same.
    const Deck again(deck.completed(), "folder/deck.ini");
    fuzz::must(again.values().size() == deck.values().size());
    for (const auto& [key, value] : deck.values()) {
      bool same = false;
      for (const auto& [other, found] : again.values()) same |= other == key && found == value;
      fuzz::must(same);
    }
  });
  return 0;
}
