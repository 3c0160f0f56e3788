// muP: what it makes of initial values and of steps, alone and in every layout.

#include <algorithm>
#include <cmath>

#include "atoll/train/model/options.h"
#include "atoll/train/ranks/ranks_testing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kBaseWidth = 6, kBaseHeadDim = 3;  // of testing::tiny_model: 24 and 6
constexpr double kWidth = 4;
const double kQueries = std::sqrt(0.5);

StateOptions options_of(const std::string& family, bool is_mup,
                        const std::string& optimizer = "adamw") {
  StateOptions options;
  options.model = testing::tiny_model(family);
  options.model.qkv_bias = family == "qwen2";
  options.model.qk_norm = family == "qwen3";
  options.build = {.mup_base_width = is_mup ? kBaseWidth : 0,
                   .mup_base_head_dim = is_mup ? kBaseHeadDim : 0};
  options.optimizer.kind = optimizer;
  if (optimizer == "adamw") options.optimizer.values["eps"] = 1e-30;
  options.micro_batch = 2;
  options.context = 8;
  return options;
}

using Values = std::map<std::string, std::vector<float>>;

Values values_of(TrainState& state) {
  Values all;
  for (const nn::Param* param : state.store().params()) {
    const auto* data = param->value.data<float>();
    all[param->name] = {data, data + param->value.num_elements()};
  }
  return all;
}

// What the rule makes of an element: of its initial value, and of its learning rate.
struct Factors {
  double value = 1, rate = 1;
};
Factors factors_of(const nn::ModelConfig& model, const std::string& name, std::size_t element) {
  const bool is_query = name.find("q_proj") != name.npos || name.find("c_attn") != name.npos;
  const bool is_bias = name.ends_with(".bias");
  const auto columns = static_cast<std::size_t>(is_bias ? 1 : model.hidden_size);
  const bool in_queries =
      is_query && element < columns * static_cast<std::size_t>(model.heads.query_width());
  const double queries = in_queries ? kQueries : 1;
  if (name == "model.norm.weight" || name.starts_with("transformer.ln_f")) {
    return {1 / kWidth, 1 / kWidth};
  }
  const bool is_hidden = name.find("proj") != name.npos || name.find("c_attn") != name.npos ||
                         name.find("c_fc") != name.npos;
  if (is_hidden && !is_bias) return {queries / std::sqrt(kWidth), queries / kWidth};
  return {1, is_hidden ? queries : 1};
}

TEST(Mup, ScalesInitialValuesOfTheStandardParametrisation) {
  for (const char* family : {"llama", "qwen2", "gpt2"}) {
    testing::Bench standard(options_of(family, false)), mup(options_of(family, true));
    const Values expected = values_of(standard.state);
    for (const auto& [name, values] : values_of(mup.state)) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double factor = factors_of(standard.state.options().model, name, i).value;
        ASSERT_NEAR(values[i], factor * expected.at(name)[i], 1e-6) << family << " " << name;
      }
    }
  }
}

// The first step of these optimizers takes every element by its learning rate, up or down.
TEST(Mup, ScalesLearningRatesAndNotWeightDecay) {
  constexpr double kLr = 0.01, kDecay = 0.5;
  for (const char* optimizer : {"adamw", "lion"}) {
    for (const char* family : {"llama", "qwen2", "gpt2"}) {
      StateOptions options = options_of(family, true, optimizer);
      options.optimizer.values["weight_decay"] = kDecay;
      testing::Bench bench(options);
      const Values before = values_of(bench.state);
      bench.step({.lr = kLr});
      std::map<std::string, bool> decays;
      for (const nn::Param* param : bench.state.store().params()) {
        decays[param->name] = param->decay;
      }
      for (const auto& [name, values] : values_of(bench.state)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float was = before.at(name)[i];
          const double step = values[i] - was * (decays[name] ? 1 - kLr * kDecay : 1);
          if (std::abs(step) < 1e-6) continue;  // an embedding of a token that was not there
          const double rate = factors_of(options.model, name, i).rate;
          ASSERT_NEAR(std::abs(step), kLr * rate, 1e-3 * kLr) << family << " " << name << " " << i;
        }
      }
    }
  }
}

TEST(Mup, ScalesANormOfQueriesInPlaceOfThem) {
  testing::Bench standard(options_of("qwen3", false)), mup(options_of("qwen3", true));
  const Values expected = values_of(standard.state);
  for (const auto& [name, values] : values_of(mup.state)) {
    if (name.ends_with("q_norm.weight")) {
      EXPECT_NEAR(values[0], kQueries, 1e-6);
    }
    if (name.ends_with("k_norm.weight")) {
      EXPECT_EQ(values[0], 1);
    }
    if (name.find("q_proj") == name.npos) continue;
    EXPECT_NEAR(values[0], expected.at(name)[0] / std::sqrt(kWidth), 1e-6);
  }
}

TEST(Mup, OfTheBaseWidthIsTheStandardParametrisationToTheBit) {
  for (const char* family : {"llama", "gpt2"}) {
    StateOptions options = options_of(family, false);
    testing::Bench standard(options);
    options.build.mup_base_width = options.model.hidden_size;
    options.build.mup_base_head_dim = options.model.heads.head_dim;
    testing::Bench mup(options);
    for (testing::Bench* bench : {&standard, &mup}) {
      for (std::int64_t step = 0; step < 3; ++step) bench->step({.step = step, .lr = 0.01});
    }
    EXPECT_TRUE(standard.values() == mup.values()) << family;
  }
}

