// Models whose weights stay in the bits of their files: they compute what the same weights compute
// when they are widened, forwards and for the gradients of an adapter.

#include "atoll/model_dir/stored_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/gguf_import.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/adapted.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 256,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "intermediate_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": true})";

enum class Held { kWide, kQuantised, kAll };

// A model of a directory with an adapter, in memory, and one batch.
struct Bench {
  static constexpr std::int64_t kBatch = 2, kLength = 5;

  Bench(const ModelPath& directory, Held held, nn::BuildOptions options = {},
        const std::vector<std::string>& parameters = {})
      : run(2, 64) {
    const nn::ModelConfig config = read_model_config(directory);
    model = nn::build_adapted_model(
        config, options,
        {.rank = 2, .alpha = 2, .targets = {"all-linear"}, .target_parameters = parameters});
    if (held != Held::kWide) {
      keep_stored(directory, held == Held::kAll ? StoredWeights::kAll : StoredWeights::kQuantised,
                  /*freezes=*/false, *model);
    }
    store = std::make_unique<parallel::SingleStore>(*model, true);
    runner =
        std::make_unique<parallel::Runner>(*model, *store, parallel::Use::kTrain, kBatch, kLength);
    store->request(plan);
    runner->request(plan);
    plan.place();
    arena = std::make_unique<Arena>(*run.device, plan);
    store->bind(*arena);
    runner->bind(*arena);
    store->initialise(run, 5);
    load_parameters(directory, *model, *store, run.device->threads());
    run.run.loss_scale = 1.0 / (kBatch * kLength);
    // Adapters that do something, the same for all.
    const auto set_factors = [&](auto factors) {
      std::memcpy(store->values().raw(), factors.values.data(), store->values().bytes());
    };
    if (options.dtype == Dtype::kBf16) {
      set_factors(test::random_tensor<Bf16>(store->values().shape(), 4, 0.05F));
    } else {
      set_factors(test::random_tensor<float>(store->values().shape(), 4, 0.05F));
    }
    auto tokens = test::random_tokens({kBatch, kLength}, config.vocab_size, 1);
    auto targets = test::random_tokens({kBatch, kLength}, config.vocab_size, 2);
    std::memset(store->grads().raw(), 0, store->grads().bytes());
    loss = runner->train(run, {tokens, targets, 0});
    const auto* grads = static_cast<const float*>(store->grads().raw());
    gradients.shape = store->grads().shape();
    gradients.values.assign(grads, grads + store->grads().num_elements());
  }

  test::TestRun run;
  std::unique_ptr<nn::Model> model;
  std::unique_ptr<parallel::SingleStore> store;
  std::unique_ptr<parallel::Runner> runner;
  MemoryPlan plan;
  std::unique_ptr<Arena> arena;
  double loss = 0;
  test::OwnedTensor<float> gradients;
};

// A llama whose projections are NF4 with random codes, but for the values, which are bf16: the
// fused matrix of queries, keys and values has both.
class StoredWeightsTest : public ::testing::Test, public nn::ParamVisitor {
 protected:
  void SetUp() override { write_nf4(kConfig); }

