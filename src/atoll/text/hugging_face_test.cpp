// Ids and merges as Hugging Face's library gives them; tools/golden/tokenizer_oracle.py wrote the
// files under testdata/.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "atoll/base/file.h"
#include "atoll/text/bpe_trainer.h"
#include "atoll/text/tokenizer.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl {
namespace {

const std::filesystem::path kTestdata = std::filesystem::path(__FILE__).parent_path() / "testdata";

class HuggingFace : public testing::TestWithParam<std::string> {
 protected:
  const nlohmann::json fixture_ = nlohmann::json::parse(read_file(kTestdata / "ids.json"));
  const Tokenizer tokenizer_ = Tokenizer::load(kTestdata / (GetParam() + ".json"));
};

TEST_P(HuggingFace, GivesTheSameIds) {
  const auto& strings = fixture_["strings"];
  ASSERT_EQ(strings.size(), 200U);
  TokenEncoder encoder(tokenizer_);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const auto text = strings[i].get<std::string>();
    ids.clear();
    encoder.encode(text, ids);
    EXPECT_EQ(ids, fixture_[GetParam()][i].get<std::vector<std::int32_t>>()) << text;
    EXPECT_EQ(tokenizer_.decode(ids), text);
  }
}

TEST_P(HuggingFace, TrainsTheSameVocabularyAndMerges) {
  const auto training = fixture_["training"].get<std::string>();
  const std::string_view view = training;
  const auto expected = text::parse_tokenizer_json(tokenizer_.to_json(), "expected");
  const std::string pattern = expected.pre_tokenizer.front().pattern;
  const Tokenizer trained =
      train_bpe({&view, 1}, {.vocab_size = tokenizer_.vocab_size(), .pattern = pattern});
  const auto actual = text::parse_tokenizer_json(trained.to_json(), "actual");
  EXPECT_EQ(actual.model.vocab, expected.model.vocab);
  EXPECT_EQ(actual.model.merges, expected.model.merges);
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFace, testing::Values("gpt2", "llama3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace atl
