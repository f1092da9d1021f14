#include "longstraw/sim/report.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/sim/json_field.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace longstraw {

namespace {

nlohmann::ordered_json seconds_json(const PhaseSeconds& s) {
  return {{"capture", s.capture}, {"score", s.score},
          {"replay", s.replay},   {"prompt_backward", s.prompt_backward},
          {"update", s.update},   {"dump", s.dump}};
}

}  // namespace

double& PhaseSeconds::of(TickKind kind) {
  switch (kind) {
    case TickKind::capture_block: return capture;
    case TickKind::score_block: return score;
    case TickKind::advance_block:
    case TickKind::replay_block: return replay;
    case TickKind::prompt_backward_block: return prompt_backward;
    case TickKind::update: break;
  }
  return update;
}

double PhaseSeconds::total() const {
  return capture + score + replay + prompt_backward + update + dump;
}

const char* name_of(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::updated: return "updated";
    case StepOutcome::skipped_no_signal: return "skipped: no signal";
    case StepOutcome::skipped_nonfinite: return "skipped: not finite";
    case StepOutcome::stopped_nonfinite: return "stopped: not finite";
  }
  return "";
}

void StepReport::fields(DumpFields& fields) {
  const nlohmann::json facts = {
      {"seconds", seconds_json(seconds)}, {"bytes_peak", bytes_peak}, {"restarts", restarts}};
  json_field(fields, "step/report", facts,
             "JSON: seconds by phase, peak bytes by label, restarts, so far",
             [&](const nlohmann::json& read) {
               const auto& spent = read.at("seconds");
               seconds = {.capture = spent.at("capture"),
                          .score = spent.at("score"),
                          .replay = spent.at("replay"),
                          .prompt_backward = spent.at("prompt_backward"),
                          .update = spent.at("update"),
                          .dump = spent.at("dump")};
               for (const auto& [label, bytes] : read.at("bytes_peak").items())
                 require(is_count(bytes), "peak of {} is {}", label, bytes.dump());
               bytes_peak = read.at("bytes_peak").get<std::map<std::string, int64_t>>();
               restarts = read.at("restarts").get<std::vector<std::string>>();
             });
}

nlohmann::ordered_json history_line(const StepReport& r) {
  const StepSummary& s = r.summary;
  nlohmann::ordered_json line = {{"step", r.step},
                                 {"loss", s.loss},
                                 {"pg_loss", s.pg_loss},
                                 {"kl_loss", s.kl_loss},
                                 {"entropy", s.entropy},
                                 {"grad_norm", r.grad_norm},
                                 {"lr", r.lr},
                                 {"reward_mean", s.reward_mean},
                                 {"reward_std", s.reward_std},
                                 {"advantage_mean", s.advantage_mean},
                                 {"ratio_mean", s.ratio_mean},
                                 {"ratio_max", s.ratio_max},
                                 {"clip_fraction_low", s.clip_fraction_low},
                                 {"clip_fraction_high", s.clip_fraction_high},
                                 {"dual_clip_fraction", s.dual_clip_fraction},
                                 {"tis_capped_fraction", s.tis_capped_fraction},
                                 {"zero_std_groups", s.zero_std_groups},
                                 {"masked_responses", s.masked_responses},
                                 {"prompt_tokens", s.prompt_tokens},
                                 {"response_tokens", s.response_tokens},
                                 {"counted_tokens", s.counted_tokens},
                                 {"gradient_mode", name_of(r.mode)},
                                 {"outcome", name_of(r.outcome)}};
  if (!r.nonfinite_response.empty()) line["nonfinite_response"] = r.nonfinite_response;
  line["seconds"] = seconds_json(r.seconds);
  line["bytes_peak"] = r.bytes_peak;
  if (!r.restarts.empty()) line["restarts"] = r.restarts;
  return line;
}

std::string step_line(const StepReport& r, int64_t steps) {
  const StepSummary& s = r.summary;
  const auto tokens = static_cast<double>(s.prompt_tokens + s.response_tokens);
  // Some NaN carry a sign, which says nothing.
  const auto unsigned_nan = [](double x) { return std::isnan(x) ? std::abs(x) : x; };
  std::string line =
      str("step {}/{}  reward {:.4f}  loss {:.3e}  grad_norm {:.3e}  entropy {:.3f}  lr {:.2e}  "
          "{}  {:.0f} tokens/s  peak {}",
          r.step + 1, steps, s.reward_mean, unsigned_nan(s.loss), unsigned_nan(r.grad_norm),
          unsigned_nan(s.entropy), r.lr, seconds_text(r.seconds.total()),
          tokens / std::max(r.seconds.total(), 1e-9),
          bytes_text(static_cast<double>(r.bytes_peak.at("total"))));
  if (r.outcome != StepOutcome::updated) line += str("  ({})", name_of(r.outcome));
  return line;
}

std::map<std::string, int64_t> peak_bytes(const Ledger& ledger, const Grid& grid) {
  // The labels are those of rank 0: every rank allocates under the same ones.
  std::string labels;
  for (const auto& [label, entry] : ledger.entries()) labels += label + '\n';
  labels = grid.broadcast(labels, 0);
  std::map<std::string, int64_t> peaks = {{"total", grid.max(ledger.total().peak)}};
  for (size_t at = 0; at < labels.size();) {
    const size_t end = labels.find('\n', at);
    const std::string label = labels.substr(at, end - at);
    const auto found = ledger.entries().find(label);
    peaks[label] = grid.max(found == ledger.entries().end() ? int64_t{0} : found->second.peak);
    at = end + 1;
  }
  return peaks;
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) bytes /= 1024, ++unit;
  return unit == 0 ? str("{:.0f} B", bytes) : str("{:.1f} {}", bytes, units[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds < 60) return str("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return str("{} min {:02} s", whole / 60, whole % 60);
  return str("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

double Progress::cost(TickKind kind) {
  switch (kind) {
    case TickKind::replay_block: return 3;           // forward and backward
    case TickKind::prompt_backward_block: return 3;  // recomputation and backward
    case TickKind::update: return 0;
    default: return 1;
  }
}

double Progress::work(std::span<const Group* const> groups, const StepPlan& plan) {
  double work = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto prompt = static_cast<double>(groups[g]->prompt.size() - 1);
    work += prompt * cost(TickKind::capture_block);
    if (plan[g].walks) work += prompt * cost(TickKind::prompt_backward_block);
    for (size_t r = 0; r < groups[g]->responses.size(); ++r) {
      const bool replays = plan[g].responses[r].replays;
      work += static_cast<double>(groups[g]->responses[r].ids.size()) *
              cost(replays ? TickKind::replay_block : TickKind::score_block);
    }
  }
  return work;
}

void Progress::done(TickKind kind, int64_t tokens, const std::string& where) {
  done_ += cost(kind) * static_cast<double>(tokens);
  tokens_ += tokens;
  const double now = timer_.seconds();
  if (now - spoke_ < (terminal_ ? 0.5 : 30.0) || done_ <= before_) return;
  spoke_ = now;
  const std::string line =
      str("{}  {:.0f} %  {}  {:.0f} tokens/s  {} left", where, std::min(100 * done_ / work_, 100.0),
          name_of(kind), static_cast<double>(tokens_) / now,
          seconds_text(now * std::max(work_ - done_, 0.0) / (done_ - before_)));
  if (terminal_)
    log_transient(line);
  else
    log(Level::info, line);
  shown_ = terminal_;
}

void Progress::clear() {
  if (shown_) log_transient("");
  shown_ = false;
}

}  // namespace longstraw
