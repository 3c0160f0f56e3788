#include "atoll/text/sentence_piece/wire_format.h"

#include <bit>

#include "atoll/base/error.h"

namespace atl::text {

bool WireReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t tag = take_varint();
  if (tag >> 3 == 0 || tag >> 3 > (1U << 29) - 1) {
    damaged(fmt::format("{} is no field number", tag >> 3));
  }
  field_ = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      wire_ = Wire::kVarint;
      number_ = take_varint();
      return true;
    case 1:
      wire_ = Wire::kFixed64;
      bytes_ = take(8);
      return true;
    case 2:
      wire_ = Wire::kBytes;
      bytes_ = take(take_varint());
      return true;
    case 5:
      wire_ = Wire::kFixed32;
      bytes_ = take(4);
      return true;
    default:
      damaged(fmt::format("field {} has the unknown wire type {}", field_, tag & 7));
  }
}

std::string_view WireReader::bytes() const {
  expect(Wire::kBytes);
  return bytes_;
}

std::uint64_t WireReader::varint() const {
  expect(Wire::kVarint);
  return number_;
}

float WireReader::float32() const {
  expect(Wire::kFixed32);
  std::uint32_t bits = 0;
  for (int i = 3; i >= 0; --i) bits = (bits << 8) | static_cast<unsigned char>(bytes_[i]);
  return std::bit_cast<float>(bits);
}

void WireReader::damaged(std::string_view what) const {
  throw damaged_error("{}: {}", where_, what);
}

std::uint64_t WireReader::take_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) damaged("the file ends in the middle of a number");
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  damaged("a number of more than 64 bits");
}

std::string_view WireReader::take(std::uint64_t size) {
  if (size > rest_.size()) {
    damaged(fmt::format("field {} claims {} bytes of the {} that are left", field_, size,
                        rest_.size()));
  }
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
  rest_.remove_prefix(taken.size());
  return taken;
}

void WireReader::expect(Wire wire) const {
  if (wire_ != wire) {
    damaged(fmt::format("field {} has the wire type {}, not {}", field_, static_cast<int>(wire_),
                        static_cast<int>(wire)));
  }
}

}  // namespace atl::text
