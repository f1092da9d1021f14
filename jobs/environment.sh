# shellcheck shell=bash
# Sourced: what mpirun needs on one machine, as root or not, with more ranks than cores or not.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# A rank is one thread.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
