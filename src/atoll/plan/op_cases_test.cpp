#include "atoll/plan/op_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/nn/models/family.h"
#include "atoll/ops/profile.h"

namespace atl::plan {

namespace {

nn::ModelConfig tiny(bool gpt2) {
  return nn::parse_config(
      gpt2 ? R"({"model_type": "gpt2", "vocab_size": 70, "n_embd": 64, "n_layer": 1, "n_head": 2,
                 "n_positions": 32})"
           : R"({"model_type": "llama", "vocab_size": 70, "hidden_size": 64,
                 "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 96, "max_position_embeddings": 32})",
      "a tiny model");
}

// A product's own arithmetic is what the profile counts, too.
void expect_profiled(const OpCase& one, const ops::OpProfile& profile) {
  if (one.bound != OpCase::Bound::kArithmetic || profile.rows().size() != 1) return;
  EXPECT_EQ(one.amount, profile.rows()[0].cost.flops) << one.name;
}

TEST(OpCases, AllRunInBothFamiliesAndDtypesAndCountWhatTheProfileCounts) {
  const auto device = open_cpu(2);
  Stream stream(*device);
  for (const bool gpt2 : {false, true}) {
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      std::set<std::string> names;
      const OpSizes sizes = {.sequences = 2, .context = 16, .dtype = dtype};
      for (const OpCase& one : op_cases(tiny(gpt2), sizes)) {
        EXPECT_TRUE(names.insert(one.name).second) << one.name << " twice";
        EXPECT_GT(one.amount, 0) << one.name;
        ops::OpProfile profile;
        const auto call = one.prepare({.stream = &stream, .profile = &profile});
        profile.clear();
        call();
        EXPECT_FALSE(profile.rows().empty()) << one.name;
        expect_profiled(one, profile);
      }
      EXPECT_TRUE(names.contains(gpt2 ? "gelu/backward" : "swiglu/backward"));
    }
  }
}

TEST(OpCases, OfExpertsRunInBothDtypesAndCountWhatTheProfileCounts) {
  const auto device = open_cpu(2);
  Stream stream(*device);
  const nn::ModelConfig config = nn::parse_config(
      R"({"model_type": "mixtral", "vocab_size": 70, "hidden_size": 64, "num_hidden_layers": 1,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
          "max_position_embeddings": 32, "num_local_experts": 4, "num_experts_per_tok": 2})",
      "a tiny model");
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    std::set<std::string> names;
    for (const OpCase& one :
         expert_op_cases(config, {.sequences = 2, .context = 16, .dtype = dtype})) {
      EXPECT_TRUE(names.insert(one.name).second) << one.name << " twice";
      EXPECT_GT(one.amount, 0) << one.name;
      ops::OpProfile profile;
      const auto call = one.prepare({.stream = &stream, .profile = &profile});
      profile.clear();
      call();
      EXPECT_FALSE(profile.rows().empty()) << one.name;
      expect_profiled(one, profile);
    }
    EXPECT_EQ(names.size(), dtype == Dtype::kBf16 ? 15u : 13u);
  }
}

}  // namespace

}  // namespace atl::plan
