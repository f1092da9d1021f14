#include "longstraw/io/lists.hpp"

namespace longstraw {

OffsetsReader::OffsetsReader(const h5::File& handle, const std::string& file,
                             const std::string& path)
    : offsets_(handle, file, path) {
  require(offsets_.size() > 0, "{} is empty - expected one element more than entries", name());
}

std::vector<Range> OffsetsReader::ranges(Range which, int64_t elements) const {
  std::vector<int64_t> at(which.size() + 1);
  offsets_.read(which.begin, at);
  const auto check = [&](bool right, int64_t index, const char* what, int64_t limit) {
    require(right, "{}[{}] is {}, {} {} - the file is damaged", name(), which.begin + index,
            at[index], what, limit);
  };
  std::vector<Range> ranges(which.size());
  check(which.begin > 0 || at[0] == 0, 0, "expected", 0);
  check(at[0] >= 0 && at[0] <= elements, 0, "outside the elements 0 to", elements);
  for (int64_t i = 1; i <= which.size(); ++i) {
    check(at[i] >= at[i - 1], i, "below the one before it,", at[i - 1]);
    check(at[i] <= elements, i, "beyond the elements, of which there are", elements);
    ranges[i - 1] = {at[i - 1], at[i]};
  }
  check(which.end < size() || at.back() == elements, which.size(), "but the elements are",
        elements);
  return ranges;
}

template <class T>
ListReader<T>::ListReader(const h5::File& handle, const std::string& file, const std::string& path,
                          int64_t size)
    : values_(handle, file, path), offsets_(handle, file, path + "_offsets") {
  require(offsets_.size() == size, "{} has {} elements, expected {} (one more than entries)",
          offsets_.name(), offsets_.size() + 1, size + 1);
}

template <class T>
std::vector<std::vector<T>> ListReader<T>::lists(Range which) const {
  const auto ranges = offsets_.ranges(which, values_.size());
  std::vector<std::vector<T>> lists;
  if (ranges.empty()) return lists;
  std::vector<T> all(ranges.back().end - ranges.front().begin);
  values_.read(ranges.front().begin, all);
  for (const Range& r : ranges) {
    const auto start = all.begin() + (r.begin - ranges.front().begin);
    lists.emplace_back(start, start + r.size());
  }
  return lists;
}

template class ListReader<int32_t>;
template class ListReader<uint8_t>;
template class ListReader<double>;

}  // namespace longstraw
