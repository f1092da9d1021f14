// The built program as a user runs it: under mpirun, on files in a folder of its own, seen from
// outside only: exit status, output, files. The tests that use it are no MPI programs themselves.
#pragma once

#include "longstraw/core/check.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace longstraw::program {

using Json = nlohmann::ordered_json;

/// What came of one start of the program.
struct Outcome {
  int status = -1;  // of mpirun; 124: it did not end in time and was killed
  std::string out, err;
  double seconds = 0;
  /// Lines that start with "error: ", of both streams.
  std::vector<std::string> errors() const;
  std::string all() const { return out + err; }
};

/// A temporary folder that the program runs in.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string operator/(const std::string& name) const { return path() + "/" + name; }
  std::string path() const { return root_ + "/work"; }

  /// `mpirun -n RANKS longstraw ARGUMENTS` (RANKS = 0: without mpirun) with the shipped
  /// environment, in this folder or another. `variables`: more of them, NAME=VALUE ...
  Outcome run(int ranks, const std::string& arguments, const std::string& variables = "",
              const std::string& current_folder = "") const;
  /// The same, which must finish well.
  Outcome succeed(int ranks, const std::string& arguments) const;

  /// Copies the checkpoint of a golden case to folder `to`.
  void copy_model(const std::string& golden, const std::string& to) const;
  /// Writes a deck that names a checkpoint and rollouts, with `more` lines after them.
  void write_deck(const std::string& name, const std::string& checkpoint,
                  const std::string& rollouts, const std::string& more = "") const;
  /// Writes rollouts, one group a line.
  void write_rollouts(const std::string& name, const std::vector<Json>& groups) const;

  /// `files_of` this folder.
  std::map<std::string, std::string> files() const;

 private:
  std::string root_;
};

/// Expects that the program refuses on 1, 2 and 3 ranks, with and without -n: `status` from mpirun,
/// within seconds, one and the same error line that contains each of `named`, every rank ending by
/// itself, and nothing left behind. `arguments` are those of `run` or `score`, without -n.
void expect_refused(const Workplace& place, const std::string& arguments, int status,
                    const std::vector<std::string>& named, const std::string& variables = "");

// ---- files

std::string golden_folder(const std::string& name);
std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
Json read_json(const std::string& path);
/// Lines of JSON.
std::vector<Json> read_lines(const std::string& path);
/// Changes one JSON file.
template <class Change>
void edit_json(const std::string& path, Change&& change) {
  Json json = read_json(path);
  change(json);
  write_file(path, json.dump(1));
}

/// A safetensors file in its two parts; `write` puts a header of the right length.
struct Safetensors {
  Json header;
  std::string data;

  static Safetensors read(const std::string& path);
  void write(const std::string& path) const;
  /// Values of a float32 tensor, in place.
  float* values(const std::string& tensor);
};

// ---- rollouts

/// Token ids below `vocab` that depend on `seed` only.
std::vector<int> random_ids(int count, int vocab, unsigned seed);
Json response(const std::string& id, const std::vector<int>& ids, double reward);
Json group(const std::string& id, const std::vector<int>& prompt, std::vector<Json> responses);

// ---- results

/// Lines of a run's history.
std::vector<Json> history_of(const std::string& run_folder);
using Gradients = std::map<std::string, std::vector<double>>;
Gradients gradients_of(const std::string& run_folder, int step = 0);
/// Expects every parameter's gradient to differ by at most `tolerance` of its largest element.
void expect_near(const Gradients& is, const Gradients& should, double tolerance);
/// Values of key (logprobs, ref_logprobs) by response id of a rollouts file.
std::map<std::string, std::vector<double>> scores_of(const std::string& file,
                                                     const std::string& key = "logprobs");
/// Contents of all files below a folder by path; folders end in a slash.
std::map<std::string, std::string> files_of(const std::string& folder);
/// Names of what is in one of the two only, or differs.
std::vector<std::string> differences(const std::map<std::string, std::string>& a,
                                     const std::map<std::string, std::string>& b);

}  // namespace longstraw::program