  void write_nf4(const std::string& config) {
    fs::create_directories(path());
    auto json = nlohmann::json::parse(config);
    nn::build_model(nn::parse_config(config, "config.json"), {})->visit(*this);
    json["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
    write_file(path() / "config.json", json.dump());
    ckpt::write_safetensors(path() / "model.safetensors", tensors_);
  }
  fs::path path() const { return directory_ / "nf4"; }

  void param(nn::Param& param) override {
    if (!seen_.insert(&param).second) return;
    for (const nn::FileTensor& file : param.files) {
      const bool is_matrix = param.spec.shape.rank() == 2;
      const Shape shape = is_matrix ? Shape{file.rows, param.spec.shape.dim(1)} : Shape{file.rows};
      const bool is_float = !quantises_ || file.name.find("_proj.weight") == file.name.npos;
      if (is_float || file.name.find("v_proj") != file.name.npos) {
        add_floats(file.name, shape, is_float ? Dtype::kF32 : Dtype::kBf16);
      } else {
        add_nf4(file.name, shape);
        elements_ += static_cast<std::size_t>(shape.num_elements());
      }
    }
  }
  void add(const std::string& name, std::string bytes, const Spec& spec) {
    std::string& kept = memory_.emplace_back(std::move(bytes));
    tensors_.push_back({name, Tensor(kept.data(), spec)});
  }
  void add_floats(const std::string& name, const Shape& shape, Dtype dtype) {
    auto values = test::random_tensor<float>(shape, tensors_.size(), 0.2F);
    if (shape.rank() == 1) {
      for (float& value : values.values) value += 1;
    }
    std::string bytes(Spec{dtype, shape}.bytes(), '\0');
    ckpt::convert_from_f32(values.values, dtype,
                           std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    add(name, bytes, {dtype, shape});
  }
  void add_nf4(const std::string& name, const Shape& shape) {
    const std::int64_t count = shape.num_elements();
    const auto codes = test::random_tokens({count / 2}, 256, tensors_.size());
    std::string bytes;
    for (const std::int32_t code : codes.values) bytes += static_cast<char>(code);
    add(name, bytes, {Dtype::kU8, {count / 2, 1}});
    std::vector<float> factors(static_cast<std::size_t>(count / 64));
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = 0.05F + 0.01F * static_cast<float>(i % 7);
    }
    std::vector<float> map;
    for (int code = 0; code < 16; ++code) map.push_back(static_cast<float>(code - 7) / 8);
    const auto as_bytes = [](const std::vector<float>& values) {
      return std::string(reinterpret_cast<const char*>(values.data()),
                         values.size() * sizeof(float));
    };
    add(name + ".absmax", as_bytes(factors), {Dtype::kF32, {std::ssize(factors)}});
    add(name + ".quant_map", as_bytes(map), {Dtype::kF32, {16}});
    const std::string state = fmt::format(
        R"({{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [{}, {}]}})",
        shape.dim(0), shape.dim(1));
    add(name + ".quant_state.bitsandbytes__nf4", state, {Dtype::kU8, {std::ssize(state)}});
  }

  std::string error_of(const std::function<void()>& what) {
    try {
      what();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "none";
  }

  // Both sides sum in f32, in orders that may differ: each of 14 products of at most 512 terms is
  // off by 512 * 2^-24 of its largest sum at most, and so are its gradients.
  static constexpr double kTolerance = 2 * 14 * 512 * 0x1p-24;
  static void expect_same(const Bench& a, const Bench& b) {
    EXPECT_NEAR(a.loss, b.loss, kTolerance * b.loss);
    EXPECT_LT(max_relative_error(a.gradients, b.gradients), kTolerance);
    EXPECT_GT(max_abs(b.gradients), 1e-4);
  }

  const ckpt::testing::TemporaryDirectory directory_{"stored-weights"};
  std::set<nn::Param*> seen_;
  std::deque<std::string> memory_;
  std::vector<ckpt::NamedTensor> tensors_;
  std::size_t elements_ = 0;
  bool quantises_ = true;
};

TEST_F(StoredWeightsTest, ComputeWhatTheyComputeWidened) {
  EXPECT_EQ(quantisation_of(path()), "bitsandbytes nf4");
  const Bench stored(path(), Held::kQuantised), wide(path(), Held::kWide);
  expect_same(stored, wide);
  const Bench again(path(), Held::kQuantised, {.recompute = nn::RecomputeMode::kFull});
  EXPECT_EQ(again.gradients, stored.gradients);
}

TEST_F(StoredWeightsTest, TakeTheMemoryOfTheirBits) {
  const Bench stored(path(), Held::kQuantised), wide(path(), Held::kWide);
  // Half a byte, and 4 bytes for each 64; the values' 2 bytes and the table's 4; parts begin on
  // cache lines.
  const std::size_t floats = std::size_t{2} * 32 * 256 * 2 + std::size_t{12} * 256 * 4;
  const std::size_t least = elements_ / 2 + elements_ / 64 * sizeof(float) + floats;
  const std::size_t packed = stored.plan.peak_bytes("packed parameters");
  EXPECT_GE(packed, least);
  EXPECT_LE(packed, least + std::size_t{2} * 7 * 3 * kArenaAlignment);
  EXPECT_EQ(wide.plan.peak_bytes("packed parameters"), 0U);
  EXPECT_LT(stored.plan.peak_bytes("frozen parameters") + 3 * elements_,
            wide.plan.peak_bytes("frozen parameters"));
}

TEST_F(StoredWeightsTest, StayInBf16BesideBf16) {
  const Bench stored(path(), Held::kQuantised, {.dtype = Dtype::kBf16});
  EXPECT_TRUE(std::isfinite(stored.loss));
  const Bench wide(path(), Held::kQuantised);
  // bf16 has 8 bits, and each of some 20 operations rounds to them.
  EXPECT_NEAR(stored.loss, wide.loss, 20 * 0x1p-8 * wide.loss);
}

// GGUF's blocks: q and k have their rows permuted, the table is quantised too.
TEST_F(StoredWeightsTest, BlocksOfGgufComputeWhatTheyComputeWidened) {
  fs::create_directories(directory_ / "floats");
  const auto model = nn::build_model(nn::parse_config(kConfig, "config.json"), {});
  tensors_.clear();
  seen_.clear();
  quantises_ = false;
  model->visit(*this);
  write_file(directory_ / "floats/config.json", kConfig);
  ckpt::write_safetensors(directory_ / "floats/model.safetensors", tensors_);
  export_gguf(directory_ / "floats", directory_ / "m.gguf", {.mix = ckpt::find_gguf_mix("Q4_K_M")});
  import_gguf(directory_ / "m.gguf", directory_ / "stored", std::nullopt);
  import_gguf(directory_ / "m.gguf", directory_ / "wide", Dtype::kF32);
  const Bench stored(directory_ / "stored", Held::kQuantised);
  const Bench widened(directory_ / "stored", Held::kWide), wide(directory_ / "wide", Held::kWide);
  EXPECT_EQ(widened.gradients, wide.gradients);
  EXPECT_EQ(widened.loss, wide.loss);
  expect_same(stored, wide);
  EXPECT_LT(stored.plan.peak_bytes("packed parameters"),
            wide.plan.peak_bytes("frozen parameters") / 5);
  // Floats of a file stay as they are where they are asked to, and only then.
  const Bench kept(directory_ / "floats", Held::kAll), plain(directory_ / "floats", Held::kWide);
  expect_same(kept, plain);
  EXPECT_GT(kept.plan.peak_bytes("packed parameters"), 0U);
  EXPECT_EQ(Bench(directory_ / "floats", Held::kQuantised).gradients, plain.gradients);
}

constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "vocab_size": 12, "hidden_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "intermediate_size": 32, "max_position_embeddings": 64, "num_local_experts": 4,
  "num_experts_per_tok": 2, "sliding_window": 3, "tie_word_embeddings": false,
  "rope_scaling": {"rope_type": "default"}, "quantization_config": {"quant_method": "mxfp4"}})";

