// The input is a list of commands that change a good HDF5 file of rollouts. An input that starts as
// HDF5 files do is the file itself. What was read without fault is written as lines and read again.
#include "fuzz/hdf5_commands.hpp"
#include "fuzz/rollouts.hpp"

#include "longstraw/io/lists.hpp"
#include "longstraw/sim/rollout_hdf5.hpp"

#include <cmath>

using namespace longstraw;
using fuzz::Commands;

namespace {

constexpr int most_groups = 64;  // that are read of an input

constexpr std::array<const char*, 24> paths = {"groups/response_offsets",
                                               "groups/id",
                                               "groups/id_offsets",
                                               "groups/other",
                                               "groups/other_offsets",
                                               "groups/prompt",
                                               "groups/prompt_offsets",
                                               "responses/id",
                                               "responses/id_offsets",
                                               "responses/other",
                                               "responses/other_offsets",
                                               "responses/finish_reason",
                                               "responses/finish_reason_offsets",
                                               "responses/ids",
                                               "responses/ids_offsets",
                                               "responses/reward",
                                               "responses/logprobs",
                                               "responses/logprobs_offsets",
                                               "responses/loss_mask",
                                               "responses/loss_mask_offsets",
                                               "responses/advantage",
                                               "responses/advantage_offsets",
                                               "groups",
                                               "responses"};
constexpr std::array<const char*, 5> texts = {"groups/id", "groups/other", "responses/id",
                                              "responses/other", "responses/finish_reason"};
constexpr std::array<double, 20> values = {0,      1,      2,      3,    4,        5,      6,
                                           7,      -1,     0.5,    -0.5, 255,      1e-9,   0x1p20,
                                           0x1p31, 0x1p40, 0x1p62, NAN,  INFINITY, -0x1p63};

// The file that is changed: two groups, three responses, every dataset.
std::string good_file() {
  const fuzz::MemoryFile file;
  RolloutHdf5Writer writer(file.path());
  for (
      const char* line :
      {R"({"id":"g","prompt":[1,2],"more":{"x":[1]},"responses":[{"id":"a","ids":[1,2],"reward":1,)"
       R"("logprobs":[-1,-2],"ref_logprobs":[-1,-2],"loss_mask":[0,1],"advantage":1,)"
       R"("finish_reason":"stop","more":NaN},{"id":"b","ids":[3],"reward":0}]})",
       R"({"id":"h","prompt":[3],"responses":[{"id":"c","ids":[1],"reward":2}]})"})
    writer.put(parse_line(line, {"good", 1}));
  writer.finish();
  std::ifstream stream(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void remove(const h5::File& file, const std::string& path) {
  if (h5::exists(file, path)) h5::check_h5(H5Ldelete(file, path.c_str(), H5P_DEFAULT), path);
}

// Of the type that the readers expect, most often.
h5::Type element_type(Commands& commands) {
  const std::array types = {H5T_NATIVE_INT64, H5T_NATIVE_DOUBLE, H5T_NATIVE_INT32, H5T_NATIVE_UINT8,
                            H5T_STD_I64BE};
  const size_t kind = commands.below(types.size() + 1);
  if (kind == types.size()) return type_of(commands);
  return {H5Tcopy(types[kind]), "type"};
}

void replace(const h5::File& file, Commands& commands) {
  const std::string path = commands.one_of(paths);
  remove(file, path);
  const auto type = element_type(commands);
  const auto space = space_of(commands);
  const auto properties = layout_of(commands, space);
  hsize_t chunk = 0;
  if (H5Pget_layout(properties) == H5D_CHUNKED && H5Sget_simple_extent_ndims(space) == 1) {
    // What may grow may have chunks that are larger than it is.
    const hsize_t size = H5Sget_simple_extent_npoints(space), any = H5S_UNLIMITED;
    h5::check_h5(H5Sset_extent_simple(space, 1, &size, &any), path);
    chunk = commands.one_of(fuzz::extents);
    h5::check_h5(H5Pset_chunk(properties, 1, &chunk), path);
    if (commands.below(4) == 1) h5::check_h5(H5Pset_deflate(properties, 1), path);
    if (commands.below(4) == 1) h5::check_h5(H5Pset_fletcher32(properties), path);
  }
  if (commands.below(16) == 1 && H5Pget_layout(properties) == H5D_CONTIGUOUS)
    h5::check_h5(H5Pset_external(properties, "/dev/zero", 0, H5F_UNLIMITED), path);
  const h5::Dataset set(
      H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), path);
  const hssize_t elements = H5Sget_simple_extent_npoints(space);
  const bool few =
      H5Sget_simple_extent_ndims(space) <= 1 && elements >= 0 && elements <= 8 && chunk <= 1 << 16;
  if (!few || commands.below(4) == 1) return;
  std::array<double, 8> content{};
  for (double& value : content) value = commands.one_of(values);
  h5::check_h5(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, content.data()),
               path);
}

// One entry of a list of texts is of bytes of the input, and the others are empty.
void put_text(const h5::File& file, Commands& commands) {
  const std::string path = commands.one_of(texts);
  const size_t entries = path.starts_with("groups") ? 2 : 3, at = commands.below(entries);
  ListWriter<uint8_t> writer(file, path, {"text"});
  remove(file, path), remove(file, path + "_offsets");
  for (size_t i = 0; i < entries; ++i) {
    std::vector<uint8_t> bytes(i == at ? commands.below(200) : 0);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(commands.below(256));
    writer.add_list(bytes);
  }
  writer.finish();
}

void change(const std::string& path, Commands& commands) {
  h5::File file = h5::modify_file(path);
  for (int number = 0; number < 12 && commands.more(); ++number)
    fuzz::read_or_refuse([&] {
      switch (commands.below(6)) {
        case 0:
        case 1:
        case 2: return replace(file, commands);
        case 3: return put_text(file, commands);
        case 4: return remove(file, commands.one_of(paths));
        default: {
          const char* to = commands.one_of(paths);
          remove(file, to);
          return add_link(file, commands, commands.one_of(paths), to);
        }
      }
    });
  file.reset("cannot close " + path);
}

void read_all(const std::string& path) {
  RolloutHdf5Reader reader(path, OtherMembers::read);
  std::vector<RawGroup> good;
  for (int i = 0; i < most_groups; ++i) {
    auto raw = reader.next();
    if (!raw) break;
    std::vector<std::string> faults;
    fuzz::check(parse_group(*raw, faults));
    check_tokens(raw->prompt.ids({0, std::min(raw->prompt.size(), prompt_piece)}), 0, path);
    if (faults.empty() && raw->prompt.size() <= prompt_piece) good.push_back(std::move(*raw));
  }
  fuzz::must_read_again(good);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string good = good_file();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool whole = input.starts_with("\x89HDF");
  const fuzz::MemoryFile file(whole ? input : std::string_view(good));
  Commands commands(data, size);
  if (!whole) fuzz::read_or_refuse([&] { change(file.path(), commands); });
  fuzz::read_or_refuse([&] { read_all(file.path()); }, file.path());
  return 0;
}
