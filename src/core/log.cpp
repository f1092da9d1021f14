#include "longstraw/core/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <filesystem>
#include <memory>

namespace longstraw {
namespace {

// spdlog keeps the loggers by name for the life of the process.
std::shared_ptr<spdlog::logger> logger(Level level) {
  const bool out = level == Level::info;
  const char* name = out ? "longstraw.out" : "longstraw.err";
  if (auto found = spdlog::get(name)) return found;
  auto made = out ? spdlog::stdout_logger_mt(name) : spdlog::stderr_logger_mt(name);
  made->set_pattern("%v");
  made->flush_on(spdlog::level::info);
  return made;
}

}  // namespace

void log(Level level, const std::string& text) {
  const std::string line = printable(text);
  switch (level) {
    case Level::info: logger(level)->info(line); break;
    case Level::warning: logger(level)->warn("warning: {}", line); break;
    case Level::error: logger(level)->error("error: {}", line); break;
  }
}

void log_transient(const std::string& line) {
  const std::string text = "\r\033[K" + line;
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
}

bool on_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  // mpirun gives every process a terminal of its own and writes elsewhere what comes out of it:
  // what counts is where the parent's output goes.
  std::error_code failed;
  const auto parent = std::filesystem::read_symlink(str("/proc/{}/fd/1", ::getppid()), failed);
  return failed || parent.native().starts_with("/dev/");
}

void log_speaks(bool speaks) {
  const auto least = speaks ? spdlog::level::info : spdlog::level::err;
  logger(Level::info)->set_level(least);
  logger(Level::error)->set_level(least);
}

void log_to_file(const std::string& path) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  sink->set_pattern("%Y-%m-%d %H:%M:%S  %v");
  logger(Level::info)->sinks().push_back(sink);
  logger(Level::error)->sinks().push_back(sink);
}

}  // namespace longstraw
