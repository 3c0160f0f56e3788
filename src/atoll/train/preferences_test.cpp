// Runs on answers that are compared: they learn, resume bitwise, and every layout has the numbers
// of one rank.

#include <array>
#include <cmath>

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Preferences : public RanksFixture {
 protected:
  void SetUp() override {
    RanksFixture::SetUp();
    inline_model_ = true;
    base_ = train("base", {"--train.steps=3"}).checkpoint;
    inline_model_ = false;
    write_rows();
  }

  // Answers of words, the chosen one of sea and the other of land.
  void write_rows() {
    const RngStream stream(9, RngPurpose::kSynthetic);
    const std::array<const char*, 4> good = {"the sea is wide", "of islands", "a ring", "the sea"};
    const std::array<const char*, 4> bad = {"there lies", "and there", "is and of", "there is"};
    std::string pairs, labels;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const char* prompt = stream.word(i) % 2 == 0 ? "the ring lies" : "there is";
      const std::string chosen = fmt::format(" {}.", good[stream.word(i + 100) % good.size()]);
      const std::string rejected = fmt::format(" {}.", bad[stream.word(i + 200) % bad.size()]);
      pairs += fmt::format(R"({{"prompt": "{}", "chosen": "{}", "rejected": "{}"}})"
                           "\n",
                           prompt, chosen, rejected);
      const bool is_good = i % 2 == 0;
      labels += fmt::format(R"({{"prompt": "{}", "completion": "{}", "label": {}}})"
                            "\n",
                            prompt, is_good ? chosen : rejected, is_good);
    }
    write_file(root_ / "pairs.jsonl", pairs);
    write_file(root_ / "labels.jsonl", labels);
  }

  std::vector<std::string> settings(const std::string& objective,
                                    const std::vector<std::string>& more = {}) const {
    const char* rows = objective == "kto" ? "labels.jsonl" : "pairs.jsonl";
    std::vector<std::string> all = {"--model.from=" + base_.string(),
                                    "--data.text=" + (root_ / rows).string(),
                                    "--train.objective=" + objective,
                                    "--data.held_out=0.2",
                                    "--optim.lr=0.003",
                                    "--train.steps=8",
                                    "--train.batch_size=8",
                                    "--train.dropout=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Sums of ranks are made in another order than those of one. Before the first step it is rounding
  // that says which answer is likelier than before.
  void expect_close(const Ended& ended, const Ended& expected) {
    for (const char* key : {"loss", "grad_norm", "reward_margin", "reward_accuracy",
                            "held_out_loss", "held_out_reward_margin"}) {
      const std::vector<double> ours = values_of(ended.records, key);
      const std::vector<double> theirs = values_of(expected.records, key);
      ASSERT_EQ(ours.size(), theirs.size()) << key;
      ASSERT_FALSE(ours.empty()) << key;
      const bool is_rounding = std::string_view(key) == "reward_accuracy";
      for (std::size_t i = is_rounding ? 1 : 0; i < ours.size(); ++i) {
        EXPECT_NEAR(ours[i], theirs[i], 2e-4 * std::max(1.0, std::abs(theirs[i])))
            << key << " of line " << i;
      }
    }
  }

  fs::path base_;
};

TEST_F(Preferences, EveryObjectiveLearnsToPreferWhatIsChosen) {
  for (const char* objective : {"dpo", "orpo", "kto"}) {
    SCOPED_TRACE(objective);
    const Ended ended =
        train_ranks(objective, 1, settings(objective, {"--train.steps=40", "--optim.lr=0.01"}));
    const std::vector<double> margins = values_of(ended.records, "reward_margin");
    EXPECT_GT(margins.back(), margins.front());
    EXPECT_GT(values_of(ended.records, "held_out_reward_accuracy").back(), 0.9);
    ASSERT_TRUE(ended.outcome.held_out->preferences.has_value());
    EXPECT_GT(ended.outcome.held_out->preferences->num_pairs, 2);
  }
}

TEST_F(Preferences, BeginAtTheReference) {
  const Ended ended = train_ranks("run", 1, settings("dpo"));
  EXPECT_NEAR(values_of(ended.records, "loss").front(), std::log(2.0), 1e-6);
  EXPECT_NEAR(values_of(ended.records, "reward_margin").front(), 0, 1e-5);
}

TEST_F(Preferences, ResumeBitwise) {
  for (const char* objective : {"dpo", "kto"}) {
    for (const char* rank : {"0", "3"}) {
      SCOPED_TRACE(fmt::format("{}, LoRA {}", objective, rank));
      const std::vector<std::string> all =
          settings(objective, {std::string("--lora.rank=") + rank, "--log.every=3"});
      const TrainOutcome whole = train("whole", all);
      EXPECT_EQ(train("parts", all, 3).step, 3);
      const TrainOutcome rest = train("parts", all);
      EXPECT_TRUE(RanksFixture::whole(rest.checkpoint) == RanksFixture::whole(whole.checkpoint));
      EXPECT_EQ(rest.held_out->loss, whole.held_out->loss);
      fs::remove_all(root_ / "whole");
      fs::remove_all(root_ / "parts");
    }
  }
}

TEST_F(Preferences, ReferencesAreMadeOnceAndAgainWhereTheyAreGone) {
  const std::vector<std::string> all = settings("dpo");
  const fs::path file = root_ / "run" / "data" / "reference.bin";
  train("run", all, 3);
  const std::string references = read_file(file);
  train("run", all, 5);
  EXPECT_TRUE(read_file(file) == references);
  fs::remove(file);
  train("run", all, 6);
  EXPECT_TRUE(read_file(file) == references);
  // Those of another model are not taken for them.
  fs::remove(file);
  fs::rename(base_, root_ / "old");
  fs::copy(root_ / "old", base_);
  fs::remove(base_ / "manifest.json");
  inline_model_ = true;
  const fs::path other = train("other", {"--train.steps=5"}).checkpoint;
  inline_model_ = false;
  fs::copy_file(other / "model.safetensors", base_ / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { train("run", all); }, ErrorKind::kUser),
              AllOf(HasSubstr("reference.bin is gone or damaged"), HasSubstr("run.dir")));
}

