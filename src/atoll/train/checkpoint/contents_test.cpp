// What a checkpoint keeps of a run, and which model an argument means.

#include "atoll/train/checkpoint/contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/testing.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Bench;
using ::testing::HasSubstr;

StateOptions options(const std::string& family) {
  return {.model = testing::tiny_model(family), .micro_batch = 4, .context = 16};
}

const Position kPosition = {.step = 7,
                            .tokens = 1234567890123,
                            .corpus_hash = "00ff",
                            .settings = {{"train.steps", "100"}, {"run.dir", "\"a \\\"b\\\"\""}}};

std::string error_of(const std::function<void()>& fn, ErrorKind kind) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

class Checkpointing : public ::testing::TestWithParam<const char*> {
 protected:
  fs::path save(Bench& bench, const Position& position = kPosition,
                const CarriedFiles& carried = {{"tokenizer.json", "{\"a\":1}"}}) {
    return save_checkpoint(root(), bench.state, position, carried);
  }
  fs::path root() const { return directory_ / "checkpoints"; }

  ckpt::testing::TemporaryDirectory directory_{"checkpointing"};
};

INSTANTIATE_TEST_SUITE_P(Families, Checkpointing, ::testing::Values("llama", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Checkpointing, LoadsBitForBitWhatWasSaved) {
  Bench bench(options(GetParam()));
  for (std::int64_t step = 0; step < 2; ++step) bench.step({.step = step, .lr = 0.01});
  const fs::path path = save(bench);
  EXPECT_EQ(path.filename(), "step-00000007");

  Bench other(options(GetParam()));
  ASSERT_NE(other.values(), bench.values());
  const Position position =
      load_checkpoint(ckpt::verify_checkpoint(path), other.state, other.run.device->threads());
  EXPECT_EQ(other.values(), bench.values());
  EXPECT_EQ(other.moments(), bench.moments());
  EXPECT_EQ(position.step, kPosition.step);
  EXPECT_EQ(position.tokens, kPosition.tokens);
  EXPECT_EQ(position.corpus_hash, kPosition.corpus_hash);
  EXPECT_EQ(position.settings, kPosition.settings);
  // And both go on alike.
  EXPECT_EQ(bench.step({.step = 2, .lr = 0.01}).loss, other.step({.step = 2, .lr = 0.01}).loss);
  EXPECT_EQ(other.values(), bench.values());
}

TEST_P(Checkpointing, IsAHuggingFaceDirectory) {
  Bench bench(options(GetParam()));
  const fs::path path = save(bench);
  const ckpt::HfDirectory directory(path);
  EXPECT_EQ(nn::parse_config(directory.config_json(), "x").family, GetParam());
  EXPECT_EQ(directory.read_text("tokenizer.json"), "{\"a\":1}");
  const ckpt::SafetensorsFile model(path / "model.safetensors");
  EXPECT_EQ(model.metadata().at("format"), "pt") << "transformers asks for it";
  // One tensor of each moment for each of the model's, under its name.
  const ckpt::SafetensorsFile optimizer(path / "optimizer.safetensors");
  EXPECT_EQ(optimizer.entries().size(), 2 * model.entries().size());
  for (const ckpt::SafetensorsEntry& entry : model.entries()) {
    EXPECT_EQ(optimizer.spec("exp_avg." + entry.name), model.spec(entry.name));
    EXPECT_EQ(optimizer.spec("exp_avg_sq." + entry.name), model.spec(entry.name));
  }
}

TEST_P(Checkpointing, TheParametersAloneSufficeForEvaluation) {
  Bench bench(options(GetParam()));
  const fs::path path = save(bench);
  StateOptions evaluation = options(GetParam());
  evaluation.training = false;
  TrainState state(evaluation);
  state.allocate(*bench.run.device);
  model_dir::load_parameters(path, state.model(), state.store(), bench.run.device->threads());
  EXPECT_EQ(Bench::bytes(state.store().values()), bench.values());
}

TEST_P(Checkpointing, AnotherModelIsRefused) {
  Bench bench(options(GetParam()));
  const ckpt::CheckpointInfo saved = ckpt::verify_checkpoint(save(bench));
  StateOptions deeper = options(GetParam());
  deeper.model.num_layers = 3;
  Bench other(deeper);
  const std::string before = other.values();
  EXPECT_THAT(error_of([&] { load_checkpoint(saved, other.state, other.run.device->threads()); },
                       ErrorKind::kUser),
              AllOf(HasSubstr("another model"), HasSubstr("step-00000007")));
  EXPECT_EQ(other.values(), before);
}

TEST_P(Checkpointing, ATrainerStateThatIsNoneIsDamaged) {
  Bench bench(options(GetParam()));
  const ckpt::CheckpointInfo saved = ckpt::verify_checkpoint(save(bench));
  const auto load_with = [&](const std::string& text, ErrorKind kind) {
    write_file(saved.path / "trainer.json", text);
    return error_of([&] { load_checkpoint(saved, bench.state, bench.run.device->threads()); },
                    kind);
  };
  EXPECT_THAT(load_with("{\"version\":1}", ErrorKind::kDamaged), HasSubstr("trainer.json"));
  EXPECT_THAT(load_with("{", ErrorKind::kDamaged), HasSubstr("trainer.json"));
  EXPECT_THAT(load_with("{\"version\":2}", ErrorKind::kUser), HasSubstr("version 2"));
}

TEST_P(Checkpointing, CarriedFilesComeBackAsTheyWere) {
  Bench bench(options(GetParam()));
  const CarriedFiles carried = {{"tokenizer.json", "{ }"}, {"special_tokens_map.json", "{\n}"}};
  CarriedFiles back = read_carried(save(bench, kPosition, carried));
  EXPECT_EQ(back.erase(ckpt::kSourceDtypesFile), 1U);
  EXPECT_EQ(back, carried);

  nn::ModelConfig config = testing::tiny_model(GetParam());
  config.eos_token = 3;
  const Tokenizer bytes = make_byte_tokenizer();
  const CarriedFiles fresh = new_carried(bytes, config);
  EXPECT_EQ(fresh.at("tokenizer.json"), bytes.file_content());
  const auto tokenizer = nlohmann::json::parse(fresh.at("tokenizer_config.json"));
  EXPECT_EQ(tokenizer.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(tokenizer.at("model_max_length"), config.max_positions);
  EXPECT_EQ(nlohmann::json::parse(fresh.at("generation_config.json")).at("eos_token_id"), 3);
}

TEST_P(Checkpointing, ANewModelSaysWhetherItsSentencePieceBeginsTexts) {
  const auto piece = [](const std::string& text, char type) {  // a message of the file's protobuf
    const std::string body = "\x0a" + std::string(1, static_cast<char>(text.size())) + text +
                             "\x18" + std::string(1, type);
    return "\x0a" + std::string(1, static_cast<char>(body.size())) + body;
  };
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3;
  const std::string is_bpe = {0x12, 2, 0x18, 2};
  const auto config_with = [&](const std::string& begin) {
    const fs::path path = directory_ / "tokenizer.model";
    write_file(path, piece("<unk>", kUnknown) + begin + piece("</s>", kControl) +
                         piece("a", kNormal) + is_bpe);
    const CarriedFiles fresh = new_carried(Tokenizer::load(path), testing::tiny_model(GetParam()));
    return nlohmann::json::parse(fresh.at("tokenizer_config.json"));
  };
  const auto with = config_with(piece("<s>", kControl));
  EXPECT_EQ(with.at("add_bos_token"), true);
  EXPECT_EQ(with.at("bos_token"), "<s>");
  EXPECT_EQ(with.at("eos_token"), "</s>");
  EXPECT_EQ(config_with("").at("add_bos_token"), false);
}

TEST_P(Checkpointing, FindsTheModelThatAnArgumentMeans) {
  Bench bench(options(GetParam()));
  Position position = kPosition;
  const fs::path seventh = save(bench, position);
  position.step = 9;
  const fs::path ninth = save(bench, position);
  EXPECT_EQ(model_dir::find_model(directory_.path()), ninth) << "a run";
  EXPECT_EQ(model_dir::find_model(seventh), seventh) << "a checkpoint";
  fs::create_directories(directory_ / "model");
  write_file(directory_ / "model" / "config.json", "{}");
  EXPECT_EQ(model_dir::find_model(directory_ / "model"), directory_ / "model");

  ckpt::testing::flip_bit(ninth / "model.safetensors", 500, 3);
  EXPECT_EQ(model_dir::find_model(directory_.path()), seventh) << "the newest that verifies";
  ckpt::testing::flip_bit(seventh / "config.json", 3, 0);
  EXPECT_THAT(error_of([&] { model_dir::find_model(directory_.path()); }, ErrorKind::kDamaged),
              HasSubstr("none of the 2 checkpoints"));
}

TEST(FindModel, SaysWhatElseAnArgumentIs) {
  const ckpt::testing::TemporaryDirectory directory("find-model");
  const auto refusal = [&](const std::string& name) {
    return error_of([&] { model_dir::find_model(directory / name); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refusal("nothing"), HasSubstr("there is no directory"));
  fs::create_directories(directory / "empty");
  EXPECT_THAT(refusal("empty"), HasSubstr("neither a model directory"));
  fs::create_directories(directory / "run" / "checkpoints");
  EXPECT_THAT(refusal("run"), HasSubstr("is a run without a checkpoint yet"));
  write_file(directory / "file", "x");
  EXPECT_THAT(refusal("file"), HasSubstr("is a file, and a model is a directory"));
}

}  // namespace
}  // namespace atl::train
