// Ids, text and merges as Hugging Face's library gives them; tools/golden/tokenizer_oracle.py wrote
// the files under testdata/.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/testing.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/tokenizer_spec.h"
#include "atoll/text/utf8.h"

namespace atl {
namespace {

using text::testing::testdata;
using Ids = std::vector<std::int32_t>;

constexpr std::size_t kNumStrings = 5000;
constexpr std::size_t kBlock = 50;

bool keeps_byte_tokens(std::string_view kind) {
  return kind == "llama2" || kind == "mistral" || kind == "gemma" || kind == "unigram_bytes";
}

// Tokenizers that give back every byte: no normalizer, a token for each byte.
bool keeps_every_byte(std::string_view kind) {
  return kind == "gpt2" || kind == "llama3" || kind == "smollm2" || kind == "tekken" ||
         kind == "byte";
}

class HuggingFace : public testing::TestWithParam<std::string> {
 protected:
  static const std::vector<std::string>& strings() {
    static const auto strings = text::testing::awkward_strings(kNumStrings, 1);
    return strings;
  }
  // The character tokenizer refuses unknown characters, which the library drops.
  std::string known(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const std::string_view c = text.substr(0, text::utf8_step(text).size);
      if (tokenizer_.id_of(c)) out += c;
      text.remove_prefix(c.size());
    }
    return out;
  }

  const Tokenizer tokenizer_ = Tokenizer::load(testdata() / (GetParam() + ".json"));
};

TEST_P(HuggingFace, GivesTheSameIdsAndTheSameText) {
  const auto fixture = nlohmann::json::parse(read_file(testdata() / "hashes.json"))[GetParam()];
  ASSERT_EQ(fixture["ids"].size(), kNumStrings / kBlock);
  TokenEncoder encoder(tokenizer_);
  Ids ids;
  for (std::size_t block = 0; block < kNumStrings / kBlock; ++block) {
    text::testing::BlockHash id_hash;
    text::testing::BlockHash text_hash;
    for (std::size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
      std::string text = text::testing::lossy(strings()[i]);
      if (GetParam() == "char") text = known(text);
      ids.clear();
      encoder.encode(text, ids, {.add_special = true});
      id_hash.add(text::testing::id_bytes(ids));
      text_hash.add(tokenizer_.decode(ids));
    }
    // awkward_strings.py shows a block's strings and ids.
    EXPECT_EQ(id_hash.digest(), fixture["ids"][block]) << "strings from " << block * kBlock;
    EXPECT_EQ(text_hash.digest(), fixture["texts"][block]) << "strings from " << block * kBlock;
  }
}

TEST_P(HuggingFace, DecodingGivesBackWhatEncodingTook) {
  TokenEncoder encoder(tokenizer_);
  Ids ids;
  for (const std::string& raw : strings()) {
    if (GetParam() == "char") break;  // see the other test
    ids.clear();
    encoder.encode(raw, ids);
    ASSERT_EQ(ids, tokenizer_.encode(raw));  // whatever the encoder has seen before
    const std::string text = tokenizer_.decode(ids);
    if (keeps_every_byte(GetParam())) {
      ASSERT_EQ(text, raw);
    }
    StreamDecoder stream(tokenizer_);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    // One byte that is wrong spoils a run of byte tokens; see StreamDecoder.
    if (!keeps_byte_tokens(GetParam()) || text::testing::lossy(text) == text) {
      ASSERT_EQ(streamed, text::testing::lossy(text));
    }
    ASSERT_EQ(streamed, text::testing::lossy(streamed));
  }
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFace,
                         testing::Values("gpt2", "llama3", "qwen2", "smollm2", "tekken", "splits",
                                         "llama2", "mistral", "gemma", "metaspace", "unk_each",
                                         "byte", "char", "roberta", "old_metaspace", "bert",
                                         "word_piece", "word_level", "unigram", "unigram_bytes",
                                         "clip", "prefix_bpe", "byte_first", "byte_normalizer",
                                         "byte_words", "scripts", "word_ends", "ctc",
                                         "token_steps"),
                         [](const auto& info) { return info.param; });

// Vocabularies converted from SentencePiece keep every byte, but U+2581 becomes a space, and of a
// space at the start of the text only "llama2" and "gemma" know whether it was there.
TEST(HuggingFaceByteFallback, KeepsBytesThatAreNotUtf8) {
  for (const std::string kind : {"llama2", "mistral", "gemma"}) {
    const Tokenizer tokenizer = Tokenizer::load(testdata() / (kind + ".json"));
    int num_checked = 0;
    for (const std::string& raw : text::testing::awkward_strings(kNumStrings, 1)) {
      if (raw.find("▁") != std::string::npos) continue;
      if (kind == "mistral" && raw.starts_with(' ')) continue;
      const auto ids = tokenizer.encode(raw, {.parse_special = false});
      ASSERT_EQ(tokenizer.decode(ids), raw) << kind;
      ++num_checked;
    }
    EXPECT_GT(num_checked, 4000);
  }
}

TEST(HuggingFaceTrainer, TrainsTheSameVocabularyAndMerges) {
  const std::string training = read_file(testdata() / "training.txt");
  const std::string_view view = training;
  for (const char* kind : {"gpt2", "llama3"}) {
    const auto expected = text::parse_tokenizer_json(
        read_file(testdata() / (std::string(kind) + ".json")), "expected");
    const Tokenizer trained =
        train_bpe({&view, 1}, {.vocab_size = static_cast<std::int32_t>(expected.model.vocab.size()),
                               .pattern = expected.pre_tokenizer.front().pattern});
    const auto actual = text::parse_tokenizer_json(trained.to_json(), "actual");
    EXPECT_EQ(actual.model.vocab, expected.model.vocab);
    EXPECT_EQ(actual.model.merges, expected.model.merges);
  }
}

TEST(HuggingFaceNew, TheFixturesAreWhatIsMade) {
  const std::string training = read_file(testdata() / "training.txt");
  const std::string_view view = training;
  EXPECT_EQ(make_byte_tokenizer().to_json(), read_file(testdata() / "byte.json"));
  EXPECT_EQ(make_char_tokenizer({&view, 1}).to_json(), read_file(testdata() / "char.json"));
}

}  // namespace
}  // namespace atl
