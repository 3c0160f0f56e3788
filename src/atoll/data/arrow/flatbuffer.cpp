#include "atoll/data/arrow/flatbuffer.h"

namespace atl::data {

void FlatTable::move_to(std::size_t place) {
  place_ = place;
  const std::int64_t fields =
      static_cast<std::int64_t>(place) - std::int64_t{read<std::int32_t>(place)};
  if (fields < 0) fail();
  constexpr std::size_t kSizes = 4;  // of the list of fields, and of the table
  const auto bytes = read<std::uint16_t>(static_cast<std::size_t>(fields));
  if (bytes < kSizes) fail();
  fields_ = static_cast<std::size_t>(fields) + kSizes;
  num_fields_ = (bytes - kSizes) / 2;
}

std::size_t FlatTable::at(int field) const {
  const auto index = static_cast<std::size_t>(field);
  if (index >= num_fields_) return 0;
  const auto offset = read<std::uint16_t>(fields_ + 2 * index);
  return offset == 0 ? 0 : place_ + offset;
}

std::string_view FlatTable::text(int field) const {
  const std::size_t place = at(field);
  if (place == 0) return "";
  const std::size_t begin = forward(place);
  const auto size = read<std::uint32_t>(begin);
  if (size > bytes_.size() - begin - sizeof(size)) fail();
  return bytes_.substr(begin + sizeof(size), size);
}

FlatTable FlatTable::table(int field) const {
  const std::size_t place = at(field);
  if (place == 0) throw std::runtime_error("a message lacks a field");
  FlatTable found(bytes_, 0);
  found.move_to(forward(place));
  return found;
}

FlatVector FlatTable::vector(int field, std::size_t width) const {
  const std::size_t place = at(field);
  if (place == 0) return {*this, 0, 0, width};
  const std::size_t begin = forward(place);
  const auto size = read<std::uint32_t>(begin);
  if (size > (bytes_.size() - begin - sizeof(size)) / width) fail();
  return {*this, begin + sizeof(size), size, width};
}

}  // namespace atl::data
