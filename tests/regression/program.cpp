#include "regression/program.hpp"

#include "longstraw/io/hdf5.hpp"

#include <gmock/gmock.h>

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <sstream>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;

// A start that hangs must fail its test, not the whole suite. Under sanitizers and on a busy
// machine the longest good one takes half of this.
constexpr int longest_seconds = 240;
// When a rank ends with an error, mpirun waits this many seconds for the others: by default one,
// which is most of the time of a test of refusals, whose ranks all end by themselves.
constexpr const char* quick_end = "OMPI_MCA_odls_base_sigkill_timeout=0";
// "Within seconds": far below the minutes of any watchdog, above starting 3 ranks on a busy
// machine.
constexpr double refusal_seconds = 30;

}  // namespace

std::vector<std::string> Outcome::errors() const {
  std::vector<std::string> found;
  std::istringstream lines(all());
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("error: ")) found.push_back(line);
  return found;
}

Workplace::Workplace() {
  root_ = (fs::temp_directory_path() / "longstraw-XXXXXX").string();
  if (::mkdtemp(root_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  fs::create_directory(path());
}

Workplace::~Workplace() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

Outcome Workplace::run(int ranks, const std::string& arguments, const std::string& variables,
                       const std::string& current_folder) const {
  const std::string launcher = ranks == 0 ? "" : str("mpirun -n {} ", ranks);
  // By number of ranks, so that starts of different ones may go on at the same time.
  const std::string out = str("{}/out-{}", root_, ranks), err = str("{}/err-{}", root_, ranks);
  const std::string command = str(
      ". {}/jobs/environment.sh; cd {} && env {} {} timeout -k 5 {} {}{} {} </dev/null >{} 2>{}",
      LONGSTRAW_SOURCE_DIR, current_folder.empty() ? path() : current_folder, quick_end, variables,
      longest_seconds, launcher, LONGSTRAW_PROGRAM, arguments, out, err);
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(command.c_str());
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const Outcome outcome{.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                        .out = read_file(out),
                        .err = read_file(err),
                        .seconds = taken.count()};
  // What sanitizers say, which need not end the program.
  for (const char* words : {"runtime error: ", "AddressSanitizer"})
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr(words))) << arguments;
  return outcome;
}

Outcome Workplace::succeed(int ranks, const std::string& arguments) const {
  const Outcome outcome = run(ranks, arguments);
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.all();
  EXPECT_THAT(outcome.errors(), testing::IsEmpty());
  return outcome;
}

void Workplace::copy_model(const std::string& golden, const std::string& to) const {
  fs::copy(golden_folder(golden) + "/model", *this / to, fs::copy_options::recursive);
}

void Workplace::write_deck(const std::string& name, const std::string& checkpoint,
                           const std::string& rollouts, const std::string& more) const {
  write_file(*this / name, "[model]\ncheckpoint = " + checkpoint +
                               "\n[rollouts]\nfile = " + rollouts + "\n" + more);
}

void Workplace::write_rollouts(const std::string& name, const std::vector<Json>& groups) const {
  std::string text;
  for (const Json& one : groups) text += one.dump() + "\n";
  write_file(*this / name, text);
}

std::map<std::string, std::string> Workplace::files() const { return files_of(path()); }

void expect_refused(const Workplace& place, const std::string& arguments, int status,
                    const std::vector<std::string>& named, const std::string& variables) {
  const auto before = place.files();
  const auto check_of = [](int ranks) { return ranks == 2 ? " -n" : ""; };
  std::map<int, std::future<Outcome>> starts;
  for (const int ranks : {1, 2, 3})
    starts[ranks] = std::async(std::launch::async, [&, ranks] {
      return place.run(ranks, arguments + check_of(ranks), variables);
    });
  std::string first;
  for (auto& [ranks, start] : starts) {
    const Outcome outcome = start.get();
    const std::string check = check_of(ranks);
    SCOPED_TRACE(str("{} rank(s): {}{}\n{}", ranks, arguments, check, outcome.all()));
    EXPECT_EQ(outcome.status, status);
    EXPECT_LT(outcome.seconds, refusal_seconds);
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("MPI_ABORT")));
    const auto errors = outcome.errors();
    ASSERT_EQ(errors.size(), 1u);
    if (first.empty()) first = errors[0];
    EXPECT_EQ(errors[0], first);
  }
  for (const auto& part : named) EXPECT_THAT(first, testing::HasSubstr(part)) << arguments;
  EXPECT_THAT(differences(before, place.files()), testing::IsEmpty()) << arguments;
}

