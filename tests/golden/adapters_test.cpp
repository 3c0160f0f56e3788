// Adapters of each kind that PEFT makes, merged: against the weights that PEFT's merge leaves. See
// tools/golden/adapters.py.

#include "fixture.h"

#include <ostream>

#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"

namespace atl::golden {
namespace {

namespace fs = std::filesystem;

// Of a tensor's largest element. Both add products of r <= 4 terms; PEFT rounds each of them and
// the sum to f32, atoll the sum alone.
constexpr double kRounding = 6 * 0x1p-24;

struct Case {
  const char* adapter;
  const char* base;
};

// For the tests' names, which would else hold the bytes of pointers.
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.adapter;
}

class AdaptersTest : public ::testing::TestWithParam<Case> {
 protected:
  AdaptersTest() : fixture_(std::string("adapters/") + GetParam().adapter), base_(base_path()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    // The fixture's base is a name; here it is a path.
    for (const char* name : {model_dir::kAdapterConfigFile, model_dir::kAdapterWeightsFile}) {
      std::string content = read_file(fixture_.path / name);
      const std::string quoted = '"' + std::string(GetParam().base) + '"';
      const std::size_t at = content.find(quoted);
      if (name == std::string(model_dir::kAdapterConfigFile)) {
        content.replace(at, quoted.size(), '"' + base_.string() + '"');
      }
      write_file(directory_ / name, content);
    }
  }

  ~AdaptersTest() override { fs::remove_all(directory_); }

  static fs::path base_path() {
    return test_source_dir() / "tests" / "golden" / "families" / GetParam().base;
  }
  // The tensors of a model directory, by name.
  std::map<std::string, std::vector<float>> tensors_of(const fs::path& directory) {
    train::StateOptions options;
    options.model = model_dir::read_model_config(directory);
    // What an export writes says what the merged model is.
    const nn::ModelConfig said =
        nn::parse_config(nn::config_json(options.model), "config.json of the merged model");
    EXPECT_EQ(said.vocab_size, options.model.vocab_size);
    EXPECT_EQ(said.tie_embeddings, options.model.tie_embeddings);
    options.micro_batch = kBatch;
    options.context = kLength;
    options.training = false;
    train::TrainState state(options);
    state.allocate(*run_.device);
    model_dir::load_parameters(directory, state.model(), state.store(), run_.device->threads());
    return as_files(state.store(), [](const nn::Param& param) { return param.value; });
  }

  const Fixture fixture_;
  const fs::path base_;
  const fs::path directory_ =
      fs::path(::testing::TempDir()) / fmt::format("atoll-adapter-{}", GetParam().adapter);
  test::TestRun run_;
};

TEST_P(AdaptersTest, MergedIsWhatPeftMergesToOneRounding) {
  const std::map<std::string, std::vector<float>> before = tensors_of(base_);
  std::size_t changed = 0;
  for (const auto& [name, values] : tensors_of(directory_)) {
    if (fixture_.expected.contains(name)) {
      EXPECT_LT(relative_error(values, fixture_.numbers(name)), kRounding) << name;
      ++changed;
      continue;
    }
    // A head that leaves the embedding is as the base model has it.
    const bool leaves = name == "lm_head.weight" && !before.contains(name);
    const auto at = before.find(leaves ? "model.embed_tokens.weight" : name);
    ASSERT_NE(at, before.end()) << name;
    EXPECT_EQ(values, at->second) << name;
  }
  EXPECT_EQ(changed, fixture_.expected.entries().size());
}

INSTANTIATE_TEST_SUITE_P(
    All, AdaptersTest,
    ::testing::Values(Case{"patterns", "llama3"}, Case{"layers", "qwen2"}, Case{"bias_all", "gpt2"},
                      Case{"lora_bias", "gpt2"}, Case{"dora", "llama3"},
                      Case{"dora_conv1d", "gpt2"}, Case{"embeddings", "mixtral"},
                      Case{"dora_embeddings", "llama2"}, Case{"saved_modules", "llama2"},
                      Case{"tokens", "llama3"}, Case{"tokens_by_module", "llama2"},
                      Case{"experts", "qwen3_moe"}, Case{"one_expert_parameter", "mixtral"},
                      Case{"expert_modules", "mixtral"}, Case{"resized", "llama3"},
                      Case{"untied_by_saving", "llama3"}, Case{"untied_by_lora", "llama3"},
                      Case{"tied_lora", "llama3"}, Case{"experts_gpt_oss", "gpt_oss"}),
    [](const auto& info) { return info.param.adapter; });

}  // namespace
}  // namespace atl::golden
