#include "bench/bench.hpp"
#include "bench/measure.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/core/timer.hpp"
#include "longstraw/io/dump_folder.hpp"
#include "longstraw/io/file.hpp"

#include <algorithm>
#include <filesystem>

namespace longstraw::bench {
namespace {

constexpr int64_t rows_a_rank = 8192, width = 4096;  // 128 MiB an array and rank
constexpr int arrays = 2;

// Every rank writes its bytes to a file of its own and has them on the disk.
double plain_seconds(const Grid& grid, const std::string& folder, const Tensor& values) {
  const std::string path = str("{}/plain-{}", folder, grid.rank());
  grid.barrier();
  const Timer timer;
  auto file = DiskFile::create(path);
  for (int i = 0; i < arrays; ++i) file.write(values.raw(), values.bytes());
  file.sync();
  const double seconds = grid.max(timer.seconds());
  std::filesystem::remove(path);
  return seconds;
}

double dump_seconds(const Grid& grid, const std::string& parent, const Tensor& values) {
  const std::string folder = parent + "/dumps";
  DumpFolder dumps(folder, grid);
  grid.barrier();
  const Timer timer;
  dumps.write(1, 1, [&](DumpFields& fields) {
    for (int i = 0; i < arrays; ++i) {
      const DumpPiece piece{.first = grid.rank() * values.size(), .values = values};
      fields.placed({.path = str("values/{}", i),
                     .type = values.type(),
                     .extents = {grid.size() * rows_a_rank, width},
                     .meaning = "rows of all ranks"},
                    std::span(&piece, 1));
    }
  });
  const double seconds = grid.max(timer.seconds());
  agree(grid, [&] {
    if (grid.rank() == 0) std::filesystem::remove_all(folder);
  });
  return seconds;
}

}  // namespace

void bench_dumps(const Grid& grid) {
  const std::string folder = std::filesystem::current_path() / "bench-dumps.tmp";
  agree(grid, [&] {
    if (grid.rank() == 0) std::filesystem::create_directories(folder);
  });
  Ledger ledger;
  const Field values(ledger, "bench", DType::float32, {rows_a_rank, width});
  for (int64_t i = 0; i < values.tensor().size(); ++i)
    values.tensor().data<float>()[i] = static_cast<float>(i % 8191) * 0.01f;
  // In turn, the quickest of each: disks are noisy.
  double plain = 1e300, dump = 1e300;
  for (int i = 0; i < 5; ++i) {
    plain = std::min(plain, plain_seconds(grid, folder, values));
    dump = std::min(dump, dump_seconds(grid, folder, values));
  }
  const double mib =
      static_cast<double>(values.tensor().bytes()) * arrays * grid.size() / (1 << 20);
  print_heading(str("dump of {:.0f} MiB, with checksums, on the disk", mib));
  log(Level::info, "  plain write {:8.0f} MiB/s   dump {:8.0f} MiB/s   share {:.0f} %", mib / plain,
      mib / dump, 100 * plain / dump);
  agree(grid, [&] {
    if (grid.rank() == 0) std::filesystem::remove_all(folder);
  });
}

}  // namespace longstraw::bench
