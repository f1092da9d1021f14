#include "longstraw/sim/inspect.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/policy/objective.hpp"
#include "longstraw/sim/dumped.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/rollout_files.hpp"
#include "longstraw/sim/weights.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

namespace longstraw {
namespace {

void inspect_checkpoint(const std::string& folder, const Grid& grid) {
  const Checkpoint checkpoint = Checkpoint::open(folder, grid);
  std::optional<Model> model;
  agree(grid, [&] { model.emplace(open_model(checkpoint)); });
  const ModelConfig& c = model->config;
  std::map<std::string, int64_t> bytes_by_type;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    bytes_by_type[tensor.type] += tensor.bytes;
    bytes += tensor.bytes;
  }
  std::string types;
  for (const auto& [type, part] : bytes_by_type)
    types += str("{}{} {}", types.empty() ? "" : ", ", type, bytes_text(static_cast<double>(part)));
  const auto full = std::count(c.layers.begin(), c.layers.end(), LayerKind::full_attention);
  log(Level::info, "checkpoint  {}", folder);
  log(Level::info, "family      {}{}", c.model_type, c.tied_embeddings ? ", tied embeddings" : "");
  log(Level::info, "layers      {}: {} linear_attention, {} full_attention", c.layers.size(),
      std::ssize(c.layers) - full, full);
  log(Level::info, "sizes       hidden {}, intermediate {}, vocabulary {}", c.hidden,
      c.intermediate, c.vocab);
  log(Level::info, "attention   {} heads of {}, {} key-value heads", c.heads, c.head_dim,
      c.kv_heads);
  log(Level::info, "delta rule  {} key heads of {}, {} value heads of {}, {} taps",
      c.linear_key_heads, c.linear_key_dim, c.linear_value_heads, c.linear_value_dim, c.conv_taps);
  log(Level::info, "rope        {}, theta {:g}, factor {:g}, good for {} tokens", c.rope.type,
      c.rope.theta, c.rope.factor, c.rope.longest);
  log(Level::info, "parameters  {}", model->parameters.size());
  log(Level::info, "stored      {} tensors in {} file(s), {} ({})", checkpoint.tensors().size(),
      checkpoint.files().size(), bytes_text(static_cast<double>(bytes)), types);
  const auto ignored = ignored_tensors(checkpoint, *model);
  if (!ignored.empty())
    log(Level::info, "not used    {} tensors: {}", ignored.size(),
        fmt::to_string(fmt::join(ignored, ", ")).substr(0, 300));
}

struct Spread {
  double least, mean, most;
};

Spread spread_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, sum / static_cast<double>(values.size()), *most};
}

void inspect_rollouts(const std::string& file, const Grid& grid) {
  const Rollouts rollouts = open_rollouts(file, OnBadSample::stop, grid);
  std::vector<double> prompts, responses, rewards;
  int64_t no_signal = 0, with_logprobs = 0, with_reference = 0, truncated = 0, masked_tokens = 0;
  int64_t largest_id = 0;
  const auto look = [&](std::span<const int32_t> ids) {
    largest_id = std::max<int64_t>(largest_id, *std::ranges::max_element(ids));
  };
  for (const Group& group : rollouts.groups) {
    prompts.push_back(static_cast<double>(group.prompt.size()));
    no_signal += zero_signal(group);
    for (const auto& r : group.responses) {
      responses.push_back(static_cast<double>(r.ids.size()));
      rewards.push_back(r.reward);
      with_logprobs += !r.logprobs.empty();
      with_reference += !r.ref_logprobs.empty();
      truncated += r.finish_reason == "length";
      masked_tokens += std::ranges::count(r.loss_mask, 0);
      look(r.ids);
    }
  }
  agree(grid, [&] {
    for_each_prompt_piece(rollouts, grid,
                          [&](int64_t, int64_t, std::span<const int32_t> ids) { look(ids); });
  });
  largest_id = grid.max(largest_id);
  const Spread p = spread_of(prompts), r = spread_of(responses), w = spread_of(rewards);
  const auto count = responses.size();
  log(Level::info, "rollouts   {}", file);
  log(Level::info, "groups     {} ({} without signal: all rewards equal)", prompts.size(),
      no_signal);
  log(Level::info, "prompts    {:.0f} to {:.0f} tokens, mean {:.1f}", p.least, p.most, p.mean);
  log(Level::info, "responses  {}: {:.0f} to {:.0f} tokens, mean {:.1f}", count, r.least, r.most,
      r.mean);
  log(Level::info, "rewards    {:g} to {:g}, mean {:.4g}", w.least, w.most, w.mean);
  log(Level::info, "given      logprobs {}/{}, ref_logprobs {}/{}", with_logprobs, count,
      with_reference, count);
  log(Level::info, "masked     {} tokens by loss_mask; {} responses cut off (finish_reason length)",
      masked_tokens, truncated);
  log(Level::info, "token ids  up to {}", largest_id);
}

}  // namespace

void inspect(const std::string& path, bool check_content, const Grid& grid) {
  int64_t is_folder = 0, dumped = 0;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    std::error_code failed;
    require(std::filesystem::exists(path, failed), str("{}: no such file or folder", path), 2);
    is_folder = std::filesystem::is_directory(path, failed);
    if (!is_folder) check_regular(path);
    require(!std::filesystem::exists(path + "/history.jsonl", failed),
            str("{0} is a run folder - name {0}/weights, or {0}/dumps/latest", path), 2);
    require(!path.ends_with(".safetensors"),
            str("{} is a part of a checkpoint - name its folder, or a rollouts file", path), 2);
    dumped = !is_folder && is_dump(path);
  });
  grid.broadcast(&is_folder, sizeof is_folder, 0);
  grid.broadcast(&dumped, sizeof dumped, 0);
  if (is_folder)
    inspect_checkpoint(path, grid);
  else if (dumped)
    inspect_dump(path, check_content, grid);
  else
    inspect_rollouts(path, grid);
}

}  // namespace longstraw
