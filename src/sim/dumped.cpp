#include "longstraw/sim/dumped.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/restart.hpp"
#include "longstraw/sim/schedule.hpp"
#include "longstraw/sim/weights.hpp"

#include <filesystem>
#include <map>
#include <optional>

namespace longstraw {
namespace {

Cursor cursor_in(DumpReader& dump) {
  Cursor cursor;
  cursor.fields(dump);
  return cursor;
}

int64_t updates_in(DumpReader& dump) {
  int64_t updates = 0;
  dump.number("optimizer/updates", updates, {}, {});
  return updates;
}

// Bytes by the first word of a path.
std::map<std::string, int64_t> bytes_by_label(const DumpFileReader& file) {
  std::map<std::string, int64_t> bytes;
  for (const auto& path : file.paths()) bytes[path.substr(0, path.find('/'))] += file.bytes(path);
  return bytes;
}

std::string place_of(const Cursor& cursor, int64_t updates) {
  const std::string done = str("{} tick(s) and {} update(s) done", cursor.ticks, updates);
  if (cursor.at_end != 0) return "after the last step, " + done;
  const Tick& next = cursor.next;
  return str("step {}, before {} of group {}, response {}, block {}; {}", next.step + 1,
             name_of(next.kind), next.group, next.response, next.block, done);
}

Checkpoint checkpoint_of(const RunIdentity& run, const ExportOptions& options, const Grid& grid) {
  const bool given = !options.checkpoint.empty();
  agree(grid, [&] {
    std::error_code failed;
    require(given || grid.rank() != 0 || std::filesystem::exists(run.model, failed),
            "the run of {} started from {}, which is not there - name that folder by --checkpoint",
            options.dump, run.model);
  });
  return Checkpoint::open(given ? options.checkpoint : run.model, grid);
}

}  // namespace

bool is_dump(const std::string& path) {
  if (has_dump_name(path)) return true;
  if (!h5::is_hdf5(path)) return false;
  const h5::File file = h5::open_file(path);
  return h5::has_attribute(file, "metadata_checksum");
}

void inspect_dump(const std::string& path, bool check_content, const Grid& grid) {
  DumpReader dump(path, grid, check_content ? Content::checked : Content::unchecked);
  const DumpFileReader& file = dump.file();
  RunIdentity run;
  run.fields(dump);
  log(Level::info, "dump       {}", path);
  log(Level::info, "written    by {}, {} rank(s)", file.attribute("program"), run.ranks);
  log(Level::info, "run        {}", place_of(cursor_in(dump), updates_in(dump)));
  log(Level::info, "model      {}  (digest {})", run.model, run.model_digest);
  log(Level::info, "rollouts   {}  (digest {})", run.rollouts, run.rollouts_digest);
  int64_t total = 0;
  const auto line = [&](const std::string& label, int64_t bytes, const std::string& where) {
    log(Level::info, "  {:<10} {:>12}{}", label, bytes_text(static_cast<double>(bytes)), where);
    total += bytes;
  };
  log(Level::info, "content");
  for (const auto& [label, bytes] : bytes_by_label(file)) line(label, bytes, "");
  for (const auto& segment : dump.segments())
    for (const auto& [label, bytes] : bytes_by_label(*segment))
      line(label, bytes, "  in " + std::filesystem::path(segment->path()).filename().string());
  for (const auto& missing : dump.missing())
    log(Level::info, "  missing: {}, which a restart needs", missing);
  line("total", total, "");
  log(Level::info, check_content ? "checked    all content matches its checksums"
                                 : "checked    names, extents and attributes; --check: content");
}

void export_weights(const ExportOptions& options, const Grid& grid) {
  DumpReader dump(options.dump, grid, Content::own_checked);
  RunIdentity run;
  run.fields(dump);
  const Checkpoint source = checkpoint_of(run, options, grid);
  std::optional<Model> model;
  std::optional<DType> type;
  std::string mode;
  agree(grid, [&] {
    model.emplace(open_model(source));
    Deck deck(run.deck, options.dump + ", deck");
    type = deck.get<std::string>("model.precision") == "float64" ? DType::float64 : DType::float32;
    mode = deck.get<std::string>("gradient.mode");
    if (grid.rank() != 0) return;
    const std::string digest = source.digest();
    require(digest == run.model_digest,
            "{} is of another model than {} holds (digests {} and {}) - name the folder that the "
            "run started from by --checkpoint",
            options.dump, source.folder(), run.model_digest, digest);
  });
  const Cursor cursor = cursor_in(dump);
  const int64_t updates = updates_in(dump);
  Ledger ledger;
  const Parameters parameters(ledger, *type, model->parameters);
  parameters.weight_fields(dump, grid);
  save_weights(options.output, source,
               {*model, parameters, options.masters ? StoredAs::computed : StoredAs::source}, grid,
               ledger);
  write_origin({.folder = options.output,
                .checkpoint = source.folder(),
                .rollouts = run.rollouts,
                .gradient_mode = mode,
                .precision = name_of(*type),
                .steps = cursor.next.step,
                .updates = updates},
               grid);
  log(Level::info, "wrote {}: the weights {}", options.output, place_of(cursor, updates));
}

}  // namespace longstraw