std::string golden_folder(const std::string& name) {
  return std::string(LONGSTRAW_TEST_DATA) + "/golden/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.good()) throw std::runtime_error("cannot write " + path);
}

Json read_json(const std::string& path) { return Json::parse(read_file(path)); }

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(Json::parse(line));
  return lines;
}

Safetensors Safetensors::read(const std::string& path) {
  const std::string text = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  return {Json::parse(text.substr(sizeof length, length)), text.substr(sizeof length + length)};
}

void Safetensors::write(const std::string& path) const {
  const std::string head = header.dump();
  const uint64_t length = head.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  write_file(path, text + head + data);
}

float* Safetensors::values(const std::string& tensor) {
  if (header.at(tensor).at("dtype") != "F32") throw std::runtime_error(tensor + " is no float32");
  return reinterpret_cast<float*>(data.data() +
                                  header.at(tensor).at("data_offsets").at(0).get<size_t>());
}

std::vector<int> random_ids(int count, int vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> ids(count);
  for (int& id : ids) id = static_cast<int>(random() % static_cast<unsigned>(vocab));
  return ids;
}

Json response(const std::string& id, const std::vector<int>& ids, double reward) {
  return {{"id", id}, {"ids", ids}, {"reward", reward}};
}

Json group(const std::string& id, const std::vector<int>& prompt, std::vector<Json> responses) {
  return {{"id", id}, {"prompt", prompt}, {"responses", std::move(responses)}};
}

std::vector<Json> history_of(const std::string& run_folder) {
  return read_lines(run_folder + "/history.jsonl");
}

Gradients gradients_of(const std::string& run_folder, int step) {
  const auto file = h5::open_file(str("{}/gradient-{}.h5", run_folder, step));
  Gradients all;
  for (const auto& name : h5::names(file, "/")) all[name] = h5::read_all(file, name);
  return all;
}

void expect_near(const Gradients& is, const Gradients& should, double tolerance) {
  ASSERT_EQ(is.size(), should.size());
  ASSERT_FALSE(is.empty());
  for (const auto& [name, expected] : should) {
    ASSERT_TRUE(is.contains(name)) << name;
    const auto& values = is.at(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double largest = 0, off = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      // NaN must not pass as the smaller one.
      off = std::isfinite(values[i]) ? std::max(off, std::abs(values[i] - expected[i])) : INFINITY;
      if (!std::isfinite(off)) break;
    }
    EXPECT_LE(off, tolerance * largest) << name << ", relative " << off / largest;
  }
}

std::map<std::string, std::vector<double>> scores_of(const std::string& file,
                                                     const std::string& key) {
  std::map<std::string, std::vector<double>> scores;
  for (const Json& line : read_lines(file))
    for (const Json& one : line.at("responses"))
      scores[one.at("id").get<std::string>()] = one.at(key).get<std::vector<double>>();
  return scores;
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_directory())
      found[name + "/"] = "";
    else
      found[name] = read_file(entry.path().string());
  }
  return found;
}

std::vector<std::string> differences(const std::map<std::string, std::string>& a,
                                     const std::map<std::string, std::string>& b) {
  std::vector<std::string> names;
  for (const auto& [name, text] : a)
    if (const auto found = b.find(name); found == b.end() || found->second != text)
      names.push_back(name);
  for (const auto& [name, text] : b)
    if (!a.contains(name)) names.push_back(name);
  return names;
}

}  // namespace longstraw::program
