// Measures what the program's speed is made of, each against the matrix products of the same ranks.
//   mpirun -n 2 longstraw_bench [kernels] [steps] [dumps] [prompts=2048,8192] [block=2048]
//   [exact=0]
#include "bench/bench.hpp"
#include "longstraw/comm/session.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/kernels/blas_setup.hpp"

#include <algorithm>
#include <sstream>

namespace {

std::vector<int64_t> numbers(const std::string& list) {
  std::vector<int64_t> values;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) values.push_back(std::stoll(word));
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace longstraw;
  choose_blas_kernel(argc, argv);
  Session session(argc, argv);
  const Grid grid = Grid::world();
  log_speaks(grid.rank() == 0);
  const std::vector<std::string> words(argv + 1, argv + argc);
  bench::StepSizes sizes;
  for (const auto& word : words) {
    if (word.starts_with("prompts=")) sizes.prompts = numbers(word.substr(8));
    if (word.starts_with("block=")) sizes.block_tokens = std::stoll(word.substr(6));
    if (word.starts_with("exact=")) sizes.exact = word.substr(6) != "0";
  }
  const auto wanted = [&](const char* part) {
    const bool named = std::ranges::any_of(words, [](const auto& word) {
      return word == "kernels" || word == "steps" || word == "dumps";
    });
    return !named || std::ranges::find(words, part) != words.end();
  };
  const BlasFacts blas = blas_facts();
  log(Level::info, "{} rank(s), {} kernels of {}", grid.size(), blas.kernel, blas.config);
  if (!blas.slow.empty()) log(Level::warning, blas.slow);
  if (wanted("kernels")) bench::bench_kernels(grid);
  if (wanted("steps")) bench::bench_steps(grid, sizes);
  if (wanted("dumps")) bench::bench_dumps(grid);
}
