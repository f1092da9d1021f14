# One function for the libraries and programs of the project, so that all are built alike.
add_library(longstraw_options INTERFACE)
target_compile_features(longstraw_options INTERFACE cxx_std_20)
target_include_directories(longstraw_options INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                       ${PROJECT_BINARY_DIR}/include)
target_compile_options(longstraw_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(LONGSTRAW_WERROR)
  target_compile_options(longstraw_options INTERFACE -Werror)
endif()
if(LONGSTRAW_NATIVE)
  target_compile_options(longstraw_options INTERFACE -march=native)
endif()
if(LONGSTRAW_ASSERTS)
  target_compile_definitions(longstraw_options INTERFACE LONGSTRAW_ASSERTS)
endif()
if(LONGSTRAW_SANITIZE)
  # GCC takes its own instrumentation for uses of uninitialised memory
  target_compile_options(longstraw_options INTERFACE -fsanitize=${LONGSTRAW_SANITIZE}
                                                     -fno-omit-frame-pointer
                                                     -Wno-maybe-uninitialized)
  target_link_options(longstraw_options INTERFACE -fsanitize=${LONGSTRAW_SANITIZE})
endif()
target_link_libraries(longstraw_options INTERFACE fmt::fmt)

# longstraw_library(<name> SOURCES <file>... LINK <target>...)
function(longstraw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC longstraw_options ${arg_LINK})
endfunction()
