// LoRA beside frozen weights in the 4 bits of their files: the numbers are those of the same
// weights widened, and the memory is that of the bits.

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/ckpt/quantised/quantised.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/model/options.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::array<float, 16> kNf4 = {-1.0F,
                                        -0.6961928009986877F,
                                        -0.5250730514526367F,
                                        -0.39491748809814453F,
                                        -0.28444138169288635F,
                                        -0.18477343022823334F,
                                        -0.09105003625154495F,
                                        0.0F,
                                        0.07958029955625534F,
                                        0.16093020141124725F,
                                        0.24611230194568634F,
                                        0.33791524171829224F,
                                        0.44070982933044434F,
                                        0.5626170039176941F,
                                        0.7229568362236023F,
                                        1.0F};
constexpr std::size_t kBlock = 64;

// A weight as bitsandbytes stores it, with f32 factors.
struct Nf4Tensors {
  std::vector<std::uint8_t> codes;
  std::vector<float> factors;
  std::string state;

  Nf4Tensors(std::span<const float> values, const Shape& shape)
      : codes((values.size() + 1) / 2),
        state(fmt::format(R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "float32", )"
                          R"("shape": [{}, {}]}})",
                          kBlock, shape.dim(0), shape.dim(1))) {
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
      const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
      float largest = 0;
      for (const float value : block) largest = std::max(largest, std::abs(value));
      factors.push_back(largest);
      for (std::size_t i = 0; i < block.size(); ++i) {
        put(begin + i, nearest(largest > 0 ? block[i] / largest : 0));
      }
    }
  }

 private:
  static unsigned nearest(float value) {
    unsigned best = 0;
    for (unsigned code = 1; code < kNf4.size(); ++code) {
      if (std::abs(kNf4[code] - value) < std::abs(kNf4[best] - value)) best = code;
    }
    return best;
  }
  void put(std::size_t at, unsigned code) {
    const unsigned shift = at % 2 == 0 ? 4 : 0;
    codes[at / 2] = static_cast<std::uint8_t>(codes[at / 2] | code << shift);
  }
};

class QuantisedBase : public RanksFixture {
 protected:
  // Trains a model and quantises its projections.
  void SetUp() override {
    RanksFixture::SetUp();
    base_ = train("base").checkpoint;
    quantise();
    inline_model_ = false;
  }

  void quantise() {
    const ckpt::HfDirectory base(base_);
    quantised_ = root_ / "nf4";
    fs::create_directories(quantised_);
    std::deque<std::vector<float>> floats;
    std::deque<Nf4Tensors> packed;
    std::vector<ckpt::NamedTensor> tensors;
    const auto add = [&](const std::string& name, auto& values, Dtype dtype, Shape shape) {
      tensors.push_back({name, Tensor(values.data(), {dtype, shape})});
    };
    std::array<float, 16> map = kNf4;
    for (const std::string& name : base.tensor_names()) {
      const Shape shape = base.spec(name).shape;
      auto& values = floats.emplace_back(static_cast<std::size_t>(shape.num_elements()));
      base.read_f32(name, values);
      if (name.find("_proj.") == name.npos) {
        add(name, values, Dtype::kF32, shape);
        continue;
      }
      Nf4Tensors& nf4 = packed.emplace_back(values, shape);
      add(name, nf4.codes, Dtype::kU8, {std::ssize(nf4.codes), 1});
      add(name + ".absmax", nf4.factors, Dtype::kF32, {std::ssize(nf4.factors)});
      add(name + ".quant_map", map, Dtype::kF32, {16});
      add(name + ".quant_state.bitsandbytes__nf4", nf4.state, Dtype::kU8, {std::ssize(nf4.state)});
      quantised_elements_ += shape.num_elements();
    }
    ckpt::write_safetensors(quantised_ / "model.safetensors", tensors);
    auto config = nlohmann::json::parse(base.config_json());
    config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
    write_file(quantised_ / "config.json", config.dump());
    fs::copy_file(base_ / "tokenizer.json", quantised_ / "tokenizer.json");
  }

