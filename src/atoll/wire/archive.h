#pragma once

// The bytes of messages between our own processes: little-endian, each vector and text with its
// length before it. A type takes part by a function `fields(archive, value)` beside it, which calls
// archive(member) for each member: the same function writes and reads.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "atoll/base/error.h"

namespace atl::wire {

/// Appends values to a text.
class Writer {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void operator()(const std::string& value) {
    (*this)(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(static_cast<std::uint64_t>(values.size()));
    if constexpr (std::is_arithmetic_v<T>) {
      text_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    } else {
      for (const T& value : values) (*this)(value);
    }
  }
  template <typename T>
  requires requires(Writer& writer, T& value) { fields(writer, value); }
  void operator()(const T& value) {
    fields(*this, const_cast<T&>(value));  // fields() changes nothing for a writer
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads them again; throws Error(kDamaged) where there are too few bytes.
class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::string_view text) : text_(text) {}

  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = *take(1) != 0;
    } else {
      std::memcpy(&value, take(sizeof(T)), sizeof(T));
    }
  }
  void operator()(std::string& value) {
    const std::size_t size = length(1);
    value.assign(take(size), size);
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    if constexpr (std::is_arithmetic_v<T>) {
      values.resize(length(sizeof(T)));
      const char* from = take(values.size() * sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), from, values.size() * sizeof(T));
    } else {
      values.clear();
      for (std::size_t left = length(1); left > 0; --left) (*this)(values.emplace_back());
    }
  }
  template <typename T>
  requires requires(Reader& reader, T& value) { fields(reader, value); }
  void operator()(T& value) { fields(*this, value); }
  bool is_at_end() const { return text_.empty(); }
  /// Throws unless all bytes were read.
  void end() const {
    if (!text_.empty()) throw damaged_error("{} bytes too many in a message", text_.size());
  }

 private:
  const char* take(std::size_t size) {
    if (size > text_.size()) {
      throw damaged_error("a message ends {} bytes early", size - text_.size());
    }
    const char* at = text_.data();
    text_.remove_prefix(size);
    return at;
  }
  // Of what follows; each item has at least so many bytes.
  std::size_t length(std::size_t item) {
    std::uint64_t count = 0;
    (*this)(count);
    if (count > text_.size() / item) throw damaged_error("a message says {} items", count);
    return static_cast<std::size_t>(count);
  }

  std::string_view text_;
};

}  // namespace atl::wire
