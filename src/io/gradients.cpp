#include "longstraw/io/gradients.hpp"

#include "longstraw/core/field.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/hdf5.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace longstraw {
namespace {

constexpr int64_t part_elements = int64_t{1} << 22;

h5::Dataset create_dataset(const h5::File& file, const NamedShape& parameter, DType type) {
  const std::vector<hsize_t> extents(parameter.shape.begin(), parameter.shape.end());
  const h5::Space space(
      extents.empty() ? H5Screate(H5S_SCALAR)
                      : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
      "extents of " + parameter.name);
  const h5::Properties properties = h5::without_times(H5P_DATASET_CREATE);
  return {H5Dcreate2(file, parameter.name.c_str(), h5::memory_type(type), space, H5P_DEFAULT,
                     properties, H5P_DEFAULT),
          "cannot create dataset " + parameter.name};
}

// Rows of a parameter that are written or read at a time.
int64_t rows_at_once(const NamedShape& parameter) {
  return std::max<int64_t>(1,
                           part_elements / std::max<int64_t>(1, row_elements_of(parameter.shape)));
}

// act(elements) for the parts of a parameter that are written or read at a time.
template <class Act>
void for_each_part(const NamedShape& parameter, const Act& act) {
  const int64_t rows = parameter.shape.empty() ? 1 : parameter.shape[0];
  const int64_t width = row_elements_of(parameter.shape), step = rows_at_once(parameter);
  for (int64_t begin = 0; begin < rows && width > 0; begin += step) {
    act(Range{begin * width, std::min(begin + step, rows) * width});
  }
}

Field buffer_for(const std::vector<NamedShape>& parameters, Ledger& ledger, DType type) {
  int64_t largest = 0;
  for (const auto& parameter : parameters)
    largest =
        std::max(largest, std::min(elements_of(parameter.shape),
                                   rows_at_once(parameter) * row_elements_of(parameter.shape)));
  LONGSTRAW_ASSERT(largest <= (int64_t{1} << 30) / size_of(type));
  return Field(ledger, "scratch", type, {largest});
}

class Writer {
 public:
  Writer(const Grid& grid, const std::string& path, DType type)
      : grid_(grid), path_(path), type_(type) {
    agree(grid, [&] {
      if (grid.rank() == 0) file_ = h5::create_file(path);
    });
  }

  void write(const NamedShape& parameter, const Tensor& buffer, const Provide& provide) {
    h5::Dataset set;
    agree(grid_, [&] {
      if (grid_.rank() == 0) set = create_dataset(file_, parameter, type_);
    });
    for_each_part(parameter, [&](Range elements) {
      const Tensor values = buffer.rows(0, elements.size());
      provide(parameter.name, elements, values);
      agree(grid_, [&] {
        if (grid_.rank() == 0)
          h5::write_flat(set, elements.begin, values, "gradient of " + parameter.name);
      });
    });
  }

  void finish(const GradientFile& facts) {
    agree(grid_, [&] {
      if (grid_.rank() != 0) return;
      h5::write_attribute(file_, "gradient_mode", facts.mode);
      h5::write_attribute(file_, "step", facts.step);
      file_.reset("cannot close " + path_);
      auto disk = DiskFile::append(path_);
      disk.sync();
      move_into_place(path_, facts.path);
    });
  }

 private:
  const Grid& grid_;
  std::string path_;
  DType type_;
  h5::File file_;  // on rank 0
};

// Fills in what the file says of itself; returns the size of an element.
int64_t check_stored(StoredGradient& stored, const std::vector<NamedShape>& parameters) {
  const std::string& path = stored.file.path;
  check_regular(path);
  const h5::File file = h5::open_file(path);
  try {
    stored.file.mode = h5::read_attribute(file, "gradient_mode");
    stored.file.step = h5::read_integer_attribute(file, "step");
  } catch (const Error& error) {
    throw Error(str("{} is no gradient file of a run ({})", path, error.what()));
  }
  for (const auto& parameter : parameters) {
    require(h5::exists(file, parameter.name), "{} has no gradient of {} - it is not of this model",
            path, parameter.name);
    const auto extents = h5::extents(file, parameter.name);
    require(extents == parameter.shape,
            "{}: the gradient of {} has extents [{}], the parameter [{}] - it is not of this model",
            path, parameter.name, fmt::join(extents, ", "), fmt::join(parameter.shape, ", "));
  }
  const auto held = h5::names(file, "/").size();
  require(held == parameters.size(),
          "{} holds {} gradients, the model has {} parameters - it is not of this model", path,
          held, parameters.size());
  require(!parameters.empty(), "{}: no parameters", path);
  const h5::Dataset set(H5Dopen2(file, parameters[0].name.c_str(), H5P_DEFAULT), path);
  const h5::Type type(H5Dget_type(set), path);
  return static_cast<int64_t>(H5Tget_size(type));
}

}  // namespace

void write_gradients(const GradientFile& file, const std::vector<NamedShape>& parameters,
                     const Grid& grid, Ledger& ledger, DType type, const Provide& provide) {
  const Field buffer = buffer_for(parameters, ledger, type);
  const std::string temporary = file.path + ".tmp";
  try {
    Writer writer(grid, temporary, type);
    for (const auto& parameter : parameters) writer.write(parameter, buffer, provide);
    writer.finish(file);
  } catch (const Error&) {
    std::error_code ignored;
    if (grid.rank() == 0) std::filesystem::remove(temporary, ignored);
    throw;
  }
}

StoredGradient open_gradients(const std::string& path, const std::vector<NamedShape>& parameters,
                              const Grid& grid) {
  StoredGradient stored{.file = {.path = path, .mode = {}}};
  int64_t bytes = 0;
  agree(grid, [&] {
    if (grid.rank() == 0) bytes = check_stored(stored, parameters);
  });
  stored.file.mode = grid.broadcast(stored.file.mode, 0);
  grid.broadcast(&stored.file.step, sizeof stored.file.step, 0);
  grid.broadcast(&bytes, sizeof bytes, 0);
  stored.type = bytes == size_of(DType::float64) ? DType::float64 : DType::float32;
  return stored;
}

void read_gradients(const std::string& path, const std::vector<NamedShape>& parameters,
                    const Grid& grid, Ledger& ledger, const Take& take) {
  const Field buffer = buffer_for(parameters, ledger, DType::float64);
  h5::File file;
  agree(grid, [&] {
    if (grid.rank() == 0) file = h5::open_file(path);
  });
  for (const auto& parameter : parameters) {
    h5::Dataset set;
    agree(grid, [&] {
      if (grid.rank() == 0)
        set = {H5Dopen2(file, parameter.name.c_str(), H5P_DEFAULT), parameter.name};
    });
    for_each_part(parameter, [&](Range elements) {
      const Tensor values = buffer.tensor().rows(0, elements.size());
      agree(grid, [&] {
        if (grid.rank() == 0)
          h5::read_flat(set, elements.begin, values, "gradient of " + parameter.name);
      });
      grid.broadcast(values.raw(), values.bytes(), 0);
      take(parameter.name, elements, values);
    });
  }
}

}  // namespace longstraw
