#include "longstraw/io/flat.hpp"

#include "longstraw/io/file.hpp"

#include <algorithm>
#include <type_traits>

namespace longstraw {
namespace {

constexpr hsize_t largest_chunk = hsize_t{16} << 20;  // bytes, which a read takes whole

struct StoredTypes {
  hid_t native, little, big;
};

template <class T>
StoredTypes types() {
  if constexpr (std::is_same_v<T, double>)
    return {H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE, H5T_IEEE_F64BE};
  if constexpr (std::is_same_v<T, int32_t>) return {H5T_NATIVE_INT32, H5T_STD_I32LE, H5T_STD_I32BE};
  if constexpr (std::is_same_v<T, int64_t>) return {H5T_NATIVE_INT64, H5T_STD_I64LE, H5T_STD_I64BE};
  if constexpr (std::is_same_v<T, uint8_t>) return {H5T_NATIVE_UINT8, H5T_STD_U8LE, H5T_STD_U8BE};
}

template <class T>
std::string type_name() {
  return str("{} numbers of {} bits{}", std::is_floating_point_v<T> ? "floating-point" : "whole",
             8 * sizeof(T), std::is_unsigned_v<T> ? ", unsigned" : "");
}

// Exactly: a conversion would hide values that do not fit.
template <class T>
void check_type(const h5::Dataset& set, const std::string& name) {
  const h5::Type type(H5Dget_type(set), name);
  require(H5Tequal(type, types<T>().little) > 0 || H5Tequal(type, types<T>().big) > 0,
          "{} is of another type - expected {}", name, type_name<T>());
}

int64_t flat_size(const h5::Dataset& set, const std::string& name) {
  const h5::Space space(H5Dget_space(set), name);
  hsize_t elements = 0;
  require(H5Sis_simple(space) > 0 && H5Sget_simple_extent_ndims(space) == 1,
          "{} is no list (one dimension is expected)", name);
  h5::check_h5(H5Sget_simple_extent_dims(space, &elements, nullptr), name);
  require(elements < (hsize_t{1} << 56), "{} says it has {} elements", name, elements);
  return static_cast<int64_t>(elements);
}

// Reading must neither leave the file nor need memory beyond what is asked for.
void check_storage(const h5::Dataset& set, const std::string& name, size_t element) {
  const h5::Properties how(H5Dget_create_plist(set), name);
  const auto layout = H5Pget_layout(how);
  require(layout != H5D_VIRTUAL && H5Pget_external_count(how) == 0,
          "{} lies in another file - copy it into this one", name);
  if (layout != H5D_CHUNKED) return;
  hsize_t chunk = 0;
  h5::check_h5(H5Pget_chunk(how, 1, &chunk), name);
  require(chunk <= largest_chunk / element,
          "{} has chunks of {} elements - write it in smaller ones", name, chunk);
  const int filters = static_cast<int>(h5::check_h5(H5Pget_nfilters(how), name));
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    size_t values = 0;
    const auto filter = H5Pget_filter2(how, i, &flags, &values, nullptr, 0, nullptr, nullptr);
    require(filter == H5Z_FILTER_FLETCHER32, "{} is compressed or filtered - write it as it is",
            name);
  }
}

void check_held(const h5::File& handle, const h5::Dataset& set, const std::string& name,
                uint64_t bytes) {
  hsize_t file_bytes = 0;
  h5::check_h5(H5Fget_filesize(handle, &file_bytes), name);
  const hsize_t held = H5Dget_storage_size(set);
  require(held <= file_bytes && bytes <= held,
          "{} says it has {} bytes, but {} are in the file of {} - the file is damaged or not "
          "complete",
          name, bytes, held, file_bytes);
}

// Elements [begin, begin + count) of the dataset.
h5::Space selected(const h5::Dataset& set, int64_t begin, int64_t count, const std::string& name) {
  h5::Space all(H5Dget_space(set), name);
  const auto start = static_cast<hsize_t>(begin), length = static_cast<hsize_t>(count);
  h5::check_h5(H5Sselect_hyperslab(all, H5S_SELECT_SET, &start, nullptr, &length, nullptr), name);
  return all;
}

h5::Space memory(int64_t count, const std::string& name) {
  const auto length = static_cast<hsize_t>(count);
  return {H5Screate_simple(1, &length, nullptr), name};
}

}  // namespace