TEST_F(Preferences, DataParallelRanksAndZeroHaveTheBitsOfEachOther) {
  for (const char* objective : {"dpo", "orpo", "kto"}) {
    SCOPED_TRACE(objective);
    const Ended one = train_ranks(std::string(objective) + "1", 1, settings(objective));
    const Ended two = train_ranks(std::string(objective) + "2", 2, settings(objective));
    expect_close(two, one);
    for (const char* zero : {"1", "2", "3"}) {
      const std::string name = std::string(objective) + "-zero" + zero;
      const std::string setting = std::string("--dp.zero=") + zero;
      EXPECT_TRUE(train_ranks(name, 2, settings(objective, {setting})).values == two.values)
          << zero;
    }
    const Ended exact =
        train_ranks(std::string(objective) + "e1", 1, settings(objective, {"--train.exact=true"}));
    EXPECT_TRUE(
        train_ranks(std::string(objective) + "e3", 3, settings(objective, {"--train.exact=true"}))
            .values == exact.values);
  }
}

TEST_F(Preferences, RanksWithPartsOfTheModelHaveTheNumbersOfOne) {
  const Ended one = train_ranks("one", 1, settings("dpo"));
  const std::vector<std::pair<const char*, std::vector<std::string>>> layouts = {
      {"tp", {"--parallel.tp=2"}},
      {"cp", {"--parallel.cp=2"}},
      {"ring", {"--parallel.cp=2", "--parallel.cp_attention=ring"}}};
  for (const auto& [name, layout] : layouts) {
    SCOPED_TRACE(name);
    expect_close(train_ranks(name, 2, settings("dpo", layout)), one);
  }
  expect_close(train_ranks("pp", 2, settings("dpo", {"--parallel.pp=2"})), one);
  const Ended kto = train_ranks("kto", 1, settings("kto"));
  expect_close(train_ranks("kto-cp", 4, settings("kto", {"--parallel.cp=2"})), kto);
  expect_close(train_ranks("kto-pp", 4, settings("kto", {"--parallel.pp=2"})), kto);
}

TEST_F(Preferences, AdaptersTrainInEveryLayout) {
  const std::vector<std::string> lora = {"--lora.rank=3", "--lora.targets=q_proj,up_proj"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), lora.begin(), lora.end());
    return settings("dpo", more);
  };
  const Ended one = train_ranks("one", 1, with({}));
  EXPECT_NEAR(values_of(one.records, "loss").front(), std::log(2.0), 1e-6);
  expect_close(train_ranks("two", 2, with({"--dp.zero=3"})), one);
  expect_close(train_ranks("tp", 2, with({"--parallel.tp=2"})), one);
  expect_close(train_ranks("pp", 2, with({"--parallel.pp=2"})), one);
  expect_close(train_ranks("cp", 2, with({"--parallel.cp=2"})), one);
}

TEST_F(Preferences, OtherSettingsAreRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& more) {
    return error_of([&] { train("run", settings("dpo", more)); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refused({"--train.micro_batch=1", "--train.batch_size=4"}),
              AllOf(HasSubstr("half a pair"), HasSubstr("--train.micro_batch=2")));
  EXPECT_THAT(refused({"--data.packing=documents"}), HasSubstr("data.packing"));
  EXPECT_THAT(refused({"--launch.replicate=true"}), HasSubstr("launch.replicate"));
  EXPECT_THAT(refused({"--preference.desirable_weight=2"}), HasSubstr("train.objective"));
  EXPECT_THAT(refused({"--preference.loss=ipo", "--preference.label_smoothing=0.1"}),
              HasSubstr("label_smoothing"));
  EXPECT_THAT(error_of([&] { train("run", {"--preference.beta=0.2"}); }, ErrorKind::kUser),
              HasSubstr("preference.beta"));
}

TEST_F(Preferences, ReferenceFreeComparesLogProbabilitiesThemselves) {
  const Ended ended = train_ranks("run", 1, settings("dpo", {"--preference.reference_free=true"}));
  EXPECT_GT(std::abs(values_of(ended.records, "loss").front() - std::log(2.0)), 1e-4);
  EXPECT_FALSE(fs::exists(root_ / "run" / "data" / "reference.bin"));
}

}  // namespace
}  // namespace atl::train
