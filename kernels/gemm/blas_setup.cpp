#include "longstraw/kernels/blas_setup.hpp"

#include "gemm/cpu.hpp"
#include "longstraw/core/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

// Weak, so that the program also links with a BLAS that is not OpenBLAS.
extern "C" {
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] char* openblas_get_config();
[[gnu::weak]] int openblas_get_num_threads();
}

namespace longstraw {
namespace {

constexpr auto kernel_variable = "OPENBLAS_CORETYPE";
/// Set when the program was started again, so that it never is a second time: to what was chosen.
constexpr auto guard_variable = "LONGSTRAW_STARTED_AGAIN";
constexpr auto chose_kernel = "kernel", chose_threads = "threads";

bool is_openblas() { return openblas_get_corename != nullptr && openblas_get_config != nullptr; }

std::string lower(std::string_view name) {
  std::string result(name);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

/// What a kernel set of OpenBLAS makes use of; unknown names are taken for newer than this list.
VectorSet vectors_of_kernel(std::string_view kernel) {
  constexpr std::array basic = {"katmai",      "coppermine", "northwood",  "prescott",
                                "banias",      "athlon",     "opteron",    "opteron_sse3",
                                "barcelona",   "bobcat",     "atom",       "core2",
                                "penryn",      "dunnington", "nehalem",    "nano",
                                "sandybridge", "bulldozer",  "piledriver", "steamroller"};
  constexpr std::array avx2 = {"haswell", "zen", "excavator"};
  const std::string name = lower(kernel);
  if (std::find(basic.begin(), basic.end(), name) != basic.end()) return VectorSet::basic;
  if (std::find(avx2.begin(), avx2.end(), name) != avx2.end()) return VectorSet::avx2;
  return VectorSet::avx512;
}

/// Whether it was unset and is now `value`.
bool set_where_unset(const char* variable, const char* value) {
  return std::getenv(variable) == nullptr && setenv(variable, value, 1) == 0;
}

/// Replaces this process by the same program with the same arguments; returns only when it fails.
void start_again(char** argv) {
  // the link's target first: a program started through /proc/self/exe would be listed as "exe"
  std::array<char, 4096> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) > 0) execv(path.data(), argv);
  execv("/proc/self/exe", argv);
}

}  // namespace

std::optional<std::string> better_blas_kernel() {
  if (!is_openblas()) return std::nullopt;
  // a library of one kernel set does not read the variable
  if (std::string_view(openblas_get_config()).find("DYNAMIC_ARCH") == std::string_view::npos)
    return std::nullopt;
  const VectorSet offered = vectors_of_this_cpu();
  if (vectors_of_kernel(openblas_get_corename()) >= offered) return std::nullopt;
  return offered == VectorSet::avx512 ? "SkylakeX" : "Haswell";
}

void choose_blas_kernel(int /*argc*/, char** argv) {
  if (std::getenv(guard_variable) != nullptr) return;
  const auto better = better_blas_kernel();
  const bool chosen = better && set_where_unset(kernel_variable, better->c_str());
  bool changed = chosen;
  changed |= set_where_unset("OPENBLAS_NUM_THREADS", "1");
  changed |= set_where_unset("OMP_NUM_THREADS", "1");
  if (!changed || setenv(guard_variable, chosen ? chose_kernel : chose_threads, 1) != 0) return;
  start_again(argv);
}

BlasFacts blas_facts() {
  if (!is_openblas()) return {.config = "not OpenBLAS", .kernel = "its own choice", .slow = {}};
  BlasFacts facts{.config = openblas_get_config(), .kernel = openblas_get_corename(), .slow = {}};
  if (openblas_get_num_threads != nullptr) facts.threads = openblas_get_num_threads();
  const auto better = better_blas_kernel();
  if (!better) return facts;
  const char* set = std::getenv(kernel_variable);
  const char* guard = std::getenv(guard_variable);
  if (set != nullptr && (guard == nullptr || std::string_view(guard) != chose_kernel))
    facts.slow =
        str("{}={} is set: matrix products run on OpenBLAS's {} kernels, below what this processor "
            "offers ({}) - unset it",
            kernel_variable, set, facts.kernel, *better);
  else
    facts.slow =
        str("matrix products run on OpenBLAS's {} kernels, below what this processor offers ({}) - "
            "{}",
            facts.kernel, *better,
            set == nullptr ? str("set {}={}", kernel_variable, *better)
                           : str("{}={} was tried and not followed, so install a newer OpenBLAS",
                                 kernel_variable, set));
  return facts;
}

}  // namespace longstraw