// gpt-oss's experts in MXFP4 with random bits, all else in floats.
class StoredExpertsTest : public StoredWeightsTest {
 protected:
  void SetUp() override {
    quantises_ = false;
    fs::create_directories(path());
    nn::build_model(nn::parse_config(kGptOss, "config.json"), {})->visit(*this);
    write_file(path() / "config.json", kGptOss);
    ckpt::write_safetensors(path() / "model.safetensors", tensors_);
  }
  void param(nn::Param& param) override {
    if (param.name.find(".mlp.experts.") == std::string::npos) {
      return StoredWeightsTest::param(param);
    }
    const bool is_down = param.name.find(".down.") != std::string::npos;
    const std::string stack =
        param.name.substr(0, param.name.rfind(is_down ? ".down." : ".gate_")) +
        (is_down ? ".down_proj" : ".gate_up_proj");
    const std::int64_t rows = param.spec.shape.dim(0) / 4;
    if (param.spec.shape.rank() == 1) return add_floats(stack + "_bias", {4, rows}, Dtype::kF32);
    const std::int64_t blocks = param.spec.shape.dim(1) / 32;
    add_bytes(stack + "_blocks", {4, rows, blocks, 16}, 0, 256);
    add_bytes(stack + "_scales", {4, rows, blocks}, 121, 4);
    elements_ += static_cast<std::size_t>(param.spec.shape.num_elements());
  }
  void add_bytes(const std::string& name, const Shape& shape, int first, int count) {
    const auto codes = test::random_tokens(shape, count, tensors_.size());
    std::string bytes;
    for (const std::int32_t code : codes.values) bytes += static_cast<char>(first + code);
    add(name, bytes, {Dtype::kU8, shape});
  }
};

