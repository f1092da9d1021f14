#include "longstraw/comm/grid.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace longstraw {
namespace {

constexpr int64_t largest_message = int64_t{1} << 30;

// Sends and receives between this rank and `peer` at once, in parts.
void exchange(MPI_Comm comm, int peer, std::byte* to, int64_t receive, const std::byte* from,
              int64_t send) {
  while (receive > 0 || send > 0) {
    const int r = static_cast<int>(std::min(receive, largest_message));
    const int s = static_cast<int>(std::min(send, largest_message));
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (r > 0) check_mpi(MPI_Irecv(to, r, MPI_BYTE, peer, 0, comm, &requests[0]), "MPI_Irecv");
    if (s > 0) check_mpi(MPI_Isend(from, s, MPI_BYTE, peer, 0, comm, &requests[1]), "MPI_Isend");
    check_mpi(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
    to += r, from += s, receive -= r, send -= s;
  }
}

std::vector<int64_t> offsets_of(std::span<const int64_t> sizes) {
  std::vector<int64_t> offsets(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  return offsets;
}

int count_nodes(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  int rank = 0, nodes = 0;
  check_mpi(MPI_Comm_rank(node, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  const int first = rank == 0 ? 1 : 0;
  check_mpi(MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
  return nodes;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(str("{} failed: {}", call, std::string(text, length)));
}

Grid::Grid(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  nodes_ = count_nodes(comm);
}

void Grid::barrier() const {
  const Activity::Collective here(*activity_, "barrier");
  check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
}

void Grid::broadcast(void* data, int64_t bytes, int root) const {
  const Activity::Collective here(*activity_, "broadcast");
  auto* at = static_cast<std::byte*>(data);
  for (int64_t done = 0; done < bytes; done += largest_message) {
    const int part = static_cast<int>(std::min(bytes - done, largest_message));
    check_mpi(MPI_Bcast(at + done, part, MPI_BYTE, root, comm_), "MPI_Bcast");
  }
}

std::string Grid::broadcast(std::string text, int root) const {
  int64_t bytes = static_cast<int64_t>(text.size());
  broadcast(&bytes, sizeof bytes, root);
  text.resize(bytes);
  broadcast(text.data(), bytes, root);
  return text;
}

void Grid::all_to_all(void* to, std::span<const int64_t> receive, const void* from,
                      std::span<const int64_t> send) const {
  const Activity::Collective here(*activity_, "all-to-all");
  LONGSTRAW_ASSERT(std::ssize(receive) == size_ && std::ssize(send) == size_);
  const auto in = offsets_of(receive), out = offsets_of(send);
  auto* destination = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  LONGSTRAW_ASSERT(receive[rank_] == send[rank_]);
  if (send[rank_] > 0) std::memcpy(destination + in[rank_], source + out[rank_], send[rank_]);
  // Round k pairs every rank with exactly one partner, so that no message waits for another round.
  for (int k = 0; k < size_; ++k) {
    const int peer = (k - rank_ + size_) % size_;
    if (peer == rank_) continue;
    exchange(comm_, peer, destination + in[peer], receive[peer], source + out[peer], send[peer]);
  }
  traffic_.bytes_sent += out[size_] - send[rank_];
  ++traffic_.calls;
}

void Grid::all_gather_rows(const Tensor& to, const Tensor& from,
                           std::span<const int64_t> rows) const {
  const Activity::Collective here(*activity_, "gathering of rows");
  LONGSTRAW_ASSERT(to.contiguous() && from.contiguous() && from.extent(0) == rows[rank_]);
  const int64_t row_bytes = from.row_size() * size_of(from.type());
  std::vector<int64_t> bytes(rows.begin(), rows.end());
  for (auto& b : bytes) b *= row_bytes;
  const auto at = offsets_of(bytes);
  LONGSTRAW_ASSERT(at[size_] == to.bytes());
  std::byte* const own = to.raw() + at[rank_];
  if (from.bytes() > 0 && own != from.raw()) std::memcpy(own, from.raw(), from.bytes());
  for (int k = 0; k < size_; ++k) {
    const int peer = (k - rank_ + size_) % size_;
    if (peer == rank_) continue;
    exchange(comm_, peer, to.raw() + at[peer], bytes[peer], from.raw(), bytes[rank_]);
  }
  traffic_.bytes_sent += bytes[rank_] * (size_ - 1);
  ++traffic_.calls;
}

void Grid::sum(std::span<double> values) const {
  const Activity::Collective here(*activity_, "sum");
  // What all ranks send is one call's message on each of them.
  const int64_t most = largest_message / (int64_t{sizeof(double)} * size_);
  if (std::ssize(values) > most) {
    sum(values.first(most));
    return sum(values.subspan(most));
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<double> all(count * size_);
  check_mpi(MPI_Allgather(values.data(), static_cast<int>(count), MPI_DOUBLE, all.data(),
                          static_cast<int>(count), MPI_DOUBLE, comm_),
            "MPI_Allgather");
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 0;
    for (int r = 0; r < size_; ++r) values[i] += all[r * count + i];
  }
}

double Grid::sum(double value) const {
  sum(std::span(&value, 1));
  return value;
}

void Grid::sum(std::span<uint64_t> values) const {
  const Activity::Collective here(*activity_, "sum");
  constexpr int64_t most = largest_message / int64_t{sizeof(uint64_t)};
  for (int64_t begin = 0; begin < std::ssize(values); begin += most) {
    const auto part = values.subspan(begin, std::min(most, std::ssize(values) - begin));
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()), MPI_UINT64_T,
                            MPI_SUM, comm_),
              "MPI_Allreduce");
  }
}

double Grid::max(double value) const {
  const auto all = gather(value);
  return *std::max_element(all.begin(), all.end());
}

int64_t Grid::max(int64_t value) const {
  const Activity::Collective here(*activity_, "maximum");
  int64_t largest = 0;
  check_mpi(MPI_Allreduce(&value, &largest, 1, MPI_INT64_T, MPI_MAX, comm_), "MPI_Allreduce");
  return largest;
}

std::vector<double> Grid::gather(double value) const {
  const Activity::Collective here(*activity_, "gathering of a number");
  std::vector<double> all(size_);
  check_mpi(MPI_Allgather(&value, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, comm_),
            "MPI_Allgather");
  return all;
}

void agree(const Grid& grid, const std::function<void()>& act) {
  std::string message;
  int64_t status = 0;
  try {
    act();
  } catch (const Error& error) {
    message = error.what();
    status = error.status();
  } catch (const std::exception& error) {  // of a library, or for want of memory
    message = error.what();
    status = 1;
  }
  // Lowest failing rank as the largest of (size - rank).
  const int64_t first = grid.max(status == 0 ? int64_t{0} : int64_t{grid.size() - grid.rank()});
  if (first == 0) return;
  const int root = grid.size() - static_cast<int>(first);
  message = grid.broadcast(message, root);
  grid.broadcast(&status, sizeof status, root);
  throw Error(message, static_cast<int>(status), true);
}

}  // namespace longstraw
