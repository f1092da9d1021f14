// Rollouts files of either kind, JSON lines or HDF5, told apart by what they hold.
#pragma once

#include "longstraw/policy/rollouts.hpp"

#include <string>

namespace longstraw {

enum class RolloutKind { json_lines, hdf5 };
const char* name_of(RolloutKind kind);
/// For one rank.
RolloutKind rollout_kind(const std::string& path);

/// As `load_rollouts` has it; prompts of an HDF5 file stay there. Collective over `grid`.
Rollouts open_rollouts(const std::string& path, OnBadSample on_bad_sample, const Grid& grid);

/// Writes the rollouts `from` to `to`, a file of the same kind, with `key` (logprobs or
/// ref_logprobs) of every response that has scores set to them, in full precision; everything else
/// is carried through. Written as to.tmp and renamed. For one rank.
void write_scored(const std::string& from, const std::string& to, const std::string& key,
                  const Scores& scores);

/// Writes the rollouts `from` to `to`, a file of the other kind with everything that `from` has,
/// holding one group at a time. Refuses an ending of `to` that says otherwise, and groups with any
/// fault. Collective over `grid`; rank 0 works.
void convert(const std::string& from, const std::string& to, const Grid& grid);

}  // namespace longstraw
