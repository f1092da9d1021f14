#include "longstraw/sim/weights.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/core/transfer.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/io/file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace longstraw {
namespace {

constexpr const char* wrapped_prefix = "model.language_model.";
constexpr const char* plain_prefix = "model.";

std::string shape_text(const std::vector<int64_t>& shape) {
  return str("[{}]", fmt::join(shape, ", "));
}

bool readable(const std::string& type) {
  return type == "F64" || type == "F32" || type == "F16" || type == "BF16";
}

void check_parameter(const Checkpoint& checkpoint, const Parameter& parameter) {
  const auto& tensors = checkpoint.tensors();
  const auto found = tensors.find(parameter.name);
  require(found != tensors.end(), "{}: tensor {} is missing (config.json calls for it, shape {}{})",
          checkpoint.folder(), parameter.name, shape_text(parameter.shape),
          parameter.name == "lm_head.weight" ? "; tie_word_embeddings is false" : "");
  const StoredTensor& tensor = found->second;
  const std::string& file = checkpoint.files()[tensor.file];
  require(tensor.shape == parameter.shape,
          "{}/{}: tensor {} has shape {}, config.json calls for {}", checkpoint.folder(), file,
          parameter.name, shape_text(tensor.shape), shape_text(parameter.shape));
  require(readable(tensor.type),
          "{}/{}: tensor {} is of type {}, which cannot be trained (F64, F32, "
          "F16, BF16)",
          checkpoint.folder(), file, parameter.name, tensor.type);
}

}  // namespace

Model open_model(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.folder() + "/config.json";
  const bool wrapped = checkpoint.contains(std::string(wrapped_prefix) + "embed_tokens.weight");
  Model model(parse_config(checkpoint.config(), where), wrapped ? wrapped_prefix : plain_prefix);
  for (const Parameter& parameter : model.parameters.all()) check_parameter(checkpoint, parameter);
  return model;
}

std::vector<std::string> ignored_tensors(const Checkpoint& checkpoint, const Model& model) {
  std::set<std::string> known;
  for (const Parameter& parameter : model.parameters.all()) known.insert(parameter.name);
  std::vector<std::string> ignored;
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (!known.contains(name)) ignored.push_back(name);
  return ignored;
}

void load_weights(const Checkpoint& checkpoint, const Parameters& parameters, const Grid& grid) {
  agree(grid, [&] {
    int64_t bytes = 0;
    for (const Parameter& p : parameters.list().all()) bytes += checkpoint.at(p.name).bytes;
    Transfer transfer("loading weights", bytes, grid.rank() == 0);
    for (const Parameter& p : parameters.list().all()) {
      checkpoint.read(p.name, {0, p.size}, parameters.weights().rows(p.offset, p.offset + p.size));
      transfer.done(checkpoint.at(p.name).bytes);
      grid.activity().beat();
    }
  });
}

void save_weights(const std::string& out, const Checkpoint& source, const TrainedWeights& weights,
                  const Grid& grid, Ledger& ledger) {
  const auto& [model, parameters, stored_as] = weights;
  const Tensor& flat = parameters.weights();
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& p : parameters.list().all()) by_name[p.name] = &p;
  // A tied head that the file stores all the same follows the embedding.
  const Parameter& embedding = parameters.list()[model.decoder.embedding()];
  if (model.config.tied_embeddings && source.contains("lm_head.weight") &&
      source.at("lm_head.weight").shape == embedding.shape)
    by_name["lm_head.weight"] = &embedding;
  const Range held = grid.mine(parameters.list().size());
  const NewValues values{.mine = [&](const std::string& name) -> std::optional<Range> {
                           const auto found = by_name.find(name);
                           if (found == by_name.end()) return std::nullopt;
                           const Parameter& p = *found->second;
                           return Range{std::clamp(held.begin - p.offset, int64_t{0}, p.size),
                                        std::clamp(held.end - p.offset, int64_t{0}, p.size)};
                         },
                         .read =
                             [&](const std::string& name, Range elements, const Tensor& into) {
                               const int64_t at = by_name.at(name)->offset + elements.begin;
                               copy(into, flat.rows(at, at + elements.size()));
                             }};
  write_checkpoint(out, source, grid, ledger, {flat.type(), stored_as}, values);
}

void write_origin(const WeightsOrigin& o, const Grid& grid) {
  const nlohmann::ordered_json origin = {{"program", str("LongStraw {}", version_text)},
                                         {"checkpoint", o.checkpoint},
                                         {"rollouts", o.rollouts},
                                         {"gradient_mode", o.gradient_mode},
                                         {"precision", o.precision},
                                         {"steps", o.steps},
                                         {"updates", o.updates}};
  agree(grid, [&] {
    if (grid.rank() == 0) write_text(o.folder + "/" + origin_file, json_text(origin, 1) + "\n");
  });
}

}  // namespace longstraw
