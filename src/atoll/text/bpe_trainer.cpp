#include "atoll/text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/pair_map.h"
#include "atoll/text/pre_tokenizer.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl {

namespace {

using text::IdPair;

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
using WordCounts = std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>>;

WordCounts count_words(std::span<const std::string_view> texts,
                       const text::PreTokenizer& pre_tokenizer) {
  WordCounts counts;
  text::RegexMatcher matcher;
  for (const std::string_view piece : texts) {
    pre_tokenizer.for_each_word(piece, matcher, [&](std::string_view word) {
      auto found = counts.find(word);
      if (found == counts.end()) found = counts.emplace(word, 0).first;
      ++found->second;
    });
  }
  return counts;
}

// A distinct word: how it stands in symbols now, and how often the text has it.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count;
};

// A pair that may be merged next, and the words that had it when it was queued.
struct Candidate {
  std::int64_t count;
  IdPair pair;
  std::vector<std::uint32_t> words;

  // What a priority queue needs: true when this one comes after the other.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Trainer {
 public:
  Trainer(const BpeTrainerOptions& options, const WordCounts& counts) : options_(options) {
    for (const std::string& token : options.special_tokens) add_token(token);
    // In order of the characters that spell the bytes, as Hugging Face numbers its alphabet.
    std::array<int, 256> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = byte;
    std::sort(bytes.begin(), bytes.end(), [](int a, int b) {
      return text::byte_to_char(static_cast<unsigned char>(a)) <
             text::byte_to_char(static_cast<unsigned char>(b));
    });
    for (const int byte : bytes) {
      byte_ids_[byte] = add_token(text::to_byte_level(std::string(1, static_cast<char>(byte))));
    }
    words_.reserve(counts.size());
    for (const auto& [bytes_of_word, count] : counts) {
      Word word{{}, count};
      for (const char byte : bytes_of_word) {
        word.symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      }
      words_.push_back(std::move(word));
    }
  }

  void run() {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        change({symbols[i], symbols[i + 1]}, +1, w);
      }
    }
    queue_changed();
    while (static_cast<std::int32_t>(tokens_.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate top = pop();
      const std::int64_t count = pairs_[top.pair].count;
      if (top.count != count) {  // merges since have taken occurrences away
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (count < std::max<std::int64_t>(1, options_.min_frequency)) break;
      merge(top);
    }
  }

  text::TokenizerSpec spec() const {
    text::TokenizerSpec spec;
    for (std::size_t i = 0; i < options_.special_tokens.size(); ++i) {
      spec.added_tokens.push_back({.id = static_cast<std::int32_t>(i),
                                   .content = options_.special_tokens[i],
                                   .special = true});
    }
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      spec.model.vocab.emplace_back(tokens_[id], static_cast<std::int32_t>(id));
    }
    // Two ways to spell one token can bring a pair up a second time; the last one counts.
    text::PairMap<std::size_t> last(merges_.size());
    for (std::size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      if (last[merges_[i]] != i) continue;
      spec.model.merges.emplace_back(tokens_[merges_[i].left], tokens_[merges_[i].right]);
    }
    return spec;
  }

 private:
  struct PairState {
    std::int64_t count = 0;
    std::int64_t changed = -1;  // its place in changed_, or -1
  };
  struct Changed {
    IdPair pair;
    std::vector<std::uint32_t> words;
  };

  std::int32_t add_token(const std::string& token) {
    const auto [found, is_new] =
        token_ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  // Moves the top out of the queue, which std::priority_queue offers only as a const reference.
  Candidate pop() {
    Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
    queue_.pop();
    return top;
  }

  // `pair` occurs `by` times more in word `w`; one that gained is queued once the merge is done.
  void change(IdPair pair, int by, std::uint32_t w) {
    PairState& state = pairs_[pair];
    state.count += by * words_[w].count;
    if (by < 0) return;
    if (state.changed < 0) {
      state.changed = static_cast<std::int64_t>(changed_.size());
      changed_.push_back({pair, {}});
    }
    auto& words = changed_[state.changed].words;
    if (words.empty() || words.back() != w) words.push_back(w);
  }

  void queue_changed() {
    for (Changed& changed : changed_) {
      PairState& state = pairs_[changed.pair];
      state.changed = -1;
      if (state.count > 0) queue_.push({state.count, changed.pair, std::move(changed.words)});
    }
    changed_.clear();
  }

  void merge(const Candidate& best) {
    const std::int32_t id = add_token(tokens_[best.pair.left] + tokens_[best.pair.right]);
    merges_.push_back(best.pair);
    for (const std::uint32_t w : best.words) merge_in(w, best.pair, id);
    queue_changed();
  }

  // The count of the merged pair itself is left as it is: it is not asked for again. (Hugging Face
  // leaves it too, which matters when a second spelling of a token brings the pair back.)
  void merge_in(std::uint32_t w, IdPair pair, std::int32_t id) {
    auto& symbols = words_[w].symbols;
    std::size_t out = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i, ++out) {
      if (i + 1 == symbols.size() || symbols[i] != pair.left || symbols[i + 1] != pair.right) {
        symbols[out] = symbols[i];
        continue;
      }
      if (out > 0) {
        change({symbols[out - 1], pair.left}, -1, w);
        change({symbols[out - 1], id}, +1, w);
      }
      if (i + 2 < symbols.size()) {
        change({pair.right, symbols[i + 2]}, -1, w);
        change({id, symbols[i + 2]}, +1, w);
      }
      symbols[out] = id;
      ++i;
    }
    symbols.resize(out);
  }

  const BpeTrainerOptions& options_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::string> tokens_;  // by id, in byte-level spelling
  std::unordered_map<std::string, std::int32_t> token_ids_;
  std::vector<Word> words_;
  text::PairMap<PairState> pairs_;
  std::vector<Changed> changed_;
  std::priority_queue<Candidate> queue_;
  std::vector<IdPair> merges_;
};

void validate(const BpeTrainerOptions& options) {
  const auto least = static_cast<std::int64_t>(256 + options.special_tokens.size());
  if (options.vocab_size < least) {
    throw user_error(
        "vocab_size is {}: byte-level BPE needs at least {} (256 bytes and {} special tokens)",
        options.vocab_size, least, options.special_tokens.size());
  }
  for (std::size_t i = 0; i < options.special_tokens.size(); ++i) {
    const std::string& token = options.special_tokens[i];
    if (token.empty()) throw user_error("special_tokens[{}] is empty", i);
    if (text::valid_utf8_prefix(token) != token.size()) {
      throw user_error("special_tokens[{}] is not valid UTF-8", i);
    }
    if (text::from_byte_level(token).value_or("").size() == 1) {
      throw user_error("special_tokens[{}], \"{}\", is the spelling of a byte", i, token);
    }
    if (std::count(options.special_tokens.begin(), options.special_tokens.end(), token) > 1) {
      throw user_error("special_tokens has \"{}\" twice", token);
    }
  }
}

}  // namespace

Tokenizer train_bpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options) {
  validate(options);
  const std::string pattern =
      options.pattern.empty() ? std::string(text::kGpt2Pattern) : options.pattern;
  const std::vector<text::PreTokenizerStep> steps = {{.pattern = pattern}};
  const WordCounts counts =
      count_words(texts, text::PreTokenizer(steps, "the pattern to train with"));
  Trainer trainer(options, counts);
  trainer.run();
  text::TokenizerSpec spec = trainer.spec();
  spec.pre_tokenizer = steps;
  return Tokenizer::from_spec(spec);
}

}  // namespace atl
