#include "longstraw/comm/launch.hpp"

#include <cstdlib>

namespace longstraw {
namespace {

int64_t number_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? 0 : std::atoll(value);
}

}  // namespace

Strangers strangers(const Grid& grid) {
  // mpirun, which does speak, may run inside what other launchers left in the environment.
  if (grid.size() > 1 || std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return {};
  if (number_in("SLURM_NTASKS") > 1)
    return {"SLURM_NTASKS", number_in("SLURM_NTASKS"), number_in("SLURM_PROCID")};
  if (number_in("PMI_SIZE") > 1) return {"PMI_SIZE", number_in("PMI_SIZE"), number_in("PMI_RANK")};
  return {};
}

void check_launch(const Strangers& others) {
  require(
      others.processes <= 1,
      "{} = {}, but MPI sees one rank: the launcher and this MPI do not know each other - start "
      "with mpirun, or with srun --mpi=pmix",
      others.variable, others.processes);
}

}  // namespace longstraw