TEST_F(StoredExpertsTest, ComputeWhatTheyComputeWidened) {
  EXPECT_EQ(quantisation_of(path()), "mxfp4");
  const std::vector<std::string> all = {"experts.gate_up_proj", "experts.down_proj"};
  for (const auto& parameters : {std::vector<std::string>{}, all}) {
    const Bench stored(path(), Held::kQuantised, {}, parameters);
    const Bench wide(path(), Held::kWide, {}, parameters);
    expect_same(stored, wide);
    const Bench again(path(), Held::kQuantised, {.recompute = nn::RecomputeMode::kFull},
                      parameters);
    EXPECT_EQ(again.gradients, stored.gradients);
  }
}

TEST_F(StoredExpertsTest, TakeTheMemoryOfTheirBits) {
  const Bench stored(path(), Held::kQuantised), wide(path(), Held::kWide);
  EXPECT_GE(stored.plan.peak_bytes("packed parameters"), elements_ / 32 * 17);
  EXPECT_LT(stored.plan.peak_bytes("frozen parameters") + 3 * elements_,
            wide.plan.peak_bytes("frozen parameters"));
}

TEST_F(StoredWeightsTest, WhatIsWrittenHasFloats) {
  const nn::ModelConfig config = read_model_config(path());
  EXPECT_THAT(config.source_json, HasSubstr("quantization_config"));
  EXPECT_THAT(nn::config_json(config), AllOf(HasSubstr("llama"), Not(HasSubstr("quant"))));
  const ckpt::HfDirectory directory(path());
  const ckpt::FileDtypes dtypes = ckpt::widened_dtypes(directory);
  EXPECT_EQ(dtypes.at("model.layers.0.mlp.up_proj.weight"), Dtype::kBf16);
  EXPECT_FALSE(dtypes.contains("model.layers.0.mlp.up_proj.weight.absmax"));
}

TEST_F(StoredWeightsTest, AWeightOfAnotherShapeIsRefusedByName) {
  std::string config = read_file(path() / "config.json");
  const std::string width = "\"intermediate_size\":256";
  config.replace(config.find(width), width.size(), "\"intermediate_size\":128");
  write_file(path() / "config.json", config);
  for (const Held held : {Held::kWide, Held::kQuantised}) {
    EXPECT_THAT(error_of([&] { const Bench bench(path(), held); }),
                AllOf(HasSubstr("_proj.weight"), HasSubstr("256"), HasSubstr("128")));
  }
}

TEST_F(StoredWeightsTest, RanksThatSharedProductsDoNotCutBits) {
  const nn::ModelConfig config = read_model_config(path());
  const auto model = nn::build_model(config, {.tensor_size = 2});
  EXPECT_THAT(error_of([&] { keep_stored(path(), StoredWeights::kQuantised, true, *model); }),
              AllOf(HasSubstr("parallel.tp"), HasSubstr("model.held_as=wide")));
  const auto on_gpu = nn::build_model(config, {.device = DeviceKind::kCuda});
  EXPECT_THAT(error_of([&] { keep_stored(path(), StoredWeights::kQuantised, true, *on_gpu); }),
              HasSubstr("--device=cpu"));
}

}  // namespace
}  // namespace atl::model_dir
