// The queue on which kernels run, with the count of what they do.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace longstraw {

/// Operations done, by label of the kernel (multiply-add = 2).
using Operations = std::map<std::string, double, std::less<>>;

/// Passed first to every kernel. On the host, kernels run at once and in order.
class Stream {
 public:
  /// Books `operations` of the kernel `label`.
  void count(std::string_view label, double operations);
  const Operations& operations() const { return operations_; }
  void reset() { operations_.clear(); }

 private:
  Operations operations_;
};

}  // namespace longstraw
