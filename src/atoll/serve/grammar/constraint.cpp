#include "atoll/serve/grammar/constraint.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/json.h"
#include "atoll/serve/grammar/builder.h"
#include "atoll/serve/grammar/gbnf.h"
#include "atoll/serve/grammar/json_values.h"
#include "atoll/serve/grammar/lowering.h"
#include "atoll/serve/grammar/regex.h"
#include "atoll/serve/grammar/schema.h"
#include "atoll/serve/grammar/tool_call.h"

namespace atl::serve {

namespace {

// Of a request's text: larger ones would keep other requests waiting.
constexpr std::size_t kMaxTextBytes = std::size_t{512} << 10;

grammar::Grammar choice_grammar(const std::string& text) {
  constexpr std::size_t kMaxChoices = 10000;
  const nlohmann::json json = parse_json(text, "choice", {.refusal = ErrorKind::kUser});
  if (!json.is_array() || json.empty() || json.size() > kMaxChoices) {
    throw user_error("choice: give a list of 1 to {} texts", kMaxChoices);
  }
  std::vector<std::string> texts;
  for (const auto& choice : json) {
    if (!choice.is_string()) throw user_error("choice: {} is not a text", texts.size());
    texts.push_back(choice.get<std::string>());
  }
  grammar::GrammarBuilder builder("choice");
  return grammar::build_grammar(builder, builder.one_of(std::move(texts)));
}

grammar::Grammar grammar_of(const FormatRequest& request) {
  if (request.text.size() > kMaxTextBytes) {
    throw user_error("a form of {} bytes; {} are the most", request.text.size(), kMaxTextBytes);
  }
  switch (request.kind) {
    case FormatRequest::kJsonObject:
      return grammar::json_object_grammar();
    case FormatRequest::kJsonSchema:
      return grammar::schema_grammar(request.text);
    case FormatRequest::kRegex:
      return grammar::regex_grammar(request.text);
    case FormatRequest::kGrammar:
      return grammar::gbnf_grammar(request.text);
    case FormatRequest::kChoice:
      return choice_grammar(request.text);
    case FormatRequest::kToolCall:
      return grammar::tool_call_grammar(request.text);
  }
  ATOLL_CHECK(false, "no kind {}", static_cast<int>(request.kind));
}

}  // namespace

GrammarCache::GrammarCache(const Tokenizer& tokenizer, std::size_t max_grammars,
                           std::size_t max_bytes)
    : vocabulary_(std::make_shared<const grammar::Vocabulary>(tokenizer)),
      max_grammars_(max_grammars),
      max_bytes_(max_bytes) {}

bool GrammarCache::is_full() const {
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.masks->bytes();
  return entries_.size() > max_grammars_ || bytes > max_bytes_;
}

std::shared_ptr<grammar::SharedMasks> GrammarCache::masks(const FormatRequest& request) {
  std::string key(1, static_cast<char>('0' + request.kind));
  if (request.kind != FormatRequest::kJsonObject) key += request.text;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->masks;
    }
  }
  // Without the lock: two threads may make the same grammar, and the later one's is dropped.
  auto made = std::make_shared<grammar::SharedMasks>(
      std::make_shared<const grammar::Grammar>(grammar_of(request)), vocabulary_);
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->masks;
  entries_.push_front({key, made});
  by_key_.emplace(std::move(key), entries_.begin());
  while (entries_.size() > 1 && is_full()) {
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return made;
}

std::unique_ptr<TokenConstraint> make_constraint(const FormatRequest& request, GrammarCache& cache,
                                                 std::span<const std::int32_t> end_tokens) {
  return std::make_unique<grammar::GrammarConstraint>(
      cache.masks(request), std::vector<std::int32_t>(end_tokens.begin(), end_tokens.end()));
}

}  // namespace atl::serve
