#pragma once

// Fields of JSON objects by the keys that hold them: for the readers of JSONL, here and of tasks.

#include <simdjson.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::data {

/// What the fields that a reader wants are made of. Fields are known by their place in the list.
class FieldMap {
 public:
  /// Pairs of a field's name, for messages, and a key, or a text with keys in braces. Throws
  /// Error(kUser) naming the field whose braces do not match, or that is empty.
  explicit FieldMap(std::vector<std::pair<std::string, std::string>> fields);
  /// Whether a field is made of that key.
  bool reads(std::string_view key) const;

 private:
  friend class FieldValues;
  struct Piece {
    std::string text;                // before the key
    std::optional<std::size_t> key;  // in keys_; none behind the last one
  };
  struct Field {
    std::string spec;
    bool is_template = false;
    std::vector<Piece> pieces;
  };
  std::size_t key_index(std::string_view key);

  std::vector<Field> fields_;
  std::vector<std::string> keys_;
};

/// The fields of one object. Keys that are null count as absent.
class FieldValues {
 public:
  /// `map` must outlive this, and the object's document too.
  explicit FieldValues(const FieldMap& map) : map_(map), values_(map.keys_.size()) {}

  /// Takes a key of the object. False when it was there before.
  bool take(std::string_view key, simdjson::dom::element value);
  /// Whether the field's key, or one of those of its text, is there.
  bool has(std::size_t field) const;
  /// The key that the field is, or the text that it is made of: for messages.
  const std::string& spec(std::size_t field) const { return map_.fields_[field].spec; }
  /// The value of a field that is a key.
  std::optional<simdjson::dom::element> value(std::size_t field) const;
  /// The text of a field: a string, or what a text with keys becomes (of strings and numbers).
  /// Nothing when it is none; `problem` then says why.
  std::optional<std::string> text(std::size_t field, std::string& problem) const;

 private:
  const FieldMap& map_;
  std::vector<std::optional<simdjson::dom::element>> values_;
};

}  // namespace atl::data
