#include "atoll/text/token_ids.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"

namespace atl::text {

namespace {

using Vocab = std::vector<std::pair<std::string, std::int32_t>>;

// Returns false when a token is there twice.
bool add_all(const Vocab& vocab, TokenIndex& index) {
  std::size_t bytes = 0;
  for (const auto& [token, id] : vocab) bytes += token.size();
  index.reserve(vocab.size(), bytes);
  return std::all_of(vocab.begin(), vocab.end(),
                     [&](const auto& entry) { return index.add(entry.first, entry.second); });
}

Vocab last_of_each(const Vocab& vocab) {
  Vocab kept;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const auto& [token, id] : vocab) {
    const auto [place, is_new] = places.try_emplace(token, kept.size());
    if (is_new) kept.emplace_back(token, id);
    kept[place->second].second = id;
  }
  return kept;
}

std::vector<AddedToken> settle_added(const std::vector<AddedToken>& tokens, const TokenIndex& vocab,
                                     std::string_view origin) {
  std::vector<AddedToken> kept;
  std::unordered_map<std::string_view, std::size_t> places;
  auto next_id = static_cast<std::int32_t>(vocab.size());
  std::size_t num_other = 0;
  std::string example;
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto [place, is_new] = places.try_emplace(token.content, kept.size());
    if (is_new) {
      const auto known = vocab.find(token.content);
      kept.push_back(token);
      kept.back().id = known ? *known : next_id++;
    } else {
      AddedToken& last = kept[place->second];
      const std::int32_t id = last.id;
      const bool special = last.special || token.special;
      last = token;
      last.id = id;
      last.special = special;
    }
    const std::int32_t id = kept[place->second].id;
    if (id == token.id) continue;
    if (num_other++ == 0) {
      example = fmt::format("\"{}\" has the id {} and not {}", token.content, id, token.id);
    }
  }
  if (num_other > 0) {
    log::warning(
        "{}: added_tokens: {}, as Hugging Face's library has it, which takes an added token's id "
        "from the vocabulary, or else the next one behind it ({} of {} tokens)",
        origin, example, num_other, tokens.size());
  }
  return kept;
}

}  // namespace

SettledSpec settle_token_ids(TokenizerSpec spec, std::string_view origin) {
  SettledSpec settled{std::move(spec), {}};
  BpeSpec& model = settled.spec.model;
  if (!add_all(model.vocab, settled.vocab)) {
    if (settled.spec.model_kind == ModelKind::kUnigram) {
      throw damaged_error("{}: model.vocab: a token is there twice; name each once", origin);
    }
    model.vocab = last_of_each(model.vocab);
    settled.vocab = TokenIndex();
    add_all(model.vocab, settled.vocab);
  }
  settled.spec.added_tokens = settle_added(settled.spec.added_tokens, settled.vocab, origin);
  return settled;
}

}  // namespace atl::text
