// What holds for every text, tried on texts that RapidCheck makes and shrinks.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "atoll/text/new_tokenizers.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer.h"

namespace atl {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& tokenizer(const std::string& kind) {
  static std::map<std::string, Tokenizer> all;
  auto found = all.find(kind);
  if (found == all.end()) {
    found = all.emplace(kind, Tokenizer::load(text::testing::testdata() / (kind + ".json"))).first;
  }
  return found->second;
}

// Bytes among which there are words, spaces, and the pieces of characters and special tokens.
rc::Gen<std::string> any_text() {
  const auto part = rc::gen::weightedOneOf<std::string>(
      {{3, rc::gen::arbitrary<std::string>()},
       {3, rc::gen::element<std::string>("the", " and", "  ", "\n", "é", "😀", "e\u0301", "中文",
                                         "123", "'s", "<|endoftext|>", "<|endof", "text|>")},
       {1, rc::gen::element<std::string>("\xC3", "\xE4\xB8", "\xFF", "\xF0\x9F")}});
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(part),
                      [](const std::vector<std::string>& parts) {
                        std::string text;
                        for (const std::string& piece : parts) text += piece;
                        return text;
                      });
}

const std::vector<std::string>& byte_complete() {
  static const std::vector<std::string> kinds = {"gpt2", "llama3", "smollm2", "tekken", "byte"};
  return kinds;
}

RC_GTEST_PROP(AnyText, DecodesToItself, ()) {
  const std::string text = *any_text();
  const bool parse = *rc::gen::arbitrary<bool>();
  for (const std::string& kind : byte_complete()) {
    const Tokenizer& t = tokenizer(kind);
    RC_ASSERT(t.decode(t.encode(text, {.parse_special = parse})) == text);
  }
}

RC_GTEST_PROP(AnyText, HasIdsThatDoNotDependOnWhatWasEncodedBefore, ()) {
  const std::string text = *any_text();
  for (const char* kind : {"gpt2", "qwen2", "llama2", "metaspace"}) {
    static std::map<std::string, TokenEncoder> encoders;  // they have seen all texts before
    auto encoder = encoders.find(kind);
    if (encoder == encoders.end()) {
      encoder = encoders.emplace(kind, TokenEncoder(tokenizer(kind))).first;
    }
    Ids ids;
    encoder->second.encode(text, ids);
    RC_ASSERT(ids == tokenizer(kind).encode(text));
  }
}

RC_GTEST_PROP(AnyText, IsCutAtSpecialTokens, ()) {
  const std::string left = *any_text();
  const std::string right = *any_text();
  for (const char* kind : {"gpt2", "llama3", "qwen2", "byte"}) {
    const Tokenizer& t = tokenizer(kind);
    Ids expected = t.encode(left);
    expected.push_back(*t.end_of_text());
    const Ids after = t.encode(right);
    expected.insert(expected.end(), after.begin(), after.end());
    RC_ASSERT(t.encode(left + "<|endoftext|>" + right) == expected);
  }
}

}  // namespace
}  // namespace atl
