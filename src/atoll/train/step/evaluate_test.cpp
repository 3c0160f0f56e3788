// How well a model predicts: what the numbers mean where they are odd, and how a run cut its text.

#include "atoll/train/step/evaluate.h"
#include "atoll/train/checkpoint/text_cut.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "atoll/model_dir/sentence_piece_testing.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

using ::testing::HasSubstr;

class EvaluateTest : public TrainerTest {};

TEST(Evaluation, PartsWithoutTextLeaveTheBitsOfTheOthers) {
  const Evaluation special = {.loss = 2.0, .bits_per_byte = std::nan(""), .tokens = 1, .bytes = 0};
  const Evaluation text = {
      .loss = 1.0, .bits_per_byte = 3 / std::numbers::ln2 / 6, .tokens = 3, .bytes = 6};
  const Evaluation both = combine({special, {}, text});
  EXPECT_EQ(both.tokens, 4);
  EXPECT_DOUBLE_EQ(both.loss, 1.25);
  // All nats count, those of special tokens too, as within one text.
  EXPECT_DOUBLE_EQ(both.bits_per_byte, 5 / std::numbers::ln2 / 6);
  EXPECT_TRUE(std::isnan(combine({special, special}).bits_per_byte));
}

TEST_F(EvaluateTest, SpecialTokensAloneHaveNoBitsPerByte) {
  const TrainOutcome outcome = train("run", {"--train.steps=1", "--optim.warmup_steps=0"});
  const Tokenizer tokenizer = model_dir::load_tokenizer(outcome.checkpoint);
  StateOptions options;
  options.model = model_dir::read_model_config(outcome.checkpoint);
  options.context = 8;
  options.training = false;
  const auto device = open_cpu(1);
  Stream stream(*device);
  TrainState state(options);
  state.allocate(*device);
  model_dir::load_parameters(outcome.checkpoint, state.model(), state.store(), device->threads());
  const data::TokenVector source("test", std::vector<std::int32_t>(4, *tokenizer.end_of_text()));
  const Evaluation result = evaluate(state, stream, source, tokenizer);
  EXPECT_EQ(result.tokens, 3);
  EXPECT_EQ(result.bytes, 0);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_TRUE(std::isnan(result.bits_per_byte));
}

TEST_F(EvaluateTest, ACheckpointSaysHowItsRunCutTheText) {
  const TrainOutcome outcome =
      train("run", {"--train.steps=1", "--optim.warmup_steps=0", "--data.packing=documents",
                    "--train.context=24", "--model.max_position_embeddings=48"});
  const auto cut = text_cut_of(outcome.checkpoint);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->context, 24);
  EXPECT_EQ(cut->packing, data::Packing::kDocuments);
  EXPECT_FALSE(text_cut_of(root_));
  auto json = nlohmann::ordered_json::parse(read_file(outcome.checkpoint / "trainer.json"));
  const auto problem = [&](const char* key, const nlohmann::ordered_json& value) {
    auto changed = json;
    changed["settings"][key] = value;
    if (value.is_null()) changed["settings"].erase(key);
    write_file(outcome.checkpoint / "trainer.json", changed.dump());
    try {
      text_cut_of(outcome.checkpoint);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(problem("train.context", "many"), HasSubstr("train.context is many"));
  EXPECT_THAT(problem("train.context", "0"), HasSubstr("train.context is 0"));
  EXPECT_THAT(problem("data.packing", "\"best\""), HasSubstr("data.packing is \"best\""));
  EXPECT_THAT(problem("data.packing", nullptr), HasSubstr("has no data.packing"));
}

TEST_F(EvaluateTest, WhatGoesRoundATextIsThatOfTheTokenizersOwnDirectory) {
  // The corpus has a copy of the tokenizer and no configuration, but says what that one said.
  const std::filesystem::path tokenizer = root_ / "tokenizer";
  std::filesystem::create_directories(tokenizer);
  write_file(tokenizer / "tokenizer.model", model_dir::tiny_sentence_piece());
  const auto prepared = [&](const char* config) {
    write_file(tokenizer / "tokenizer_config.json", config);
    return prepare_corpus({.text = {root_ / "text.txt"},
                           .tokenizer = tokenizer,
                           .chat_template = {},
                           .cache = root_ / "cache"})
        .tokenizer;
  };
  EXPECT_EQ(prepared("{}").tokens_before().size(), 1U);
  EXPECT_TRUE(prepared(R"({"add_bos_token": false})").tokens_before().empty());
  EXPECT_EQ(prepared(R"({"add_eos_token": true})").tokens_after().size(), 1U);
}

}  // namespace
}  // namespace atl::train
