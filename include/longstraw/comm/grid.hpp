// The ranks of a job and what they exchange. Messages of any size are sent in parts of at most 1
// GiB.
#pragma once

#include "longstraw/comm/activity.hpp"
#include "longstraw/core/check.hpp"
#include "longstraw/core/split.hpp"
#include "longstraw/core/tensor.hpp"

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace longstraw {

void check_mpi(int code, const char* call);

/// What a collective did since the last reset.
struct Traffic {
  int64_t bytes_sent = 0;
  int64_t calls = 0;
};

/// All ranks of a communicator. Every member that exchanges is collective over the grid.
class Grid {
 public:
  explicit Grid(MPI_Comm comm);
  static Grid world() { return Grid(MPI_COMM_WORLD); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Machines that the ranks run on.
  int nodes() const { return nodes_; }
  MPI_Comm comm() const { return comm_; }
  /// This rank's part of `count` things, and rank `r`'s.
  Range mine(int64_t count) const { return part_of(count, size_, rank_); }
  Range part(int64_t count, int r) const { return part_of(count, size_, r); }

  void barrier() const;
  void broadcast(void* data, int64_t bytes, int root) const;
  std::string broadcast(std::string text, int root) const;
  /// Rank r's `send[r]` bytes go to rank r, packed one after the other; `receive[r]` bytes come
  /// from rank r likewise.
  void all_to_all(void* to, std::span<const int64_t> receive, const void* from,
                  std::span<const int64_t> send) const;
  /// Every rank gets every rank's rows one after the other; `rows[r]` rows come from rank r. `from`
  /// may be its own place in `to`.
  void all_gather_rows(const Tensor& to, const Tensor& from, std::span<const int64_t> rows) const;
  /// Sum over ranks, in the order of ranks, the same bits on every rank.
  void sum(std::span<double> values) const;
  double sum(double value) const;
  /// Sum modulo 2^64.
  void sum(std::span<uint64_t> values) const;
  double max(double value) const;
  int64_t max(int64_t value) const;
  /// Gathers one value a rank.
  std::vector<double> gather(double value) const;

  const Traffic& traffic() const { return traffic_; }
  /// What this rank is at: every collective is marked there. Copies of a grid share it.
  Activity& activity() const { return *activity_; }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  int nodes_ = 1;
  mutable Traffic traffic_;
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
};

/// Runs `act` on every rank; if it throws on any of them, all ranks throw the `Error` of the lowest
/// such rank (another exception becomes one). For everything that can fail on some ranks only.
/// Collective over the grid.
void agree(const Grid& grid, const std::function<void()>& act);

}  // namespace longstraw
