#include "longstraw/sim/verify.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/gradients.hpp"
#include "longstraw/kernels/vectors.hpp"
#include "longstraw/sim/report.hpp"

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

Bound rounding_bound(DType type, double value) {
  return type == DType::float64 ? Bound{value, 1e-10, "rounding of float64 sums"}
                                : Bound{value, 1e-3, "rounding of float32 sums"};
}

std::vector<NamedShape> shapes_of(const ParameterList& list) {
  std::vector<NamedShape> shapes;
  for (const Parameter& p : list.all()) shapes.push_back({p.name, p.shape});
  return shapes;
}

RoundingCheck rounding_check(std::string of, DType type,
                             const std::vector<NamedDistance>& parameters) {
  const auto largest =
      std::max_element(parameters.begin(), parameters.end(), [](const auto& a, const auto& b) {
        return a.distance.relative_l2() < b.distance.relative_l2();
      });
  return {.of = std::move(of),
          .all = total(parameters),
          .largest = *largest,
          .error = rounding_bound(type, largest->distance.relative_l2())};
}

// `gradient` (exact or frozen, as the file's) against that of another run.
RoundingCheck compare_with_file(const StoredGradient& stored, const ReducedGradient& gradient,
                                const Problem& problem, const Grid& grid, Ledger& ledger) {
  const ParameterList& list = problem.model.parameters;
  const DType type = gradient.values().type();
  Stream stream;
  std::map<std::string, int64_t> offsets;
  std::map<std::string, Distance> sums;
  for (const Parameter& p : list.all()) offsets[p.name] = p.offset;
  read_gradients(stored.file.path, shapes_of(list), grid, ledger,
                 [&](const std::string& name, Range elements, const Tensor& values) {
                   const Field ours(ledger, "verify", type, {elements.size()});
                   const int64_t at = offsets.at(name);
                   gradient.gather(grid, ours, {at + elements.begin, at + elements.end});
                   const Products s = products(stream, ours, values);
                   sums[name] += {s.bb, s.aa, s.ab, s.difference};
                 });
  std::vector<NamedDistance> parameters;
  for (const Parameter& p : list.all()) parameters.push_back({p.name, sums[p.name]});
  const bool single = type == DType::float32 || stored.type == DType::float32;
  return rounding_check(str("{} gradient against {}", stored.file.mode, stored.file.path),
                        single ? DType::float32 : DType::float64, parameters);
}

}  // namespace

bool VerifyReport::held() const {
  return std::all_of(differences.begin(), differences.end(),
                     [](const auto& check) { return check.held(); }) &&
         std::all_of(rounding.begin(), rounding.end(),
                     [](const auto& check) { return check.error.held(); });
}

void check_verify(const Problem& problem, const VerifyOptions& options, const Grid& grid) {
  agree(grid, [&] {
    Ledger ledger;
    Stream stream;
    const Parameters none(ledger, DType::float32, {});
    const Stepper stepper({grid, ledger, stream, none}, problem.model, problem.settings.objective,
                          problem.settings.stepper);
    require(has_signal(stepper.plan(first_groups(problem))),
            "verify: no response of the first step has a gradient (rewards are equal within each "
            "group, or all tokens masked) - take another step by rollouts.shuffle=true run.seed=N, "
            "or more groups a step");
  });
  if (options.against.empty()) return;
  const auto stored = open_gradients(options.against, shapes_of(problem.model.parameters), grid);
  agree(grid, [&] {
    require(stored.file.step == 0, "verify: {} is the gradient of step {}, not of the first",
            options.against, stored.file.step + 1);
  });
}

void log_verify_memory(const Problem& problem, const VerifyOptions& options, const Grid& grid) {
  // weights and gradient whole, a reduced gradient cut over the ranks or two; for differences the
  // weights and a direction
  const auto size = static_cast<double>(problem.model.parameters.size() * size_of(DType::float64));
  const double bytes = size * ((options.directions > 0 ? 4 : 2) + 2.0 / grid.size());
  log(Level::info,
      "  verify     {} a rank for weights, gradients and directions in float64, beside the "
      "prompt's "
      "state and the activations of a block",
      bytes_text(bytes));
}

VerifyReport verify(const Problem& problem, const VerifyOptions& options, const Grid& grid) {
  const Timer timer;
  Ledger ledger;
  Stream stream;
  Progress progress(verify_work(problem, options.directions, grid),
                    on_terminal() && grid.rank() == 0);
  const DType type = problem.settings.precision;
  VerifyReport report{.ranks = grid.size(), .precision = type};
  for (const Group* group : first_groups(problem))
    ++report.groups, report.responses += std::ssize(group->responses);
  ReducedGradient exact;
  {
    FirstStep step(problem, type, grid, ledger, progress);
    exact = step.gradient(GradientMode::exact);
    report.summary = step.summary();
    {
      const ReducedGradient frozen = step.gradient(GradientMode::frozen);
      report.frozen = distances(grid, stream, problem.model.parameters, frozen, exact);
      if (!options.against.empty()) {
        const auto stored =
            open_gradients(options.against, shapes_of(problem.model.parameters), grid);
        const bool is_exact = stored.file.mode == name_of(GradientMode::exact);
        report.rounding.push_back(
            compare_with_file(stored, is_exact ? exact : frozen, problem, grid, ledger));
      }
    }
    report.differences = step.differences(exact, options.directions);
  }
  if (type == DType::float32) {
    FirstStep step(problem, DType::float64, grid, ledger, progress);
    const ReducedGradient exact64 = step.gradient(GradientMode::exact);
    report.rounding.push_back(
        rounding_check("exact gradient in float32 against float64", DType::float32,
                       distances(grid, stream, problem.model.parameters, exact, exact64)));
    const auto more = step.differences(exact64, options.directions);
    report.differences.insert(report.differences.end(), more.begin(), more.end());
  }
  progress.clear();
  report.bytes_peak = peak_bytes(ledger, grid);
  report.seconds = timer.seconds();
  return report;
}

}  // namespace longstraw
