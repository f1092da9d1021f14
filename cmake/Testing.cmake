# longstraw_test(<name> SOURCES <file>... LINK <target>... [RANKS <n>...] [LABELS <label>...]
#                [ARGS <arg>...])
# One GoogleTest program, registered once for each number of ranks (none: runs without mpirun).
set(LONGSTRAW_TEST_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0)

function(longstraw_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;RANKS;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    LONGSTRAW_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    LONGSTRAW_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LINK} longstraw_comm GTest::gmock GTest::gtest)
  if(NOT arg_RANKS)
    add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
    set_tests_properties(${name} PROPERTIES
      LABELS "${arg_LABELS}" ENVIRONMENT "${LONGSTRAW_TEST_ENVIRONMENT}")
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:${name}> ${arg_ARGS})
    set_tests_properties(${name}.np${ranks} PROPERTIES
      LABELS "${arg_LABELS}" PROCESSORS 2 TIMEOUT 600
      ENVIRONMENT "${LONGSTRAW_TEST_ENVIRONMENT}")
  endforeach()
endfunction()

# longstraw_program_test(<name> SOURCES <file>...)
# One GoogleTest program that starts the built program under mpirun and looks at it from outside; it
# is no MPI program itself.
function(longstraw_program_test name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    LONGSTRAW_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    LONGSTRAW_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    LONGSTRAW_PROGRAM="$<TARGET_FILE:longstraw>"
    WRONG_BLAS="$<TARGET_FILE:wrong_blas>")
  target_link_libraries(${name} PRIVATE longstraw_program GTest::gmock_main)
  add_dependencies(${name} longstraw wrong_blas)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    LABELS regression PROCESSORS 2 TIMEOUT 600 ENVIRONMENT "${LONGSTRAW_TEST_ENVIRONMENT}")
endfunction()
