#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// What each id stands for: byte-level tokens spell bytes, added tokens stand for themselves. (The
/// Hugging Face library reads an added token's content as byte-level spelling when it can, so an
/// added "é" does not decode to "é" there; ids are not concerned.)
class Decoder {
 public:
  /// Throws Error(kDamaged), naming `origin`, for ids that are negative, huge or used twice.
  Decoder(const TokenizerSpec& spec, std::string_view origin);

  /// One more than the highest id.
  std::int32_t vocab_size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Whether the vocabulary has this id.
  bool exists(std::int32_t id) const { return id >= 0 && id < vocab_size() && tokens_[id].exists; }
  /// The bytes of an id. Throws Error(kUser) for one that the vocabulary does not have.
  std::string_view bytes(std::int32_t id) const;
  /// True for special added tokens; false for any id that does not exist.
  bool is_special(std::int32_t id) const;
  /// The id of a token as the file spells it.
  std::optional<std::int32_t> id_of(std::string_view token) const;

 private:
  struct Token {
    std::string bytes;
    bool exists = false;
    bool special = false;
  };
  void add(std::string_view token, std::int32_t id, std::string bytes, std::string_view origin);

  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace atl::text
