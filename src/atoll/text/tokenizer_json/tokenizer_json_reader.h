#pragma once

// What the parsers of a tokenizer.json share; internal to them, which is why a JSON type may stand
// in this header. Every key is either understood or refused by name: a key that is skipped would be
// a tokenizer that is subtly not the one in the file. What Hugging Face's library reads and what
// changes no id is read past: `truncation`, `padding`, `dropout`, `trim_offsets`.

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

using Json = nlohmann::json;

/// The "type" of an object, else what kind of value it is.
std::string type_of(const Json& value);

/// Takes values out of a file and names the place of what is wrong with them: Error(kDamaged) for
/// what is malformed, Error(kUser) for what is not supported.
class JsonReader {
 public:
  explicit JsonReader(std::string_view origin) : origin_(origin) {}

 protected:
  const std::string& origin() const { return origin_; }
  [[noreturn]] void damaged(std::string_view where, std::string_view what) const;
  [[noreturn]] void refuse(std::string_view where, std::string_view what,
                           std::string_view advice) const;
  // An object with no other keys than these, but for what is null, false or empty text.
  void object(const Json& value, std::string_view where,
              std::initializer_list<std::string_view> known) const;
  const Json& need(const Json& value, const char* key, std::string_view where) const;
  const Json& array(const Json& value, std::string_view where) const;
  std::string text(const Json& value, std::string_view where) const;
  // `otherwise` for null, too.
  bool flag(const Json& value, const char* key, bool otherwise, std::string_view where) const;
  std::int32_t id(const Json& value, std::string_view where) const;
  // The "pattern" of a step: a regular expression or (true) literal text.
  std::pair<std::string, bool> pattern(const Json& json, const std::string& where) const;
  // What Metaspace writes for a space: one character.
  std::string replacement(const Json& json, const std::string& where) const;
  PreTokenizerStep::Prepend prepend_scheme(const Json& json, const std::string& where) const;

 private:
  std::string origin_;
};

/// Reads all of the model but vocabulary and merges.
void parse_model(const Json& json, const std::string& origin, TokenizerSpec& spec);

/// Reads the three parts of a tokenizer.json that are chains of steps; `origin` is its path.
void parse_normalizer(const Json& json, const std::string& origin, TokenizerSpec& spec);
/// Sets also whether the model is byte-level.
void parse_pre_tokenizer(const Json& json, const std::string& origin, TokenizerSpec& spec);
/// After parse_pre_tokenizer.
void parse_decoder(const Json& json, const std::string& origin, TokenizerSpec& spec);

}  // namespace atl::text
