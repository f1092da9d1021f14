#include "longstraw/sim/weights.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/core/transfer.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/io/file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

namespace longstraw {
namespace {

constexpr const char* wrapped_prefix = "model.language_model.";
constexpr const char* plain_prefix = "model.";
// Types of few bits, ends of names of what stands beside or instead of quantised weights, and files
// that tell of it apart from config.json.
constexpr std::array few_bits = {"F8_", "F6_", "F4"};
constexpr std::array quantised_names = {".weight_scale_inv",
                                        ".weight_scale",
                                        ".weight_scale_2",
                                        ".weight_global_scale",
                                        ".weight_packed",
                                        ".weight_shape",
                                        ".weight_zero_point",
                                        ".input_scale",
                                        ".input_scale_inv",
                                        ".activation_scale",
                                        ".qweight",
                                        ".qzeros",
                                        ".scales",
                                        ".g_idx",
                                        ".absmax",
                                        ".quant_map",
                                        ".SCB"};
constexpr std::array quantisation_files = {"hf_quant_config.json", "quantize_config.json",
                                           "quant_config.json"};

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

bool quantised(const std::string& name, const StoredTensor& tensor) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  const auto starts = [&](std::string_view start) { return tensor.type.starts_with(start); };
  return std::ranges::any_of(quantised_names, ends) || std::ranges::any_of(few_bits, starts);
}

// Which place says that the weights are quantised; empty: none does.
std::string said_quantised(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::string said = config.quantization;
  std::error_code failed;
  for (const char* file : quantisation_files)
    if (const std::string path = checkpoint.folder() + "/" + file;
        said.empty() && std::filesystem::exists(path, failed))
      said = path;
  return said;
}

// Quantised weights, and weights that only one of tensors and configuration calls quantised: such
// an entry would be written out with what is trained.
void refuse_quantised(const Checkpoint& checkpoint, const Model& model) {
  const auto& tensors = checkpoint.tensors();
  const std::string said = said_quantised(checkpoint, model.config);
  for (const auto& [name, tensor] : tensors)
    require(!quantised(name, tensor),
            "{}/{}: tensor {} of type {} is of quantised weights ({}), which are not supported - "
            "use a checkpoint in F64, F32, F16 or BF16",
            checkpoint.folder(), checkpoint.files()[tensor.file], name, tensor.type,
            said.empty() ? "though config.json has no quantization_config" : "see " + said);
  if (said.empty()) return;
  for (const Parameter& parameter : model.parameters.all())
    if (const auto found = tensors.find(parameter.name); found != tensors.end())
      require(!readable(found->second.type),
              "{} says that the weights are quantised, but tensor {} is of type {} - remove it if "
              "they are not, or download the checkpoint again",
              said, parameter.name, found->second.type);
}

}  // namespace

Model open_model(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.folder() + "/config.json";
  const bool wrapped = checkpoint.contains(std::string(wrapped_prefix) + "embed_tokens.weight");
  Model model(parse_config(checkpoint.config(), where), wrapped ? wrapped_prefix : plain_prefix);
  refuse_quantised(checkpoint, model);
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
