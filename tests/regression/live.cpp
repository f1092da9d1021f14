#include "regression/live.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;

constexpr double longest_wait = 120, longest_end = 10;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of /proc, whose files may be gone by the time that they are read.
std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

pid_t parent_of(pid_t process) {
  const std::string stat = text_of(str("/proc/{}/stat", process));
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent;
}

}  // namespace

Live::Live(const Workplace& place, int ranks, const std::string& arguments,
           const std::string& variables)
    : out_(place.path() + "/../live-out"), err_(place.path() + "/../live-err") {
  const std::string command =
      str(". {}/jobs/environment.sh; cd {} && exec env {} mpirun -n {} {} {} </dev/null >{} 2>{}",
          LONGSTRAW_SOURCE_DIR, place.path(), variables, ranks, LONGSTRAW_PROGRAM, arguments, out_,
          err_);
  // Of an earlier start, which must not be taken for this one's.
  fs::remove(out_), fs::remove(err_);
  launcher_ = ::fork();
  if (launcher_ != 0) return;
  ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
  ::_exit(127);
}

Live::~Live() {
  if (over()) return;
  for (int rank = 0; process(rank) != 0; ++rank) send(rank, SIGKILL);
  ::kill(launcher_, SIGTERM);
  // It may be hung itself.
  const auto start = std::chrono::steady_clock::now();
  while (!over() && seconds_since(start) < longest_end) nap();
  if (over()) return;
  ::kill(launcher_, SIGKILL);
  ::waitpid(launcher_, nullptr, 0);
}

bool Live::over() const {
  if (!over_) over_ = ::waitpid(launcher_, &status_, WNOHANG) == launcher_;
  return over_;
}

bool Live::wait_until(const std::function<bool()>& condition) const {
  const auto start = std::chrono::steady_clock::now();
  while (!condition()) {
    if (over() || seconds_since(start) > longest_wait) return false;
    nap();
  }
  return true;
}

bool Live::wait_for(const std::string& text) const {
  return wait_until([&] { return text_of(out_).find(text) != std::string::npos; });
}

bool Live::wait_for_signals(int rank) const {
  return wait_until([&] {
    const std::string status = text_of(str("/proc/{}/status", process(rank)));
    const auto at = status.find("SigCgt:\t");
    if (at == std::string::npos) return false;
    const std::string mask = status.substr(at + 8, 16);
    uint64_t caught = 0;
    std::from_chars(mask.data(), mask.data() + mask.size(), caught, 16);
    return (caught >> (SIGUSR2 - 1) & 1) != 0;
  });
}

pid_t Live::process(int rank) const {
  const std::string named = str("OMPI_COMM_WORLD_RANK={}", rank);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    pid_t process = 0;
    std::from_chars(name.data(), name.data() + name.size(), process);
    if (process <= 0 || parent_of(process) != launcher_) continue;
    // Between NUL bytes.
    const std::string environment = '\0' + text_of(str("/proc/{}/environ", process)) + '\0';
    if (environment.find('\0' + named + '\0') != std::string::npos) return process;
  }
  return 0;
}

void Live::send(int rank, int signal) const {
  const pid_t to = process(rank);
  if (to > 0) ::kill(to, signal);
}

void Live::send_launcher(int signal) const { ::kill(launcher_, signal); }

Outcome Live::finish() {
  const auto start = std::chrono::steady_clock::now();
  while (!over() && seconds_since(start) < longest_wait) nap();
  Outcome outcome{
      .status = 124, .out = text_of(out_), .err = text_of(err_), .seconds = seconds_since(start)};
  if (over_) outcome.status = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return outcome;
}

}  // namespace longstraw::program
