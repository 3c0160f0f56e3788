#pragma once

// The protocol buffer wire format, read without trust: nothing is believed that was not checked.

#include <cstdint>
#include <string>
#include <string_view>

namespace atl::text {

/// Walks the fields of one message. Every number from the file is checked against the bytes there
/// are; groups, which nothing has used for a decade, count as damage.
class WireReader {
 public:
  /// `where` names the message in errors: "m.model: pieces[3]".
  WireReader(std::string_view message, std::string where)
      : rest_(message), where_(std::move(where)) {}

  /// Moves to the next field; false at the end. Throws Error(kDamaged) for a malformed one.
  bool next();
  /// The number of the field that next() found.
  std::uint32_t field() const { return field_; }

  /// The value of the field, read as what its number means. Throw Error(kDamaged) when the field
  /// has another wire type.
  std::string_view bytes() const;
  std::uint64_t varint() const;
  bool flag() const { return varint() != 0; }
  float float32() const;

  const std::string& where() const { return where_; }
  [[noreturn]] void damaged(std::string_view what) const;

 private:
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  std::uint64_t take_varint();
  std::string_view take(std::uint64_t size);
  void expect(Wire wire) const;

  std::string_view rest_;
  std::string where_;
  std::uint32_t field_ = 0;
  Wire wire_ = Wire::kVarint;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace atl::text
