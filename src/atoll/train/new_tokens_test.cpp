// Runs whose data.special_tokens a pretrained tokenizer lacks: tokenizer and model get them.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/json.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class NewTokens : public TrainerTest {
 protected:
  fs::path make_base(const std::string& tied) {
    fs::path base =
        train("base", {"--train.steps=3", "--model.tie_word_embeddings=" + tied}).checkpoint;
    inline_model_ = false;
    vocab_ = static_cast<std::int32_t>(model_dir::read_model_config(base).vocab_size);
    return base;
  }
  // Conversations whose template writes both new tokens.
  std::vector<std::string> settings(const fs::path& base,
                                    const std::vector<std::string>& more = {}) {
    std::string lines;
    for (int i = 0; i < 120; ++i) {
      lines += fmt::format(R"({{"messages": [{{"role": "user", "content": "the sea {0}"}}, )"
                           R"({{"role": "assistant", "content": "{0}"}}]}})"
                           "\n",
                           i % 10);
    }
    write_file(root_ / "chat.jsonl", lines);
    write_file(root_ / "chat.jinja",
               "{% for m in messages %}<|a|>{{ m.content }}<|b|>{% endfor %}"
               "{% if add_generation_prompt %}<|a|>{% endif %}");
    std::vector<std::string> all = {"--model.from=" + base.string(),
                                    "--data.text=" + (root_ / "chat.jsonl").string(),
                                    "--data.chat_template=" + (root_ / "chat.jinja").string(),
                                    "--data.special_tokens=<|a|>,<|b|>",
                                    "--data.held_out=0.2",
                                    "--train.steps=6"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_resumes(const std::vector<std::string>& settings) {
    whole_ = train("whole", settings);
    EXPECT_EQ(train("parts", settings, 3).step, 3);
    const TrainOutcome rest = train("parts", settings);
    for (const fs::directory_entry& entry : fs::directory_iterator(whole_.checkpoint)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".safetensors") || name.starts_with("tokenizer")) {
        EXPECT_EQ(read_file(rest.checkpoint / name), read_file(entry.path())) << name;
      }
    }
  }
  static std::vector<float> read(const fs::path& file, const std::string& name) {
    const ckpt::SafetensorsFile tensors(file);
    std::vector<float> values(static_cast<std::size_t>(tensors.spec(name).shape.num_elements()));
    tensors.read_f32(name, Tensor(values.data(), {Dtype::kF32, tensors.spec(name).shape}));
    return values;
  }

  TrainOutcome whole_;
  std::int32_t vocab_ = 0;  // of the base
};

TEST_F(NewTokens, FullFineTuningGivesThemRows) {
  for (const char* tied : {"false", "true"}) {
    SCOPED_TRACE(tied);
    inline_model_ = true;
    const fs::path base = make_base(tied);
    expect_resumes(settings(base));
    const Tokenizer tokenizer = model_dir::load_tokenizer(whole_.checkpoint);
    const auto config = parse_json(read_file(whole_.checkpoint / "config.json"), "config.json");
    EXPECT_EQ(config["vocab_size"], vocab_ + 2);
    EXPECT_EQ(tokenizer.vocab_size(), vocab_ + 2);
    EXPECT_EQ(tokenizer.id_of("<|b|>"), vocab_ + 1);
    EXPECT_TRUE(tokenizer.is_special(vocab_));
    EXPECT_EQ(tokenizer.encode("<|a|><|b|>"), (std::vector<std::int32_t>{vocab_, vocab_ + 1}));
    EXPECT_EQ(model_dir::read_model_config(whole_.checkpoint).vocab_size, vocab_ + 2);
    // Answers end with one of them, where the model can be stopped.
    EXPECT_THAT(model_dir::stop_tokens(whole_.checkpoint, tokenizer), Contains(vocab_ + 1));
    // The model has met both, in different places.
    const auto table = read(whole_.checkpoint / "model.safetensors", "model.embed_tokens.weight");
    EXPECT_FALSE(std::equal(table.end() - 32, table.end(), table.end() - 64));
    for (const char* name : {"whole", "parts", "base"}) fs::remove_all(root_ / name);
  }
}

// With a learning rate of almost nothing, the rows are those that a run begins with.
TEST_F(NewTokens, BeginAsTheMeanOfTheOthers) {
  const fs::path base = make_base("false");
  const fs::path made =
      train("run", settings(base, {"--optim.lr=1e-30", "--optim.weight_decay=0"})).checkpoint;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const std::vector<float> old = read(base / "model.safetensors", name);
    const std::vector<float> now = read(made / "model.safetensors", name);
    ASSERT_EQ(now.size(), old.size() + 64);
    for (std::size_t c = 0; c < 32; ++c) {
      double sum = 0;
      for (std::size_t at = c; at < old.size(); at += 32) sum += static_cast<double>(old[at]);
      const auto mean = static_cast<float>(sum / vocab_);
      EXPECT_EQ(now[old.size() + c], mean) << name << c;
      EXPECT_EQ(now[old.size() + 32 + c], mean) << name << c;
    }
  }
}

TEST_F(NewTokens, AModelWithRowsToSpareStaysAsItIs) {
  const fs::path base = make_base("false");
  const fs::path padded = train("padded", settings(base)).checkpoint;
  // The old tokenizer beside two rows more.
  fs::copy(padded, root_ / "model");
  fs::remove(root_ / "model" / "manifest.json");
  fs::copy_file(base / "tokenizer.json", root_ / "model" / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  const fs::path made = train("run", settings(root_ / "model")).checkpoint;
  EXPECT_EQ(read_file(made / "config.json"), read_file(padded / "config.json"));
  EXPECT_EQ(model_dir::load_tokenizer(made).id_of("<|a|>"), vocab_);
}

TEST_F(NewTokens, AnAdapterTrainsEmbeddingAndHeadWhole) {
  for (const char* tied : {"false", "true"}) {
    SCOPED_TRACE(tied);
    inline_model_ = true;
    const fs::path base = make_base(tied);
    const std::string modules =
        tied == std::string("true") ? "embed_tokens" : "embed_tokens,lm_head";
    expect_resumes(settings(base, {"--lora.rank=2", "--lora.modules_to_save=" + modules}));
    const fs::path file = whole_.checkpoint / model_dir::kAdapterWeightsFile;
    const auto table = read(file, "base_model.model.model.embed_tokens.weight");
    EXPECT_EQ(std::ssize(table), (vocab_ + 2) * 32);
    EXPECT_EQ(read(file, "base_model.model.lm_head.weight") == table, tied == std::string("true"));
    const nn::ModelConfig merged = model_dir::read_model_config(whole_.checkpoint);
    EXPECT_EQ(merged.vocab_size, vocab_ + 2);
    EXPECT_EQ(merged.tie_embeddings, tied == std::string("true"));
    for (const char* name : {"whole", "parts", "base"}) fs::remove_all(root_ / name);
  }
}

TEST_F(NewTokens, RowsThatNothingTrainsAreRefused) {
  const fs::path base = make_base("false");
  for (const char* modules : {"", "embed_tokens", "lm_head"}) {
    EXPECT_THAT(error_of(
                    [&] {
                      train("lora",
                            settings(base, {"--lora.rank=2",
                                            std::string("--lora.modules_to_save=") + modules}));
                    },
                    ErrorKind::kUser),
                AllOf(HasSubstr("data.special_tokens"),
                      HasSubstr("lora.modules_to_save=embed_tokens,lm_head")))
        << modules;
  }
}

}  // namespace
}  // namespace atl::train
