// Runs of every precision, optimizer, packing and kind of data, and LoRA: each must learn, and
// resume bitwise.

#include <nlohmann/json.hpp>

#include "atoll/model_dir/adapter.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FineTuning : public TrainerTest {
 protected:
  void write_jsonl(const std::string& name) {
    const RngStream stream(3, RngPurpose::kSynthetic);
    std::string lines;
    for (std::uint64_t i = 0; i < 120; ++i) {
      const std::uint64_t a = stream.word(2 * i) % 10;
      const std::uint64_t b = stream.word(2 * i + 1) % 10;
      lines += fmt::format(
          "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{} and {}\"}}, {{\"role\": "
          "\"assistant\", \"content\": \"{}\"}}]}}\n",
          a, b, a + b);
    }
    write_file(root_ / name, lines);
    write_file(root_ / "chat.jinja",
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
               "{% if add_generation_prompt %}<assistant>{% endif %}");
  }

  // Runs twenty steps at once, and in two parts; both must end in the same bytes.
  TrainOutcome expect_resumes(const std::vector<std::string>& settings) {
    const TrainOutcome whole = train("whole", settings);
    EXPECT_EQ(train("parts", settings, 7).step, 7);
    const TrainOutcome rest = train("parts", settings);
    for (const fs::directory_entry& entry : fs::directory_iterator(whole.checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      EXPECT_EQ(read_file(rest.checkpoint / entry.path().filename()), read_file(entry.path()))
          << entry.path();
    }
    EXPECT_EQ(rest.held_out->loss, whole.held_out->loss);
    EXPECT_TRUE(std::isfinite(whole.held_out->loss));
    return whole;
  }

  // Merged, an adapter predicts what it predicted beside its base. Empty `base`: the one it names.
  void expect_merged_predicts(const TrainOutcome& outcome, const fs::path& base) {
    const model_dir::ModelPath model = model_dir::find_model(outcome.checkpoint, base);
    StateOptions options;
    options.model = model_dir::read_model_config(model);
    options.context = 32;
    options.micro_batch = 2;
    options.training = false;
    const auto device = open_cpu(2);
    Stream stream(*device);
    TrainState state(options);
    state.allocate(*device);
    model_dir::load_parameters(model, state.model(), state.store(), device->threads());
    const data::Corpus corpus(root_ / "whole" / "data");
    const Evaluation merged =
        evaluate(state, stream, corpus.held_out(), model_dir::load_tokenizer(model));
    EXPECT_NEAR(merged.loss, outcome.held_out->loss, 1e-5 * merged.loss);
  }
};

TEST_F(FineTuning, Bf16WithMastersResumesBitwise) {
  const TrainOutcome outcome = expect_resumes({"--train.dtype=bf16"});
  const ckpt::SafetensorsFile model(outcome.checkpoint / "model.safetensors");
  EXPECT_EQ(model.spec("model.norm.weight").dtype, Dtype::kBf16);
  const ckpt::SafetensorsFile optimizer(outcome.checkpoint / "optimizer.safetensors");
  EXPECT_EQ(optimizer.spec("master.model.norm.weight").dtype, Dtype::kF32);
  EXPECT_THAT(read_file(outcome.checkpoint / "config.json"), HasSubstr("\"bfloat16\""));
}

TEST_F(FineTuning, Bf16WithStochasticRoundingResumesBitwise) {
  const TrainOutcome outcome = expect_resumes({"--train.dtype=bf16", "--optim.masters=stochastic"});
  const ckpt::SafetensorsFile optimizer(outcome.checkpoint / "optimizer.safetensors");
  EXPECT_FALSE(optimizer.contains("master.model.norm.weight"));
}

