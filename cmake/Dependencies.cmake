# Every package the project needs; nothing else calls find_package.
set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI REQUIRED COMPONENTS CXX)

set(HDF5_PREFER_PARALLEL TRUE)
find_package(HDF5 REQUIRED COMPONENTS C)
if(NOT HDF5_IS_PARALLEL)
  message(FATAL_ERROR "HDF5 was built without MPI - install libhdf5-openmpi-dev or set HDF5_ROOT")
endif()
add_library(longstraw_hdf5 INTERFACE)
target_include_directories(longstraw_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(longstraw_hdf5 INTERFACE ${HDF5_LIBRARIES} MPI::MPI_CXX)

find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)

find_package(Kokkos 3.4 REQUIRED)
if(Kokkos_VERSION VERSION_LESS 4)
  # Debian's 3.4 names an include folder that does not exist
  set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                                                  "${Kokkos_INCLUDE_DIRS}")
endif()
add_library(longstraw_kokkos INTERFACE)
get_target_property(kokkos_include Kokkos::kokkos INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(longstraw_kokkos SYSTEM INTERFACE ${kokkos_include})
target_link_libraries(longstraw_kokkos INTERFACE Kokkos::kokkos)

set(BLA_VENDOR OpenBLAS)
find_package(BLAS REQUIRED)
find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas REQUIRED)
add_library(longstraw_blas INTERFACE)
target_include_directories(longstraw_blas SYSTEM INTERFACE ${CBLAS_INCLUDE_DIR})
target_link_libraries(longstraw_blas INTERFACE BLAS::BLAS)

if(LONGSTRAW_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
