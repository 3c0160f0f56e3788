#include "atoll/ckpt/gguf/mixes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::ckpt {
namespace {

using ::testing::HasSubstr;
using enum GgmlType;

GgmlType type_of(const char* mix, const std::string& name, std::int64_t layers = 28,
                 std::int64_t width = 1024, bool is_head = false) {
  return type_in_mix(find_gguf_mix(mix), {name, width, layers, is_head}).type;
}

// Layers of 28 whose tensor has another type than the mix's base.
std::vector<int> raised(const char* mix, const char* tensor, GgmlType to) {
  std::vector<int> layers;
  for (int layer = 0; layer < 28; ++layer) {
    const GgmlType type = type_of(mix, fmt::format("blk.{}.{}.weight", layer, tensor));
    if (type == find_gguf_mix(mix).base) continue;
    EXPECT_EQ(type, to) << layer;
    layers.push_back(layer);
  }
  return layers;
}

// As `llama-quantize` does with Qwen2.5 1.5B, which has 28 layers.
TEST(GgufMixes, TheMediumMixesRaiseValuesAndDownProjections) {
  const std::vector<int> more = {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27};
  for (const char* mix : {"Q4_K_M", "Q5_K_M"}) {
    EXPECT_EQ(raised(mix, "attn_v", kQ6_K), more);
    EXPECT_EQ(raised(mix, "attn_qkv", kQ6_K), more);
    EXPECT_EQ(raised(mix, "ffn_down", kQ6_K), more);
    for (const char* tensor : {"attn_q", "attn_k", "attn_output", "ffn_up", "ffn_gate"}) {
      EXPECT_EQ(raised(mix, tensor, kQ6_K), std::vector<int>{}) << tensor;
    }
  }
}

TEST(GgufMixes, TheOthersHaveRulesOfTheirOwn) {
  EXPECT_EQ(raised("Q4_K_S", "attn_v", kQ5_K), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(raised("Q4_K_S", "ffn_down", kQ5_K), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(raised("Q5_K_S", "ffn_down", kQ6_K), std::vector<int>{});
  EXPECT_EQ(type_of("Q3_K_M", "blk.1.attn_v.weight"), kQ5_K);
  EXPECT_EQ(type_of("Q3_K_M", "blk.2.attn_v.weight"), kQ4_K);
  EXPECT_EQ(type_of("Q3_K_M", "blk.0.ffn_down.weight"), kQ5_K);
  EXPECT_EQ(type_of("Q3_K_M", "blk.1.ffn_down.weight"), kQ4_K);
  EXPECT_EQ(type_of("Q3_K_M", "blk.1.attn_output.weight"), kQ4_K);
  EXPECT_EQ(type_of("Q3_K_L", "blk.20.ffn_down.weight"), kQ5_K);
  EXPECT_EQ(type_of("Q3_K_S", "blk.0.attn_v.weight"), kQ3_K);
}

TEST(GgufMixes, ExpertsHaveTheRulesOfPlainMatrices) {
  EXPECT_EQ(type_of("Q4_K_M", "blk.0.ffn_down_exps.weight"), kQ6_K);
  EXPECT_EQ(type_of("Q4_K_M", "blk.4.ffn_down_exps.weight"), kQ4_K);
  EXPECT_EQ(type_of("Q4_K_M", "blk.0.ffn_up_exps.weight"), kQ4_K);
  const auto of_eight = [](const char* mix, const char* tensor) {
    return type_in_mix(find_gguf_mix(mix), {tensor, 1024, 32, false, 8}).type;
  };
  EXPECT_EQ(of_eight("Q4_K_M", "blk.4.attn_v.weight"), kQ8_0);
  EXPECT_EQ(of_eight("Q4_K_M", "blk.4.attn_k.weight"), kQ8_0);
  EXPECT_EQ(of_eight("Q4_K_M", "blk.4.attn_output.weight"), kQ5_K);
  EXPECT_EQ(of_eight("Q5_K_M", "blk.4.attn_output.weight"), kQ5_K);
  EXPECT_EQ(of_eight("Q6_K", "blk.4.attn_output.weight"), kQ6_K);
  EXPECT_EQ(of_eight("Q6_K", "blk.4.attn_k.weight"), kQ8_0);
  EXPECT_EQ(of_eight("Q4_K_M", "blk.0.ffn_down_exps.weight"), kQ6_K);
  EXPECT_EQ(of_eight("Q8_0", "blk.0.attn_output.weight"), kQ8_0);
}

TEST(GgufMixes, TheHeadOfAKMixIsQ6K) {
  for (const GgufMix& mix : gguf_mixes()) {
    if (mix.base == kMxfp4) continue;  // see OnlyExpertsAreMxfp4
    const bool is_k = ggml_layout(mix.base).block_elements == 256;
    const MixedType head = type_in_mix(mix, {"token_embd.weight", 512, 2, true});
    EXPECT_EQ(head.type, is_k ? kQ6_K : mix.base) << mix.name;
    EXPECT_EQ(type_in_mix(mix, {"token_embd.weight", 512, 2, false}).type, mix.base) << mix.name;
  }
}

TEST(GgufMixes, OnlyExpertsAreMxfp4) {
  EXPECT_EQ(find_gguf_mix("mxfp4_moe").file_type, 38U);
  for (const char* tensor : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    EXPECT_EQ(type_of("MXFP4_MOE", fmt::format("blk.3.{}.weight", tensor)), kMxfp4) << tensor;
  }
  for (const char* tensor : {"blk.3.attn_v.weight", "blk.3.ffn_down.weight", "token_embd.weight"}) {
    EXPECT_EQ(type_of("MXFP4_MOE", tensor), kQ8_0) << tensor;
  }
  EXPECT_EQ(type_of("MXFP4_MOE", "output.weight", 28, 1024, true), kQ8_0);
}

TEST(GgufMixes, RowsOfNoWholeSuperBlocksFallBack) {
  const GgufMix mix = find_gguf_mix("Q4_K_M");
  const MixedType at_320 = type_in_mix(mix, {"blk.0.attn_q.weight", 320, 2});
  EXPECT_EQ(at_320.type, kQ8_0);
  EXPECT_EQ(at_320.instead_of, kQ4_K);
  const MixedType at_100 = type_in_mix(mix, {"token_embd.weight", 100, 2, true});
  EXPECT_EQ(at_100.type, kF16);
  EXPECT_EQ(at_100.instead_of, kQ6_K);
  EXPECT_FALSE(type_in_mix(mix, {"blk.0.attn_q.weight", 512, 2}).instead_of);
  // The user asked for Q8_0 itself: the writer refuses what it cannot hold.
  EXPECT_EQ(type_of("Q8_0", "blk.0.attn_q.weight", 2, 100), kQ8_0);
}

TEST(GgufMixes, NamesAreTakenInAnyCaseAndOthersAreToldWhichThereAre) {
  EXPECT_EQ(find_gguf_mix("q4_k_m").file_type, 15U);
  EXPECT_EQ(find_gguf_mix("Q6_k").base, kQ6_K);
  EXPECT_EQ(gguf_mix_of(kBf16).name, "BF16");
  try {
    find_gguf_mix("Q4_K_XL");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    for (const GgufMix& mix : gguf_mixes()) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(mix.name)));
    }
  }
}

TEST(GgufMixes, LayersAreReadFromNames) {
  EXPECT_EQ(gguf_layer("blk.12.attn_v.weight"), 12);
  EXPECT_EQ(gguf_layer("blk.0.attn_v.bias"), 0);
  for (const char* name : {"output.weight", "blk.", "blk.x.attn_v.weight", "blk.3"}) {
    EXPECT_FALSE(gguf_layer(name)) << name;
  }
}

}  // namespace
}  // namespace atl::ckpt
