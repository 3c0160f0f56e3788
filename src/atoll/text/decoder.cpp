#include "atoll/text/decoder.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"

namespace atl::text {

namespace {

// Far above any real vocabulary; a higher id is damage, not a reason to allocate a huge table.
constexpr std::int32_t kMaxId = (1 << 24) - 1;

}  // namespace

Decoder::Decoder(const TokenizerSpec& spec, std::string_view origin) {
  for (const auto& [token, id] : spec.model.vocab) {
    auto bytes = from_byte_level(token);
    add(token, id, bytes ? *std::move(bytes) : token, origin);
  }
  for (const AddedToken& token : spec.added_tokens) {
    const auto known = ids_.find(token.content);
    if (known == ids_.end()) {
      add(token.content, token.id, token.content, origin);
    } else if (known->second != token.id) {
      throw damaged_error("{}: added_tokens gives \"{}\" the id {}, model.vocab the id {}", origin,
                          token.content, token.id, known->second);
    }
    tokens_[token.id].bytes = token.content;
    tokens_[token.id].special = token.special;
  }
}

void Decoder::add(std::string_view token, std::int32_t id, std::string bytes,
                  std::string_view origin) {
  if (id < 0 || id > kMaxId) {
    throw damaged_error("{}: token \"{}\" has the id {}, outside 0 to {}", origin, token, id,
                        kMaxId);
  }
  if (static_cast<std::size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  if (tokens_[id].exists) {
    throw damaged_error("{}: tokens \"{}\" and another share the id {}", origin, token, id);
  }
  tokens_[id] = {std::move(bytes), true, false};
  ids_.emplace(token, id);
}

std::string_view Decoder::bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw user_error("token id {} is outside the vocabulary of {} tokens", id, vocab_size());
  }
  if (!tokens_[id].exists) throw user_error("token id {} is a gap in the vocabulary", id);
  return tokens_[id].bytes;
}

bool Decoder::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].special;
}

std::optional<std::int32_t> Decoder::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace atl::text
