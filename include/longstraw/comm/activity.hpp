// What this rank is at, written by the thread that works and read by the one that watches over it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace longstraw {

/// One rank's phase, the collective it is in, and a count that rises while it gets on. Every member
/// may be called from any thread.
class Activity {
 public:
  /// A moment of it.
  struct Moment {
    std::string phase;
    std::string collective;  ///< name; empty: it computes, reads or writes
    int64_t begun = 0;       ///< collectives so far, with this one
    int64_t progress = 0;    ///< rises with every sign of progress
  };

  /// Says what the rank does from now on.
  void enter(const std::string& phase);
  /// A sign of progress in a long phase without collectives.
  void beat() { progress_.fetch_add(1, std::memory_order_relaxed); }
  Moment moment() const;

  /// Marks a collective for as long as it lives; `name` must be a literal.
  class Collective {
   public:
    Collective(Activity& activity, const char* name);
    ~Collective();
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;

   private:
    Activity& activity_;
    const char* outer_;
  };

 private:
  mutable std::mutex mutex_;  // guards the phase
  std::string phase_ = "start";
  std::atomic<const char*> collective_ = nullptr;
  std::atomic<int64_t> begun_ = 0;
  std::atomic<int64_t> progress_ = 0;
};

}  // namespace longstraw