TEST_F(FineTuning, Bf16LosesAboutWhatF32Loses) {
  const std::vector<std::string> steps = {"--train.steps=60", "--optim.lr=0.01"};
  const double f32 = train("plain", steps).held_out->loss;
  for (const char* masters : {"f32", "stochastic"}) {
    std::vector<std::string> narrow = steps;
    narrow.insert(narrow.end(), {"--train.dtype=bf16", std::string("--optim.masters=") + masters});
    EXPECT_NEAR(train(masters, narrow).held_out->loss, f32, 0.1) << masters;
  }
}

TEST_F(FineTuning, EveryOptimizerResumesBitwise) {
  for (const char* kind : {"muon", "lion", "sgd"}) {
    expect_resumes({std::string("--optim.kind=") + kind, "--optim.lr=0.002"});
    fs::remove_all(root_ / "whole");
    fs::remove_all(root_ / "parts");
  }
}

TEST_F(FineTuning, EveryPackingResumesBitwise) {
  for (const char* packing : {"masked", "documents"}) {
    expect_resumes({std::string("--data.packing=") + packing, "--data.documents=blank-line"});
    fs::remove_all(root_ / "whole");
    fs::remove_all(root_ / "parts");
  }
}

TEST_F(FineTuning, AMixtureOfCorporaResumesBitwise) {
  train("a", {"--train.steps=3"});
  write_text(root_ / "other.txt", 2);
  train("b", {"--train.steps=3", "--data.text=" + (root_ / "other.txt").string(),
              "--data.tokenizer=" + (root_ / "a" / "data").string(), "--data.vocab_size"});
  const std::string shards =
      (root_ / "a" / "data").string() + "," + (root_ / "b" / "data").string();
  expect_resumes({"--data.text", "--data.vocab_size", "--data.shards=" + shards,
                  "--data.weights=3,1", "--data.cache_dir=" + (root_ / "cache").string()});
  EXPECT_FALSE(fs::is_empty(root_ / "cache"));
}

TEST_F(FineTuning, CorporaOfDifferentTokenizersDoNotMix) {
  train("a", {"--train.steps=3"});
  train("b", {"--train.steps=3", "--data.vocab_size", "--data.new_tokenizer=char"});
  const std::string shards =
      (root_ / "a" / "data").string() + "," + (root_ / "b" / "data").string();
  EXPECT_THAT(error_of(
                  [&] {
                    train("c", {"--data.text", "--data.vocab_size", "--data.shards=" + shards});
                  },
                  ErrorKind::kUser),
              HasSubstr("different tokenizers"));
}

TEST_F(FineTuning, ARunKeepsItsPrecision) {
  train("run", {}, 5);
  EXPECT_THAT(error_of([&] { train("run", {"--train.dtype=bf16"}); }, ErrorKind::kUser),
              AllOf(HasSubstr("train.dtype is \"bf16\""), HasSubstr("was \"f32\"")));
}

TEST_F(FineTuning, MessagesTrainOnAnswersAlone) {
  write_jsonl("chat.jsonl");
  const std::vector<std::string> settings = {
      "--data.text=" + (root_ / "chat.jsonl").string(),
      "--data.packing=documents",
      "--data.chat_template=" + (root_ / "chat.jinja").string(),
      "--data.new_tokenizer=byte",
      "--data.vocab_size",
      "--train.context=64",
      "--data.held_out=0.2"};
  const TrainOutcome outcome = expect_resumes(settings);
  EXPECT_EQ(read_file(outcome.checkpoint / "chat_template.jinja"), read_file(root_ / "chat.jinja"));
  // An answer is at most two digits and "<end>" long: what was predicted can be no more.
  EXPECT_GT(outcome.held_out->tokens, 24 * 6 - 1);
  EXPECT_LE(outcome.held_out->tokens, 24 * 7);
}

