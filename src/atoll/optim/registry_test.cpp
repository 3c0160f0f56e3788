// What every optimizer of the registry promises, and that a new one needs its own file alone: the
// toy below stands for such a file.

#include "atoll/optim/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <set>

#include "atoll/base/error.h"
#include "atoll/ops/testing.h"
#include "atoll/ops/update/sgd.h"
#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/settings.h"

namespace atl::optim {

// For GoogleTest, which would print bytes.
static void PrintTo(const OptimizerKind& kind, std::ostream* out) {
  *out << kind.name;
}

namespace {

using test::OwnedTensor;
using test::TestRun;
using ::testing::HasSubstr;

// -------------------------------------------------------------------------------------------------
// A file as an optimizer has one.

class Toy final : public FlatOptimizer {
 public:
  Toy(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/true)),
        inertia_(options.number("toy_inertia")),
        m_(add_state("toy_buffer")) {}

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    for (const ParamRange& range : ranges()) {
      ops::sgd(run, {.lr = args.lr, .momentum = inertia_, .grad_scale = args.grad_scale},
               target_of(run, args, values, range), grads_of(grads, range), state_of(m_, range));
    }
  }

 private:
  double inertia_;
  std::size_t m_;
};

void check_toy(const OptimizerOptions& options, const NameOption& named) {
  if (options.word("toy_mood") == "still" && options.number("toy_inertia") > 0.5) {
    throw user_error("{} moves; set optim.toy_mood=lively", named("toy_inertia"));
  }
}

OptimizerKind toy_optimizer() {
  return {.name = "toy",
          .doc = "toy for tests",
          .options =
              {{.name = "toy_inertia",
                .default_value = 0.25,
                .doc = "how little it turns.",
                .range = between(0.125, 0.75),
                .elsewhere = {"toy_mass"}},
               {.name = "toy_mood",
                .default_value = "lively",
                .doc = "how it is.",
                .choices = one_of({"lively", "still"})},
               {.name = "toy_steps", .default_value = 3, .doc = "a count.", .range = at_least(1)},
               weight_decay_option()},
          .state_vectors = {"toy_buffer"},
          .check = check_toy,
          .make = [](const OptimizerOptions& options, Spec flat,
                     std::span<const ParamRange> ranges) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Toy>(options, flat, ranges);
          }};
}

std::vector<OptimizerKind> kinds_and_toy() {
  std::vector<OptimizerKind> kinds(optimizer_kinds().begin(), optimizer_kinds().end());
  kinds.push_back(toy_optimizer());
  return kinds;
}

// -------------------------------------------------------------------------------------------------
// The contract.

constexpr std::int64_t kSize = 160;
// Two matrices with padding behind the first, and a vector.
constexpr ParamRange kRanges[] = {
    {0, 64, true, true, 6, 10}, {64, 64, true, true, 8, 8}, {128, 32, false}};

OwnedTensor<float> numbers(std::uint64_t seed) {
  OwnedTensor<float> tensor = test::random_tensor<float>({kSize}, seed);
  std::fill(tensor.values.begin() + 60, tensor.values.begin() + 64, 0.0F);  // the padding
  return tensor;
}

// One optimizer over `ranges` with its memory.
class Bench {
 public:
  Bench(const OptimizerKind& kind, std::span<const ParamRange> ranges, Dtype dtype = Dtype::kF32)
      : run_(1, 64), optimizer_(make_optimizer(kind, {}, {dtype, {kSize}}, ranges)) {
    optimizer_->request(plan_);
    const int scratch = plan_.request_forever("scratch", "scratch", optimizer_->scratch_bytes());
    plan_.place();
    arena_ = std::make_unique<Arena>(*run_.device, plan_);
    optimizer_->bind(*arena_);
    run_.run.scratch = {arena_->data(scratch), optimizer_->scratch_bytes()};
  }

