// Adapters of every kind that is trained: resumed runs end in the bits of runs that were not, and
// ranks that share the state in those of ranks that each have it.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;
  std::vector<std::string> settings;
};

const std::vector<Kind> kKinds = {
    {"head", {"--lora.targets=lm_head,q_proj"}},
    {"embedding", {"--lora.targets=embed_tokens,v_proj"}},
    {"dora",
     {"--lora.dora=true", "--lora.rank_pattern=q_proj=2", "--lora.alpha_pattern=up_proj=3"}},
    {"saved", {"--lora.modules_to_save=embed_tokens,norm"}},
    {"tokens", {"--lora.trainable_token_indices=5,0,7", "--lora.targets=v_proj"}},
};

class LoraRanks : public RanksFixture {
 protected:
  void make_base(const char* tied) {
    inline_model_ = true;
    base_ = train("base", {"--train.steps=3", std::string("--model.tie_word_embeddings=") + tied})
                .checkpoint;
    inline_model_ = false;
  }
  std::vector<std::string> settings(const Kind& kind, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--model.from=" + base_.string(), "--lora.rank=3",
                                    "--optim.lr=0.01", "--train.steps=6", "--train.dropout=0"};
    all.insert(all.end(), kind.settings.begin(), kind.settings.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  fs::path base_;
};

TEST_F(LoraRanks, EveryKindResumesBitwise) {
  for (const char* tied : {"false", "true"}) {
    make_base(tied);
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(fmt::format("{}, tied {}", kind.name, tied));
      const TrainOutcome whole = train("whole", settings(kind));
      EXPECT_EQ(train("parts", settings(kind), 3).step, 3);
      const TrainOutcome rest = train("parts", settings(kind));
      for (const fs::directory_entry& entry : fs::directory_iterator(whole.checkpoint)) {
        if (entry.path().extension() != ".safetensors") continue;
        EXPECT_EQ(read_file(rest.checkpoint / entry.path().filename()), read_file(entry.path()));
      }
      fs::remove_all(root_ / "whole");
      fs::remove_all(root_ / "parts");
    }
    fs::remove_all(root_ / "base");
  }
}

// Stacked experts, with nothing else adapted.
TEST_F(LoraRanks, ExpertsResumeBitwiseOnAnyLayout) {
  inline_model_ = true;
  base_ = train("base", {"--train.steps=3", "--model.family=mixtral", "--model.num_experts=4",
                         "--model.intermediate_size=24"})
              .checkpoint;
  inline_model_ = false;
  const Kind kind = {"experts",
                     {"--lora.target_parameters=mlp.experts.gate_up_proj,mlp.experts.down_proj",
                      "--lora.targets="}};
  const TrainOutcome whole = train("whole", settings(kind));
  EXPECT_EQ(train("parts", settings(kind), 3).step, 3);
  const std::string expected = RanksFixture::whole(whole.checkpoint);
  EXPECT_EQ(RanksFixture::whole(train("parts", settings(kind)).checkpoint), expected);
  EXPECT_EQ(train_ranks("pp", 2, settings(kind, {"--parallel.pp=2"})).values, expected);
  const Ended plain = train_ranks("zero0", 2, settings(kind, {"--dp.zero=0"}));
  for (const char* zero : {"1", "2", "3"}) {
    const std::string setting = std::string("--dp.zero=") + zero;
    EXPECT_EQ(train_ranks(zero, 2, settings(kind, {setting})).values, plain.values) << zero;
  }
}

TEST_F(LoraRanks, EveryStageOfZeroHasTheSameBits) {
  make_base("true");
  for (const Kind& kind : kKinds) {
    const Ended plain =
        train_ranks(std::string(kind.name) + "0", 2, settings(kind, {"--dp.zero=0"}));
    for (const char* zero : {"1", "2", "3"}) {
      const std::string name = std::string(kind.name) + zero;
      const std::string setting = std::string("--dp.zero=") + zero;
      EXPECT_EQ(train_ranks(name, 2, settings(kind, {setting})).values, plain.values) << name;
    }
  }
}

TEST_F(LoraRanks, StagesOfAPipelineHaveTheSameBits) {
  make_base("true");
  for (const Kind& kind : kKinds) {
    if (kind.name == std::string("saved")) continue;  // refused: one rank writes the adapter
    const std::string one = std::string(kind.name) + "-one", two = std::string(kind.name) + "-two";
    const Ended plain = train_ranks(one, 1, settings(kind));
    EXPECT_EQ(train_ranks(two, 2, settings(kind, {"--parallel.pp=2"})).values, plain.values)
        << kind.name;
  }
}

}  // namespace
}  // namespace atl::train