TEST_F(FineTuning, LoraResumesBitwiseAndLeavesTheBaseAlone) {
  const fs::path base = train("base").checkpoint;
  const std::string before = read_file(base / "model.safetensors");
  inline_model_ = false;
  const std::vector<std::string> settings = {"--model.from=" + base.string(), "--lora.rank=3",
                                             "--lora.alpha=6", "--optim.lr=0.01",
                                             "--train.dropout=0"};
  const TrainOutcome outcome = expect_resumes(settings);
  EXPECT_EQ(read_file(base / "model.safetensors"), before);
  EXPECT_FALSE(fs::exists(outcome.checkpoint / "model.safetensors"));
  const model_dir::AdapterConfig config = model_dir::parse_adapter_config(
      read_file(outcome.checkpoint / model_dir::kAdapterConfigFile), "adapter_config.json");
  EXPECT_EQ(config.lora.rank, 3);
  EXPECT_EQ(config.base, fs::absolute(base).string());

  expect_merged_predicts(outcome, {});
}

TEST_F(FineTuning, LoraWithAllItsPartsResumesBitwiseAndMerges) {
  const fs::path base = train("base").checkpoint;
  inline_model_ = false;
  const TrainOutcome outcome = expect_resumes(
      {"--model.from=" + base.string(), "--lora.rank=3", "--optim.lr=0.01", "--lora.dropout=0.2",
       R"(--lora.targets=.*\.\d+\.(self_attn\.q|mlp\.up)_proj)", "--lora.modules_to_save=norm"});
  const ckpt::SafetensorsFile adapter(outcome.checkpoint / model_dir::kAdapterWeightsFile);
  EXPECT_TRUE(adapter.contains("base_model.model.model.norm.weight"));
  const ckpt::SafetensorsFile before(base / "model.safetensors");
  const auto bytes = adapter.bytes("base_model.model.model.norm.weight");
  const auto old = before.bytes("model.norm.weight");
  EXPECT_FALSE(std::equal(bytes.begin(), bytes.end(), old.begin(), old.end())) << "it is trained";
  expect_merged_predicts(outcome, {});

  // The base model has moved: whoever reads the adapter says where it is.
  const fs::path moved = root_ / "moved";
  fs::rename(base, moved);
  EXPECT_THAT(error_of([&] { model_dir::read_model_config(outcome.checkpoint); }, ErrorKind::kUser),
              AllOf(HasSubstr("--base"), HasSubstr("model.base")));
  expect_merged_predicts(outcome, moved);
  EXPECT_THAT(error_of([&] { model_dir::find_model(moved, moved); }, ErrorKind::kUser),
              HasSubstr("whole model"));
  EXPECT_THAT(error_of([&] { model_dir::find_model(outcome.checkpoint, outcome.checkpoint); },
                       ErrorKind::kUser),
              HasSubstr("an adapter itself"));
}

TEST_F(FineTuning, LoraWithoutItsBaseSaysWhereItShouldBe) {
  const fs::path base = train("base", {"--train.steps=3"}).checkpoint;
  inline_model_ = false;
  const fs::path adapter =
      train("lora", {"--model.from=" + base.string(), "--lora.rank=2", "--train.steps=3"})
          .checkpoint;
  fs::rename(base, root_ / "elsewhere");
  EXPECT_THAT(error_of([&] { model_dir::read_model_config(adapter); }, ErrorKind::kUser),
              AllOf(HasSubstr("base_model_name_or_path"), HasSubstr(base.string())));
}

TEST_F(FineTuning, LoraOnARunIsOfTheCheckpointItStartedFrom) {
  const fs::path base = train("base", {"--train.steps=3"}).checkpoint;
  inline_model_ = false;
  const fs::path adapter = train("lora", {"--model.from=" + (root_ / "base").string(),
                                          "--lora.rank=2", "--train.steps=3"})
                               .checkpoint;
  EXPECT_EQ(model_dir::base_directory(adapter), base);
}