  void update(OwnedTensor<float>& values, int step) {
    OwnedTensor<float> grads = numbers(100 + static_cast<std::uint64_t>(step));
    optimizer_->update(run_, {.lr = 0.01, .grad_scale = 0.5, .step = step}, values, grads);
  }
  std::vector<StateTensor> state() const { return optimizer_->state(); }

 private:
  TestRun run_;
  std::unique_ptr<Optimizer> optimizer_;
  MemoryPlan plan_;
  std::unique_ptr<Arena> arena_;
};

std::string error_of(const OptimizerKind& kind, const OptimizerOptions& options) {
  try {
    make_optimizer(kind, options, {Dtype::kF32, {kSize}}, kRanges);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

class EveryOptimizer : public testing::TestWithParam<OptimizerKind> {};

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer, testing::ValuesIn(kinds_and_toy()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryOptimizer, HasTheStateThatItsEntryNames) {
  const OptimizerKind& kind = GetParam();
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    std::set<std::string> expected(kind.state_vectors.begin(), kind.state_vectors.end());
    if (dtype == Dtype::kBf16) expected.insert("master");
    std::map<std::string, std::int64_t> sizes;
    for (const StateTensor& piece : Bench(kind, kRanges, dtype).state()) {
      sizes[piece.name] += piece.tensor.num_elements();
      EXPECT_LE(piece.begin + piece.tensor.num_elements(), kSize);
    }
    std::set<std::string> found;
    for (const auto& [name, size] : sizes) {
      found.insert(name);
      EXPECT_LE(size, kSize) << name << ": one number for an element, and each element once";
    }
    EXPECT_EQ(found, expected);
  }
}

TEST_P(EveryOptimizer, MovesEveryElementAndLeavesPaddingAlone) {
  Bench bench(GetParam(), kRanges);
  const OwnedTensor<float> before = numbers(1);
  OwnedTensor<float> values = before;
  for (int step = 1; step <= 3; ++step) bench.update(values, step);
  for (std::int64_t i = 0; i < kSize; ++i) {
    const bool padding = i >= 60 && i < 64;
    EXPECT_EQ(values[i] == before[i], padding) << i;
  }
}

// What ZeRO rests on: ranks that hold parts of the vector do together what one does, where parts
// may end anywhere, or between matrices for an optimizer that needs these whole.
TEST_P(EveryOptimizer, PartsOfTheVectorHaveTheBitsOfTheWhole) {
  const OptimizerKind& kind = GetParam();
  std::vector<std::vector<ParamRange>> parts;
  if (kind.whole_matrices) {
    parts = {{kRanges[0]}, {kRanges[1], {128, 7, false}}, {{135, 25, false}}};
  } else {
    parts = {
        {{0, 21, true}}, {{21, 43, true}, {64, 64, true}, {128, 1, false}}, {{129, 31, false}}};
  }
  OwnedTensor<float> whole = numbers(1);
  Bench one(kind, kRanges);
  for (int step = 1; step <= 3; ++step) one.update(whole, step);
  OwnedTensor<float> together = numbers(1);
  for (const std::vector<ParamRange>& part : parts) {
    Bench bench(kind, part);
    for (int step = 1; step <= 3; ++step) bench.update(together, step);
  }
  EXPECT_EQ(together, whole);
}

TEST_P(EveryOptimizer, RefusesEachOptionOutsideOfWhatItDeclares) {
  const OptimizerKind& kind = GetParam();
  EXPECT_EQ(error_of(kind, {}), "no error");
  for (const Option& option : kind.options) {
    EXPECT_NO_THROW(check_value(option, option.default_value)) << option.name;
    std::vector<SettingValue> bad;
    if (std::holds_alternative<double>(option.default_value)) {
      bad = {std::nan(""), std::numeric_limits<double>::infinity()};
      if (std::isfinite(option.range.low)) bad.emplace_back(option.range.low - 1);
    } else if (std::holds_alternative<std::int64_t>(option.default_value)) {
      if (std::isfinite(option.range.low)) {
        bad.emplace_back(static_cast<std::int64_t>(option.range.low) - 1);
      }
    } else if (std::holds_alternative<std::string>(option.default_value)) {
      bad = {"none of these"};
    }
    for (const SettingValue& value : bad) {
      EXPECT_THAT(error_of(kind, {.values = {{option.name, value}}, .peak_lr = 1}),
                  HasSubstr(option_key(option.name)));
    }
  }
  EXPECT_THAT(error_of(kind, {.values = {{"no_such", 1.0}}}), HasSubstr("optim.no_such"));
}

TEST_P(EveryOptimizer, HasADocumentedNameAndItsFunctions) {
  const OptimizerKind& kind = GetParam();
  EXPECT_THAT(kind.doc, testing::StartsWith(kind.name));
  EXPECT_NE(kind.make, nullptr);
  std::set<std::string> names;
  for (const Option& option : kind.options) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name << " stands twice";
    EXPECT_THAT(option.doc, testing::EndsWith("."));
  }
}

