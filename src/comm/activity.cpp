#include "longstraw/comm/activity.hpp"

namespace longstraw {

void Activity::enter(const std::string& phase) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
  }
  beat();
}

Activity::Moment Activity::moment() const {
  const std::lock_guard lock(mutex_);
  const char* collective = collective_;
  return {.phase = phase_,
          .collective = collective == nullptr ? "" : collective,
          .begun = begun_,
          .progress = progress_};
}

Activity::Collective::Collective(Activity& activity, const char* name)
    : activity_(activity), outer_(activity.collective_.exchange(name, std::memory_order_relaxed)) {
  activity_.begun_.fetch_add(1, std::memory_order_relaxed);
  activity_.beat();
}

Activity::Collective::~Collective() {
  activity_.collective_.store(outer_, std::memory_order_relaxed);
  activity_.beat();
}

}  // namespace longstraw
