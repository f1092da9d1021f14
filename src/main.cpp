// The program: session -> arguments -> command. The only place that catches.
#include "longstraw/comm/launch.hpp"
#include "longstraw/comm/session.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/kernels/blas_setup.hpp"
#include "longstraw/sim/commands.hpp"

namespace longstraw {
namespace {

int guarded(int argc, char** argv) {
  const Grid grid = Grid::world();
  const Strangers others = strangers(grid);
  const bool speaks = grid.rank() == 0 && others.number == 0;
  log_speaks(speaks);
  try {
    const Arguments arguments = parse_arguments(argc, argv);
    if (!arguments.deck.empty()) check_launch(others);  // the others compute nothing
    return perform(arguments, grid);
  } catch (const Error& error) {
    if (error.everywhere() || grid.size() == 1) {
      if (speaks) log(Level::error, error.what());
      return error.status();
    }
    log(Level::error, "rank {}: {}", grid.rank(), error.what());
    Session::abort(error.status());
  } catch (const std::exception& error) {
    log(Level::error, "rank {}: {}", grid.rank(), error.what());
    if (grid.size() == 1) return 1;
    Session::abort(1);
  }
}

}  // namespace
}  // namespace longstraw

int main(int argc, char** argv) {
  longstraw::choose_blas_kernel(argc, argv);
  longstraw::Session session(argc, argv);
  return longstraw::guarded(argc, argv);
}
