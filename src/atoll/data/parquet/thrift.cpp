#include "atoll/data/parquet/thrift.h"

#include <limits>

namespace atl::data {

std::uint8_t ThriftReader::byte() {
  expect(!bytes_.empty());
  const auto value = static_cast<std::uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return value;
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t here = byte();
    value |= std::uint64_t{here & 127U} << shift;
    if ((here & 128) == 0) return value;
  }
  expect(false);
  return 0;
}

std::int64_t ThriftReader::zigzag() {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

std::int64_t ThriftReader::integer(ThriftType type) {
  if (type == ThriftType::kByte) return static_cast<std::int8_t>(byte());
  expect(type == ThriftType::kI16 || type == ThriftType::kI32 || type == ThriftType::kI64);
  return zigzag();
}

std::int32_t ThriftReader::integer32(ThriftType type) {
  const std::int64_t value = integer(type);
  expect(value >= std::numeric_limits<std::int32_t>::min() &&
         value <= std::numeric_limits<std::int32_t>::max());
  return static_cast<std::int32_t>(value);
}

bool ThriftReader::boolean(ThriftType type) {
  expect(type == ThriftType::kTrue || type == ThriftType::kFalse);
  return type == ThriftType::kTrue;
}

std::string_view ThriftReader::binary(ThriftType type) {
  expect(type == ThriftType::kBinary);
  const std::uint64_t size = varint();
  expect(size <= bytes_.size());
  const std::string_view value = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return value;
}

void ThriftReader::skip(ThriftType type, bool is_element) {
  switch (type) {
    case ThriftType::kTrue:
    case ThriftType::kFalse:
      if (is_element) byte();
      return;
    case ThriftType::kByte:
      byte();
      return;
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      varint();
      return;
    case ThriftType::kDouble:
      expect(bytes_.size() >= 8);
      bytes_.remove_prefix(8);
      return;
    case ThriftType::kBinary:
      binary(type);
      return;
    case ThriftType::kList:
    case ThriftType::kSet:
      read_list(type, [this](ThriftType inner) { skip(inner, true); });
      return;
    case ThriftType::kMap: {
      const Nesting nesting(*this);
      const std::uint64_t size = varint();
      if (size == 0) return;
      const std::uint8_t types = byte();
      expect(size <= bytes_.size());
      for (std::uint64_t i = 0; i < size; ++i) {
        skip(static_cast<ThriftType>(types >> 4), true);
        skip(static_cast<ThriftType>(types & 15), true);
      }
      return;
    }
    case ThriftType::kStruct:
      read_struct([this](std::int64_t, ThriftType inner) { skip(inner); });
      return;
    case ThriftType::kStop:
      break;
  }
  expect(false);
}

}  // namespace atl::data
