// Loaded before the C library: a file system that has no locks on whole files.
#include <cerrno>

extern "C" int flock(int, int) {
  errno = ENOLCK;
  return -1;
}
