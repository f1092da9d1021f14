// Values of an independent implementation: tests/data/golden, one folder a case.
#pragma once

#include "longstraw/io/hdf5.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace longstraw::reference {

struct Array {
  std::vector<int64_t> shape;  // empty for a scalar
  std::vector<double> values;
  double scalar() const { return values.at(0); }
};

class Golden {
 public:
  explicit Golden(const std::string& name)
      : folder_(std::string(LONGSTRAW_TEST_DATA) + "/golden/" + name),
        expected_(h5::open_file(folder_ + "/expected.h5")) {
    std::ifstream file(folder_ + "/case.json");
    case_ = nlohmann::json::parse(file);
  }

  /// Checkpoint folder and rollouts file, as a user would bring them.
  std::string model() const { return folder_ + "/model"; }
  std::string rollouts() const { return folder_ + "/rollouts.jsonl"; }
  /// case.json: name, config, groups, objectives, optimizer.
  const nlohmann::json& description() const { return case_; }
  /// Entry of `objectives` by name.
  const nlohmann::json& objective(const std::string& name) const {
    for (const auto& objective : case_.at("objectives"))
      if (objective.at("name") == name) return objective;
    throw Error("no objective " + name + " in " + folder_);
  }

  bool has(const std::string& path) const { return h5::exists(expected_, path); }
  Array array(const std::string& path) const {
    return {h5::extents(expected_, path), h5::read_all(expected_, path)};
  }
  double scalar(const std::string& path) const { return array(path).scalar(); }
  /// Names below a group: `names("objectives/plain/frozen/grad")` are the parameters.
  std::vector<std::string> names(const std::string& path) const {
    return h5::names(expected_, path);
  }

 private:
  std::string folder_;
  h5::File expected_;
  nlohmann::json case_;
};

}  // namespace longstraw::reference