TEST(Mup, RefusesWiderHeadsWhoseQueriesAreAmongKeysAndValues) {
  nn::ModelConfig model = options_of("llama", false).model;
  model.family = "gpt_neox";
  model.heads.num_kv_heads = model.heads.num_heads;
  nn::BuildOptions build = {.mup_base_width = model.hidden_size,
                            .mup_base_head_dim = model.heads.head_dim};
  EXPECT_NO_THROW(nn::build_model(model, build));
  build.mup_base_head_dim /= 2;
  try {
    nn::build_model(model, build);
    ADD_FAILURE() << "built";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("side by side"));
  }
}

TEST(Mup, RefusesAModelWithExperts) {
  StateOptions options = options_of("llama", true);
  options.model.family = "mixtral";
  options.model.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 40};
  try {
    const TrainState state(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mup"), HasSubstr("mixtral")));
  }
}

class MupRun : public RanksFixture {
 protected:
  static std::vector<std::string> with(const std::vector<std::string>& more) {
    std::vector<std::string> all = {
        "--model.parametrisation=mup", "--model.mup_base_width=8", "--model.mup_base_head_dim=2",
        "--train.batch_size=8",        "--train.micro_batch=2",    "--train.steps=8",
        "--train.dropout=0",           "--optim.lr=0.01",          "--optim.clip=0.2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_near(const Ended& ended, const Ended& expected) {
    const std::vector<double> losses = values_of(ended.records, "loss");
    const std::vector<double> wanted = values_of(expected.records, "loss");
    ASSERT_EQ(losses.size(), wanted.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 2e-4) << i;
  }
};

TEST_F(MupRun, HasTheLossOfOneRankInEveryLayout) {
  for (const std::string family : {"llama", "gpt2"}) {
    const auto run = [&](const std::string& name, int ranks, std::vector<std::string> more) {
      more.insert(more.end(), {"--model.family=" + family, "--model.num_key_value_heads"});
      return train_ranks(family + name, ranks, with(more));
    };
    const Ended expected = run("one", 1, {});
    expect_near(run("tp", 2, {"--parallel.tp=2"}), expected);
    expect_near(run("tp4", 4, {"--parallel.tp=4"}), expected);
    expect_near(run("pp", 2, {"--parallel.pp=2"}), expected);
    expect_near(run("cp", 2, {"--parallel.cp=2"}), expected);
    expect_near(run("hybrid", 8, {"--parallel.tp=2", "--parallel.pp=2", "--dp.zero=3"}), expected);
    const Ended ranks = run("zero0", 2, {});
    for (const char* zero : {"1", "2", "3"}) {
      const Ended ended = run(std::string("zero") + zero, 2,
                              {std::string("--dp.zero=") + zero, "--dp.bucket_mib=0.01"});
      EXPECT_TRUE(ended.values == ranks.values) << family << zero;
    }
  }
}

TEST_F(MupRun, GoesOnFromItsCheckpoint) {
  const Ended expected = train_ranks("whole", 2, with({"--dp.zero=1"}));
  EXPECT_EQ(train_ranks("parts", 2, with({"--dp.zero=1"}), 3).outcome.step, 3);
  EXPECT_TRUE(train_ranks("parts", 2, with({"--dp.zero=1"})).values == expected.values);
}

TEST_F(MupRun, IsThatOfAnOffloadedOptimizer) {
  const Ended expected = train_ranks("memory", 1, with({}));
  const Ended ended =
      train_ranks("file", 1, with({"--offload.optimizer=file", "--offload.piece_mib=0.05"}));
  EXPECT_TRUE(ended.values == expected.values);
}

TEST_F(MupRun, IsRefusedBesideWhatHasNoRule) {
  const auto fails = [&](std::vector<std::string> more) {
    return error_of([&] { train("bad", with(more)); }, ErrorKind::kUser);
  };
  EXPECT_THAT(fails({"--optim.kind=muon"}), AllOf(HasSubstr("optim.kind"), HasSubstr("adamw")));
  EXPECT_THAT(fails({"--optim.kind=sgd"}), HasSubstr("optim.kind"));
  EXPECT_THAT(fails({"--dp.compress=onebit_adam"}), HasSubstr("dp.compress"));
  EXPECT_THAT(fails({"--lora.rank=2"}), HasSubstr("lora.rank"));
  EXPECT_THAT(fails({"--model.family=mixtral"}), HasSubstr("experts"));
  const auto plain = [&](std::vector<std::string> more) {
    return error_of([&] { train("bad", more); }, ErrorKind::kUser);
  };
  EXPECT_THAT(plain({"--model.parametrisation=mup", "--model.mup_base_head_dim=2"}),
              HasSubstr("model.mup_base_width"));
  EXPECT_THAT(plain({"--model.parametrisation=mup", "--model.mup_base_width=8"}),
              HasSubstr("model.mup_base_head_dim"));
  EXPECT_THAT(plain({"--model.mup_base_width=8"}), HasSubstr("needs model.parametrisation mup"));
}

TEST_F(MupRun, StaysWhatItWasBegunWith) {
  train("run", with({"--train.steps=4"}));
  const std::string error = error_of(
      [&] {
        train("run", with({"--train.steps=6", "--model.mup_base_width=16"}));
      },
      ErrorKind::kUser);
  EXPECT_THAT(error, HasSubstr("model.mup_base_width"));
}

}  // namespace
}  // namespace atl::train