TEST_F(FineTuning, LoraGoesOnBesideTheSameWeightsAlone) {
  const fs::path base = train("base", {"--train.steps=3"}).checkpoint;
  const fs::path other = train("other", {"--train.steps=4"}).checkpoint;
  inline_model_ = false;
  const auto lora = [&](const fs::path& from, std::int64_t stop_after) {
    return train("lora",
                 {"--model.from=" + from.string(), "--data.tokenizer=" + base.string(),
                  "--lora.rank=2", "--train.steps=6"},
                 stop_after);
  };
  lora(base, 3);
  EXPECT_THAT(error_of([&] { lora(other, -1); }, ErrorKind::kUser),
              AllOf(HasSubstr(other.string()), HasSubstr("which were in " + base.string())));
  fs::rename(root_ / "base", root_ / "moved");
  const fs::path moved = root_ / "moved" / "checkpoints" / base.filename();
  EXPECT_EQ(train("lora", {"--model.from=" + moved.string(), "--lora.rank=2", "--train.steps=6",
                           "--data.tokenizer=" + moved.string()})
                .step,
            6);
}

TEST_F(FineTuning, CheckpointsHaveTheTokenizerThatTheTokensWereMadeWith) {
  const fs::path base = train("base", {"--train.steps=3"}).checkpoint;
  const fs::path bytes =
      train("bytes", {"--train.steps=3", "--data.vocab_size", "--data.new_tokenizer=byte"})
          .checkpoint;
  inline_model_ = false;
  const std::string from = "--model.from=" + base.string();
  const fs::path named =
      train("named", {from, "--train.steps=3", "--data.tokenizer=" + bytes.string()}).checkpoint;
  const fs::path shards = train("shards", {from, "--train.steps=3", "--data.text",
                                           "--data.shards=" + (root_ / "bytes" / "data").string()})
                              .checkpoint;
  const fs::path own = train("own", {from, "--train.steps=3"}).checkpoint;
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_file(named / file), read_file(bytes / file)) << file;
    EXPECT_EQ(read_file(shards / file), read_file(bytes / file)) << file;
    EXPECT_EQ(read_file(own / file), read_file(base / file)) << file;
  }
}

TEST_F(FineTuning, AnEvaluationThatFailsLosesNoStep) {
  // What is held out, a line now and then, has no answer of the assistant.
  write_jsonl("messages.jsonl");
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += fmt::format(R"({{"messages": [{{"role": "{}", "content": "{}"}}]}})",
                         i < 5 ? "assistant" : "user", std::string(400, 'a'));
    lines += "\n";
  }
  write_file(root_ / "answers.jsonl", lines);
  const std::vector<std::string> settings = {
      "--data.text=" + (root_ / "answers.jsonl").string(),
      "--data.chat_template=" + (root_ / "chat.jinja").string(),
      "--data.new_tokenizer=byte",
      "--data.vocab_size",
      "--train.batch_size=64",
      "--optim.warmup_steps=0",
      "--train.steps=2"};
  EXPECT_THAT(error_of([&] { train("run", settings); }, ErrorKind::kUser),
              HasSubstr("has a loss; hold out more text"));
  EXPECT_EQ(ckpt::checkpoint_steps(root_ / "run" / "checkpoints"), std::vector<std::int64_t>{2});
}

TEST_F(FineTuning, ASettingWithoutMeaningIsRefused) {
  const auto refused = [&](const std::vector<std::string>& settings) {
    return error_of([&] { train("run", settings); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refused({"--lora.rank=4"}), HasSubstr("model.from"));
  EXPECT_THAT(refused({"--lora.alpha=4"}), HasSubstr("lora.rank"));
  EXPECT_THAT(refused({"--optim.masters=stochastic"}), HasSubstr("train.dtype"));
  EXPECT_THAT(refused({"--optim.momentum=0.5"}), HasSubstr("muon or sgd"));
  EXPECT_THAT(refused({"--optim.kind=sgd", "--optim.beta1=0.5"}), HasSubstr("optim.beta1"));
  EXPECT_THAT(refused({"--data.weights=1"}), HasSubstr("data.shards"));
  EXPECT_THAT(refused({"--model.sliding_window=8"}), HasSubstr("mistral"));
}

}  // namespace
}  // namespace atl::train