template <class T>
FlatReader<T>::FlatReader(const h5::File& handle, const std::string& file, const std::string& path)
    : name_(str("{}: dataset {}", file, path)) {
  require(h5::exists(handle, path), "{} is missing", name_);
  set_ = h5::Dataset(H5Dopen2(handle, path.c_str(), H5P_DEFAULT), name_ + " cannot be opened");
  check_type<T>(set_, name_);
  size_ = flat_size(set_, name_);
  check_storage(set_, name_, sizeof(T));
  check_held(handle, set_, name_, static_cast<uint64_t>(size_) * sizeof(T));
}

template <class T>
void FlatReader<T>::read(int64_t begin, std::span<T> to) const {
  LONGSTRAW_ASSERT(begin >= 0 && std::ssize(to) <= size_ - begin);
  constexpr int64_t most = largest_transfer / int64_t{sizeof(T)};
  while (!to.empty()) {
    const int64_t count = std::min(most, std::ssize(to));
    const h5::Space from = selected(set_, begin, count, name_), here = memory(count, name_);
    h5::check_h5(H5Dread(set_, types<T>().native, here, from, H5P_DEFAULT, to.data()),
                 str("{}: elements {} to {} cannot be read - the file is damaged", name_, begin,
                     begin + count - 1));
    begin += count;
    to = to.subspan(count);
  }
}

template <class T>
FlatWriter<T>::FlatWriter(const h5::File& handle, const std::string& path,
                          const FlatMeaning& meaning)
    : handle_(handle), path_(path), meaning_(meaning) {}

template <class T>
void FlatWriter<T>::append(std::span<const T> values) {
  while (!values.empty()) {
    const int64_t part = std::min(meaning_.chunk - std::ssize(waiting_), std::ssize(values));
    waiting_.insert(waiting_.end(), values.begin(), values.begin() + part);
    values = values.subspan(part);
    if (std::ssize(waiting_) < meaning_.chunk) return;
    if (set_ < 0) create(meaning_.chunk);
    write(waiting_);
    waiting_.clear();
  }
}

template <class T>
void FlatWriter<T>::finish() {
  if (set_ < 0) create(std::max<int64_t>(std::ssize(waiting_), 1));
  write(waiting_);
  waiting_.clear();
  set_.reset("cannot write dataset " + path_);
}

template <class T>
void FlatWriter<T>::create(int64_t chunk) {
  const hsize_t none = 0, length = static_cast<hsize_t>(chunk), any = H5S_UNLIMITED;
  const h5::Space space(H5Screate_simple(1, &none, &any), path_);
  const h5::Properties how = h5::without_times(H5P_DATASET_CREATE);
  h5::check_h5(H5Pset_chunk(how, 1, &length), path_);
  h5::check_h5(H5Pset_fletcher32(how), path_);
  set_ = h5::Dataset(
      H5Dcreate2(handle_, path_.c_str(), types<T>().native, space, H5P_DEFAULT, how, H5P_DEFAULT),
      "cannot create dataset " + path_);
  h5::write_attribute(set_, "meaning", meaning_.meaning);
}

template <class T>
void FlatWriter<T>::write(std::span<const T> values) {
  if (values.empty()) return;
  const auto size = static_cast<hsize_t>(written_ + std::ssize(values));
  h5::check_h5(H5Dset_extent(set_, &size), "cannot extend dataset " + path_);
  const h5::Space to = selected(set_, written_, std::ssize(values), path_);
  const h5::Space here = memory(std::ssize(values), path_);
  h5::check_h5(H5Dwrite(set_, types<T>().native, here, to, H5P_DEFAULT, values.data()),
               "cannot write dataset " + path_);
  written_ += std::ssize(values);
}

template class FlatReader<int32_t>;
template class FlatReader<int64_t>;
template class FlatReader<uint8_t>;
template class FlatReader<double>;
template class FlatWriter<int32_t>;
template class FlatWriter<int64_t>;
template class FlatWriter<uint8_t>;
template class FlatWriter<double>;

}  // namespace longstraw
