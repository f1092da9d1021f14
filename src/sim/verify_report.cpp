#include "longstraw/core/json_check.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/verify.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

using Json = nlohmann::ordered_json;

const char* verdict(const Bound& bound) { return bound.held() ? "held" : "EXCEEDED"; }

std::string distance_row(const std::string& name, const Distance& d, const Distance& all) {
  return str("    {:<34} {:>8.2f} % {:>13.4f} {:>9.4f}", name, 100 * d.reference / all.reference,
             d.relative_l2(), d.cosine());
}

// The kinds of parameter that frozen distorts most, of those that matter.
std::string worst_kinds(std::vector<NamedDistance> kinds, const Distance& all) {
  constexpr double least_share = 0.01;
  std::erase_if(kinds, [&](const NamedDistance& kind) {
    return kind.distance.reference < least_share * all.reference;
  });
  std::ranges::sort(kinds, std::greater(),
                    [](const NamedDistance& kind) { return kind.distance.relative_l2(); });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(kinds.size(), 3); ++i)
    text +=
        str("{}{} ({:.2f})", i == 0 ? "" : ", ", kinds[i].name, kinds[i].distance.relative_l2());
  return text;
}

void add_distances(std::vector<std::string>& lines, const VerifyReport& report,
                   const ModelConfig& config) {
  const Distance all = total(report.frozen);
  const auto kinds = by_kind(report.frozen);
  lines.push_back("");
  lines.push_back(
      "What gradient.mode = frozen leaves out: f, the frozen gradient, against e, the exact one");
  lines.push_back(
      str("    {:<34} {:>10} {:>13} {:>9}", "parameters", "of |e|^2", "|f-e| / |e|", "cosine"));
  lines.push_back(distance_row("all", all, all));
  lines.push_back("  by layer");
  for (auto [name, distance] : by_layer(report.frozen)) {
    if (const auto at = name.find(' '); at != std::string::npos)
      name += config.layers[std::stoul(name.substr(at))] == LayerKind::full_attention
                  ? " (full_attention)"
                  : " (linear_attention)";
    lines.push_back(distance_row(name, distance, all));
  }
  lines.push_back("  by kind");
  for (const auto& [name, distance] : kinds) lines.push_back(distance_row(name, distance, all));
  lines.push_back(str("  Frozen misses the exact gradient by {:.0f} % of its length,",
                      100 * all.relative_l2()));
  lines.push_back(str("  most in {}", worst_kinds(kinds, all)));
}

void add_differences(std::vector<std::string>& lines, const VerifyReport& report) {
  if (report.differences.empty()) return;
  lines.push_back("");
  lines.push_back(
      "Is the exact gradient the slope of the loss L?  (L(w + h d) - L(w - h d)) / 2h, |d| = 1");
  lines.push_back(str("    {:<9} {:<14} {:>8} {:>14} {:>14} {:>10} {:>7}", "precision", "d", "h",
                      "by gradient", "by loss", "rel. error", "bound"));
  for (const auto& c : report.differences)
    lines.push_back(str("    {:<9} {:<14} {:>8.1e} {:>14.6e} {:>14.6e} {:>10.1e} {:>7.0e}  {}",
                        name_of(c.precision), c.direction, c.h, c.by_gradient, c.by_loss,
                        c.error.value, c.error.limit,
                        c.smooth ? verdict(c.error) : "no bound: a token passes a clip"));
  for (DType type : {DType::float32, DType::float64}) {
    const auto of_type = [&](const DifferenceCheck& check) { return check.precision == type; };
    const auto check = std::ranges::find_if(report.differences, of_type);
    if (check == report.differences.end()) continue;
    const auto [weights, loss] = FirstStep::reach(type);
    lines.push_back(str(
        "  {}: h moves the weights by at most {:.0e} of their norm and the loss by some {:.0e};",
        name_of(type), weights, loss));
    lines.push_back(str("           the bound is for the {}", check->error.reason));
  }
}

void add_rounding(std::vector<std::string>& lines, const VerifyReport& report) {
  for (const auto& c : report.rounding) {
    lines.push_back("");
    lines.push_back(str("Rounding: {}", c.of));
    lines.push_back(str("    relative L2 of all parameters  {:>8.1e}", c.all.relative_l2()));
    lines.push_back(str("    and of the one with most       {:>8.1e}  bound {:.0e}  {}",
                        c.error.value, c.error.limit, verdict(c.error)));
    lines.push_back(
        str("      which is {}; the bound is for the {}", c.largest.name, c.error.reason));
  }
}

Json json_of(const Distance& d) {
  return {{"relative_l2", d.relative_l2()},
          {"cosine", d.cosine()},
          {"exact_norm", std::sqrt(d.reference)},
          {"frozen_norm", std::sqrt(d.other)}};
}

Json json_of(const std::vector<NamedDistance>& list) {
  Json all = Json::object();
  for (const auto& [name, distance] : list) all[name] = json_of(distance);
  return all;
}

void add_bound(Json& json, const Bound& bound) {
  json["relative_error"] = bound.value;
  json["bound"] = bound.limit;
  json["reason"] = bound.reason;
  json["held"] = bound.held();
}

}  // namespace

std::vector<std::string> verify_lines(const Problem& problem, const VerifyReport& report) {
  const StepSummary& s = report.summary;
  std::vector<std::string> lines = {
      "", str("The first step: {} group(s), {} response(s); {} prompt and {} response tokens; loss "
              "{:.6e}",
              report.groups, report.responses, s.prompt_tokens, s.response_tokens, s.loss)};
  add_distances(lines, report, problem.model.config);
  add_differences(lines, report);
  add_rounding(lines, report);
  lines.push_back("");
  lines.push_back(str("{}, peak {} a rank", seconds_text(report.seconds),
                      bytes_text(static_cast<double>(report.bytes_peak.at("total")))));
  return lines;
}

std::string verify_json(const Problem& problem, const VerifyReport& report) {
  Json json = {{"version", version_text},
               {"checkpoint", problem.checkpoint.folder()},
               {"rollouts", problem.rollouts.file},
               {"ranks", report.ranks},
               {"precision", name_of(report.precision)},
               {"held", report.held()},
               {"loss", report.summary.loss},
               {"groups", report.groups},
               {"responses", report.responses},
               {"prompt_tokens", report.summary.prompt_tokens},
               {"response_tokens", report.summary.response_tokens},
               {"frozen_against_exact",
                {{"all", json_of(total(report.frozen))},
                 {"by_layer", json_of(by_layer(report.frozen))},
                 {"by_kind", json_of(by_kind(report.frozen))},
                 {"by_parameter", json_of(report.frozen)}}},
               {"differences", Json::array()},
               {"rounding", Json::array()},
               {"seconds", report.seconds},
               {"bytes_peak", report.bytes_peak}};
  for (const auto& c : report.differences) {
    Json check = {
        {"precision", name_of(c.precision)}, {"direction", c.direction}, {"h", c.h},
        {"by_gradient", c.by_gradient},      {"by_loss", c.by_loss},     {"smooth", c.smooth}};
    add_bound(check, c.error);
    json["differences"].push_back(check);
  }
  for (const auto& c : report.rounding) {
    Json check = {
        {"of", c.of}, {"relative_l2", c.all.relative_l2()}, {"largest_parameter", c.largest.name}};
    add_bound(check, c.error);
    json["rounding"].push_back(check);
  }
  return json_text(json, 2) + "\n";
}

}  // namespace longstraw