TEST(Registry, FindsEveryOptimizerByItsName) {
  std::set<std::string> names;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name << " stands twice";
    EXPECT_EQ(&find_optimizer(kind.name), &kind);
  }
  EXPECT_EQ(optimizer_kinds().front().name, OptimizerOptions().kind) << "the default is first";
  EXPECT_THROW(find_optimizer("toy"), Error);
}

// -------------------------------------------------------------------------------------------------
// Settings follow from entries.

TEST(OptimizerSettings, AnOptionOfANewOptimizerIsASettingByItself) {
  const std::vector<OptimizerKind> kinds = kinds_and_toy();
  OptionValues values = default_values(kinds);
  Settings settings;
  register_default_options(settings, values, kinds);
  register_other_options(settings, values, kinds);
  settings.override("--optim.toy_inertia=0.5");
  settings.override("--optim.toy_steps=7");
  const OptionValues of_toy = values_for(kinds.back(), values);
  EXPECT_EQ(of_toy, (OptionValues{{"toy_inertia", 0.5},
                                  {"toy_mood", "lively"},
                                  {"toy_steps", std::int64_t{7}},
                                  {"weight_decay", 0.1}}));
  EXPECT_EQ(error_of(kinds.back(), {.values = of_toy}), "no error");
  EXPECT_THROW(settings.override("--optim.toy_mood=cross"), Error);
  EXPECT_EQ(settings.nearest("toy_mass"), "optim.toy_inertia");
  EXPECT_EQ(settings.find("optim.toy_inertia").doc, "toy: how little it turns.");
  EXPECT_EQ(settings.find("optim.weight_decay").doc,
            "Decoupled weight decay of matrices; norms and biases have none.");
  EXPECT_EQ(settings.find("optim.momentum").doc, "muon and sgd: decay of the momentum.");
  EXPECT_EQ(describe(kinds),
            "adamw; muon for matrices with adamw for the rest; lion; sgd with momentum; toy for "
            "tests.");
  EXPECT_EQ(readers(kinds, "beta1"), "adamw, muon and lion");
}

TEST(OptimizerSettings, TheCheckOfAnOptimizerNamesOptionsAsItIsTold) {
  const OptimizerOptions options = {.values = {{"toy_inertia", 0.625}, {"toy_mood", "still"}}};
  EXPECT_THAT(error_of(toy_optimizer(), options), HasSubstr("optim.toy_inertia moves"));
  try {
    check_options(toy_optimizer(), options,
                  [](const std::string& option) { return option + " (0.625, r.toml:3)"; });
    ADD_FAILURE() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "toy_inertia (0.625, r.toml:3) moves; set optim.toy_mood=lively");
  }
}

TEST(OptimizerSettings, OneKeyHasOneMeaning) {
  std::vector<OptimizerKind> kinds = {toy_optimizer(), toy_optimizer()};
  EXPECT_EQ(all_options(kinds).size(), toy_optimizer().options.size());
  kinds[1].options[0].default_value = 0.5;
  EXPECT_THROW(all_options(kinds), Error);
}

}  // namespace
}  // namespace atl::optim