  std::vector<std::string> lora(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> settings = {"--model.from=" + quantised_.string(), "--lora.rank=4",
                                         "--optim.lr=0.01"};
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  }
  StateOptions options_of(const std::vector<std::string>& overrides, int ranks = 1) {
    config_ = std::make_unique<TrainConfig>();
    Settings settings = make_settings(*config_);
    configure(settings, "plan", overrides);
    validate(*config_, settings);
    return state_options(*config_, 1, -1, ranks);
  }
  void expect_same_files(const TrainOutcome& a, const TrainOutcome& b) {
    for (const fs::directory_entry& entry : fs::directory_iterator(a.checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      EXPECT_EQ(read_file(b.checkpoint / entry.path().filename()), read_file(entry.path()))
          << entry.path();
    }
  }

  fs::path base_, quantised_;
  std::int64_t quantised_elements_ = 0;
  std::unique_ptr<TrainConfig> config_;
};

// The widened matrices are the same numbers; products of a tile may add in another order, which is
// a few units of the last place in each of 20 steps.
TEST_F(QuantisedBase, TrainsAsItsWidenedWeightsDo) {
  const double stored = train("stored", lora()).held_out->loss;
  const double wide = train("wide", lora({"--model.held_as=wide"})).held_out->loss;
  EXPECT_NEAR(stored, wide, 1e-4 * wide);
  // The base itself is another: quantising has changed it.
  const double plain =
      train("plain", {"--model.from=" + base_.string(), "--lora.rank=4", "--optim.lr=0.01"})
          .held_out->loss;
  EXPECT_GT(std::abs(plain - wide), 1e-4 * wide);
}

TEST_F(QuantisedBase, ResumesBitwise) {
  const std::vector<std::string> settings = lora({"--train.recompute=full", "--lora.dropout=0.1"});
  const TrainOutcome whole = train("whole", settings);
  EXPECT_EQ(train("parts", settings, 7).step, 7);
  const TrainOutcome rest = train("parts", settings);
  expect_same_files(whole, rest);
  EXPECT_EQ(rest.held_out->loss, whole.held_out->loss);
}

// What ranks share is the adapter alone: the bits are on each.
TEST_F(QuantisedBase, RanksShareTheAdapterByEveryStageOfZero) {
  const Ended plain = train_ranks("zero0", 2, lora({"--dp.zero=0"}));
  for (const char* zero : {"1", "2", "3"}) {
    const std::string setting = std::string("--dp.zero=") + zero;
    EXPECT_EQ(train_ranks("zero" + std::string(zero), 2, lora({setting})).values, plain.values)
        << zero;
  }
  // One rank sums the same gradients in another order.
  EXPECT_NEAR(plain.outcome.held_out->loss, train("one", lora()).held_out->loss,
              1e-3 * plain.outcome.held_out->loss);
}

TEST_F(QuantisedBase, TrainsInBf16) {
  const double stored = train("stored", lora({"--train.dtype=bf16"})).held_out->loss;
  const double wide =
      train("wide", lora({"--train.dtype=bf16", "--model.held_as=wide"})).held_out->loss;
  // Wide rounds the weights to bf16 too, by 2^-9 of each.
  EXPECT_NEAR(stored, wide, 0.02 * wide);
}

TEST_F(QuantisedBase, ItsMemoryIsThatOfTheBits) {
  const TrainState stored(options_of(lora())), wide(options_of(lora({"--model.held_as=wide"})));
  const auto elements = static_cast<std::size_t>(quantised_elements_);
  // Half a byte and 4 bytes for each 64, in parts that begin on cache lines; and floats that are
  // kept as floats: the embedding and the head.
  const std::int64_t vocab = model_dir::read_model_config(quantised_).vocab_size;
  const std::size_t tables = 2 * static_cast<std::size_t>(vocab) * 32 * sizeof(float);
  const std::size_t least = elements / 2 + elements / kBlock * sizeof(float);
  const std::size_t packed = stored.memory().peak_bytes("packed parameters");
  EXPECT_GE(packed, least);
  EXPECT_LE(packed, least + tables + std::size_t{14} * 2 * 2 * kArenaAlignment);
  EXPECT_EQ(wide.memory().peak_bytes("packed parameters"), 0U);
  EXPECT_LT(stored.memory().peak_bytes("frozen parameters") + packed + 3 * elements,
            wide.memory().peak_bytes("frozen parameters"));
}

TEST_F(QuantisedBase, FloatsOfSixteenBitsStayThatWide) {
  train("narrow", {"--model.from=" + base_.string(), "--train.dtype=bf16", "--train.steps=1",
                   "--optim.warmup_steps=0"});
  const fs::path narrow = root_ / "narrow";
  const std::vector<std::string> settings = {"--model.from=" + narrow.string(), "--lora.rank=4"};
  std::vector<std::string> kept = settings;
  kept.emplace_back("--model.held_as=stored");
  const double stored = train("stored", kept).held_out->loss;
  EXPECT_NEAR(stored, train("wide", settings).held_out->loss, 1e-4 * stored);
  const TrainState half(options_of(kept)), wide(options_of(settings));
  EXPECT_LT(half.memory().peak_bytes("packed parameters"),
            wide.memory().peak_bytes("frozen parameters") * 51 / 100);
}

TEST_F(QuantisedBase, WithoutAnAdapterItIsTrainedWideOrNotAtAll) {
  const std::vector<std::string> whole = {"--model.from=" + quantised_.string()};
  EXPECT_THAT(error_of([&] { train("run", whole); }, ErrorKind::kUser),
              AllOf(HasSubstr("bitsandbytes nf4"), HasSubstr("lora.rank=16"),
                    HasSubstr("model.held_as=wide")));
  std::vector<std::string> wide = whole;
  wide.emplace_back("--model.held_as=wide");
  const TrainOutcome outcome = train("run", wide);
  EXPECT_EQ(outcome.step, 20);
  const ckpt::HfDirectory written(outcome.checkpoint);
  EXPECT_TRUE(written.contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(written.config_json(), ::testing::Not(HasSubstr("quantization_config")));
}

TEST_F(QuantisedBase, WhatDoesNotGoWithItIsRefusedByName) {
  for (const auto& [setting, words] :
       {std::pair{"--parallel.tp=2", "parallel.tp"}, {"--parallel.pp=2", "parallel.pp"}}) {
    EXPECT_THAT(
        error_of([&] { const TrainState state(options_of(lora({setting}), 2)); }, ErrorKind::kUser),
        AllOf(HasSubstr(words), HasSubstr("model.held_as=wide")))
        << setting;
  }
}

}  // namespace
}  // namespace atl::train
