#pragma once

// FlatBuffers, read with every offset checked: what Arrow's messages are written in. Source:
// FlatBuffers, "Internals".

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace atl::data {

class FlatVector;

/// A table: fields by number, each of which may be absent. Throws std::runtime_error where an
/// offset leaves the bytes.
class FlatTable {
 public:
  /// The table that `bytes` are about.
  static FlatTable root(std::string_view bytes) {
    FlatTable table(bytes, 0);
    table.move_to(table.forward(0));
    return table;
  }

  bool has(int field) const { return at(field) != 0; }
  /// A number, or what it is where it is absent.
  template <typename Number>
  Number number(int field, Number otherwise) const {
    const std::size_t place = at(field);
    return place == 0 ? otherwise : read<Number>(place);
  }
  /// A text; empty where it is absent.
  std::string_view text(int field) const;
  /// A table that is there.
  FlatTable table(int field) const;
  /// A vector, of `width` bytes an element; empty where it is absent.
  FlatVector vector(int field, std::size_t width) const;

 private:
  friend class FlatVector;
  FlatTable(std::string_view bytes, std::size_t place) : bytes_(bytes), place_(place) {}

  template <typename Number>
  Number read(std::size_t place) const {
    if (place > bytes_.size() || bytes_.size() - place < sizeof(Number)) fail();
    Number value;
    std::memcpy(&value, bytes_.data() + place, sizeof(value));
    return value;
  }
  [[noreturn]] static void fail() { throw std::runtime_error("a message points behind its end"); }
  // Where the offset at `place` points to.
  std::size_t forward(std::size_t place) const { return place + read<std::uint32_t>(place); }
  void move_to(std::size_t place);
  // Where a field is; 0 for none.
  std::size_t at(int field) const;

  std::string_view bytes_;
  std::size_t place_;
  std::size_t fields_ = 0;  // where the offsets of fields are
  std::size_t num_fields_ = 0;
};

/// A vector of numbers, structs or tables.
class FlatVector {
 public:
  std::size_t size() const { return size_; }
  /// A number of an element, `offset` bytes from its begin.
  template <typename Number>
  Number number(std::size_t i, std::size_t offset = 0) const {
    return table_.read<Number>(place_ + i * width_ + offset);
  }
  /// An element that is a table.
  FlatTable table(std::size_t i) const {
    FlatTable found(table_.bytes_, 0);
    found.move_to(table_.forward(place_ + i * width_));
    return found;
  }

 private:
  friend class FlatTable;
  FlatVector(const FlatTable& table, std::size_t place, std::size_t size, std::size_t width)
      : table_(table), place_(place), size_(size), width_(width) {}

  FlatTable table_;
  std::size_t place_;
  std::size_t size_;
  std::size_t width_;
};

}  // namespace atl::data
