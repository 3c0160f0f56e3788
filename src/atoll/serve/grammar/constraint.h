#pragma once

// Constrained generation: from what a client asks for to the tokens that may come next.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "atoll/serve/batch/request.h"
#include "atoll/serve/grammar/token_masks.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve {

/// The form that a generated text is to have.
struct FormatRequest {
  enum Kind {
    kJsonObject,  ///< any JSON object; `text` is not looked at
    kJsonSchema,  ///< `text` is a JSON schema
    kRegex,       ///< `text` is a regular expression that the whole text matches
    kGrammar,     ///< `text` is a grammar in GBNF
    kChoice,      ///< `text` is a JSON array of strings, one of which is the text
    kToolCall,    ///< `text` says which tools and how; see tool_call.h
  };
  Kind kind = kJsonObject;
  std::string text;
};

/// The grammars of a tokenizer's texts that were asked for last, and their masks, so that a form
/// that many requests have is read once. Thread-safe.
class GrammarCache {
 public:
  /// Keeps the `max_grammars` used last, fewer when their masks come to more than `max_bytes`.
  explicit GrammarCache(const Tokenizer& tokenizer, std::size_t max_grammars = 64,
                        std::size_t max_bytes = std::size_t{256} << 20);

  /// The masks of a form, made if they are not there. Throws as make_constraint().
  std::shared_ptr<grammar::SharedMasks> masks(const FormatRequest& request);

 private:
  bool is_full() const;

  struct Entry {
    std::string key;
    std::shared_ptr<grammar::SharedMasks> masks;  // shared with the constraints of requests
  };

  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // shared with each grammar's masks
  std::size_t max_grammars_, max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

/// What holds one text to a form. The text may end by one of `end_tokens` (end of text, end of
/// turn); other special tokens never come. Throws Error(kUser) that says what in the request is
/// wrong or is not supported, and where. Takes about a millisecond; a form that would take much
/// longer is refused.
std::unique_ptr<TokenConstraint> make_constraint(const FormatRequest& request, GrammarCache& cache,
                                                 std::span<const std::int32_t> end_tokens);

}  // namespace atl::serve
