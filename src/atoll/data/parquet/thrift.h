#pragma once

// Thrift's compact protocol, read: what Parquet's headers are written in. Source: Apache Thrift,
// "Thrift compact protocol encoding".

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace atl::data {

/// The types of fields and elements, as the protocol numbers them.
enum class ThriftType : std::uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

/// Reads values from front to back. Throws std::runtime_error where the bytes end too soon, nest
/// too deep or have another type than is asked for.
class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  /// Reads a struct: calls field(number, type) for each field, which reads or skips its value.
  template <typename Field>
  void read_struct(Field&& field) {
    const Nesting nesting(*this);
    std::int64_t number = 0;
    for (;;) {
      const std::uint8_t head = byte();
      const auto type = static_cast<ThriftType>(head & 15);
      if (type == ThriftType::kStop) return;
      number = (head >> 4) != 0 ? number + (head >> 4) : zigzag();
      field(number, type);
    }
  }

  /// Reads a list: calls element(type) for each, which reads or skips it.
  template <typename Element>
  void read_list(ThriftType type, Element&& element) {
    expect(type == ThriftType::kList || type == ThriftType::kSet);
    const Nesting nesting(*this);
    const std::uint8_t head = byte();
    const auto inner = static_cast<ThriftType>(head & 15);
    std::uint64_t size = head >> 4;
    if (size == 15) size = varint();
    expect(size <= bytes_.size());  // each takes a byte at least
    for (std::uint64_t i = 0; i < size; ++i) element(inner);
  }

  std::int64_t integer(ThriftType type);
  std::int32_t integer32(ThriftType type);
  /// The value of a field, which its type is.
  static bool boolean(ThriftType type);
  std::string_view binary(ThriftType type);
  void expect_struct(ThriftType type) { expect(type == ThriftType::kStruct); }
  /// Reads past a value. `is_element`: of a list, where a boolean takes a byte.
  void skip(ThriftType type, bool is_element = false);
  /// Bytes that are left.
  std::string_view rest() const { return bytes_; }

 private:
  // Counts how deep values are within each other.
  class Nesting {
   public:
    explicit Nesting(ThriftReader& reader) : reader_(reader) {
      constexpr int kDeepest = 32;
      if (++reader_.depth_ > kDeepest) throw std::runtime_error("its headers nest too deep");
    }
    ~Nesting() { --reader_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ThriftReader& reader_;
  };

  static void expect(bool holds) {
    if (!holds) throw std::runtime_error("a header is damaged");
  }
  std::uint8_t byte();
  std::uint64_t varint();
  std::int64_t zigzag();

  std::string_view bytes_;
  int depth_ = 0;
};

}  // namespace atl::data
