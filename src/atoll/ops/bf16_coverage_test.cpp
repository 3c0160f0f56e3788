// Every op of ops/*.h takes bf16: the ones that do are called here, the others are named with the
// reason, and a new op that is in neither list fails.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "atoll/base/files/test_paths.h"
#include "atoll/ops/activation/activation.h"
#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/attention_sinks.h"
#include "atoll/ops/attention_block/attention_block.h"
#include "atoll/ops/block_diagonal/block_diagonal.h"
#include "atoll/ops/clamped_swiglu/clamped_swiglu.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/dora/dora.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/embedding/vocabulary_part.h"
#include "atoll/ops/expert_factors/expert_factors.h"
#include "atoll/ops/group_bias/group_bias.h"
#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/norm/norm.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/ops/routing/expert_rows.h"
#include "atoll/ops/testing.h"
#include "atoll/ops/token_rows/token_rows.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::TestRun;

using Calls = std::map<std::string, std::function<void(TestRun&)>>;

OwnedTensor<std::int32_t> indices(Shape shape, std::vector<std::int32_t> values) {
  OwnedTensor<std::int32_t> tensor(shape);
  tensor.values = std::move(values);
  return tensor;
}

// Small operands that fit each other: 2 sequences of 3 rows, 2 query heads and 1 key-value head of
// 2 elements, a width of 4.
struct Operands {
  HeadLayout heads = {2, 1, 2};
  OwnedTensor<Bf16> x = test::random_tensor<Bf16>({2, 3, 4}, 1);
  OwnedTensor<Bf16> y = x, dy = x, dx = x, past = x;
  OwnedTensor<Bf16> twice = test::random_tensor<Bf16>({2, 3, 8}, 2);
  OwnedTensor<Bf16> qkv = test::random_tensor<Bf16>({2, 3, 8}, 3), dqkv = qkv;
  OwnedTensor<Bf16> cache = OwnedTensor<Bf16>({2, 5, 2}), values = cache;
  OwnedTensor<Bf16> table = test::random_tensor<Bf16>({7, 4}, 4);
  OwnedTensor<Bf16> vector = test::random_tensor<Bf16>({4}, 5), bias = vector;
  OwnedTensor<Bf16> head_weight = test::random_tensor<Bf16>({2}, 6);
  OwnedTensor<Bf16> rows = test::random_tensor<Bf16>({6, 4}, 7), drows = rows;
  OwnedTensor<Bf16> group_bias = test::random_tensor<Bf16>({8}, 11);
  OwnedTensor<Bf16> square = OwnedTensor<Bf16>({4, 4});
  OwnedTensor<Bf16> change = test::random_tensor<Bf16>({4, 4}, 10);
  OwnedTensor<Bf16> three = OwnedTensor<Bf16>({3, 4}), hidden = OwnedTensor<Bf16>({6, 2});
  OwnedTensor<std::int32_t> places = indices({3, 2}, {0, 3, 1, 4, 2, 5});
  OwnedTensor<std::int32_t> sources = indices({6}, {0, 2, 4, 1, 3, 5});
  OwnedTensor<std::int32_t> offsets = indices({3}, {0, 3, 6});
  OwnedTensor<std::int32_t> tokens = test::random_tokens({2, 3}, 7, 8);
  OwnedTensor<std::int32_t> targets = test::random_tokens({6}, 7, 9);
  // What is never stored in bf16.
  OwnedTensor<float> dgroup_bias = OwnedTensor<float>({8}), dsinks = OwnedTensor<float>({2});
  OwnedTensor<float> mean = OwnedTensor<float>({6}), rstd = mean, loss = mean;
  OwnedTensor<float> lse = OwnedTensor<float>({2, 2, 3}), head_rstd = OwnedTensor<float>({2, 3, 3});
  OwnedTensor<float> attended = OwnedTensor<float>({2, 3, 4}),
                     dsums = OwnedTensor<float>({2, 3, 8});
  OwnedTensor<float> dkeys = OwnedTensor<float>({2, 3, 4});
  OwnedTensor<float> column_sums = OwnedTensor<float>({1, 1, 4});
  OwnedTensor<float> dvector = OwnedTensor<float>({4}), dbias = dvector;
  OwnedTensor<float> dheads = OwnedTensor<float>({2, 2}), dtable = OwnedTensor<float>({7, 4});
  OwnedTensor<float> weights = OwnedTensor<float>({3, 2}), dweights = weights;
  OwnedTensor<float> dsquare = OwnedTensor<float>({4, 4}), gain = OwnedTensor<float>({2, 4});
  OwnedTensor<float> angles = OwnedTensor<float>({5, 2}), wide = OwnedTensor<float>({2, 3, 4});
};

void add_layer_calls(Operands& o, Calls& calls) {
  calls["swiglu_forward"] = [&](TestRun& run) { swiglu_forward(run, o.twice, o.y); };
  calls["geglu_forward"] = [&](TestRun& run) { geglu_forward(run, Gelu::kTanh, o.twice, o.y); };
  calls["geglu_backward"] = [&](TestRun& run) {
    geglu_backward(run, Gelu::kTanh, o.twice, o.dy, o.twice, o.y);
  };
  calls["swiglu_backward"] = [&](TestRun& run) {
    swiglu_backward(run, o.twice, o.dy, o.twice, o.y);
  };
  calls["gelu_forward"] = [&](TestRun& run) { gelu_forward(run, Gelu::kErf, o.x, o.y); };
  calls["gelu_backward"] = [&](TestRun& run) { gelu_backward(run, Gelu::kErf, o.x, o.dy, o.dx); };
  calls["rms_norm_forward"] = [&](TestRun& run) {
    rms_norm_forward(run, 1e-5, o.x, o.vector, o.y, o.rstd);
  };
  calls["rms_norm_backward"] = [&](TestRun& run) {
    rms_norm_backward(run, 1e-5, o.x, o.vector, o.rstd, o.dy, o.past, o.dx, o.column_sums);
  };
  calls["layer_norm_forward"] = [&](TestRun& run) {
    layer_norm_forward(run, 1e-5, o.x, o.vector, o.bias, o.y, o.mean, o.rstd);
  };
  calls["layer_norm_backward"] = [&](TestRun& run) {
    layer_norm_backward(run, o.x, o.vector, o.mean, o.rstd, o.dy, o.past, o.dx, {});
  };
  calls["qk_norm_forward"] = [&](TestRun& run) {
    qk_norm_forward(run, o.heads, 1e-5, o.qkv, o.head_weight, o.head_weight, o.dqkv, o.head_rstd);
  };
  calls["qk_norm_backward"] = [&](TestRun& run) {
    qk_norm_backward(run, o.heads, 1e-5, o.qkv, o.head_weight, o.head_weight, o.head_rstd, o.twice,
                     o.dqkv, o.dheads);
  };
  calls["rope"] = [&](TestRun& run) { rope(run, o.heads, o.angles, {}, false, o.qkv); };
  calls["attention_forward"] = [&](TestRun& run) {
    attention_forward(run, o.heads, 1, {}, o.qkv, o.y, o.lse);
  };
  calls["attention_backward"] = [&](TestRun& run) {
    attention_backward(run, o.heads, 1, {}, o.qkv, o.y, o.lse, o.dy, o.dqkv);
  };
  const AttentionBlock block = {.num_queries = 3, .num_keys = 3};
  calls["attention_block_forward"] = [&o, block](TestRun& run) {
    attention_block_forward(run, o.heads, 1, {}, block, true, o.qkv, o.x, o.attended, o.lse);
  };
  calls["attention_block_backward"] = [&o, block](TestRun& run) {
    attention_block_backward(run, o.heads, 1, {}, block, o.qkv, o.x, o.y, o.lse, o.dy, o.dsums,
                             o.dkeys);
  };
  calls["attention_cached"] = [&](TestRun& run) {
    attention_cached(run, o.heads, 1, {}, 2, o.qkv, o.cache, o.values, o.y);
  };
}

// Three tokens with a choice of both of two experts each.
void add_expert_calls(Operands& o, Calls& calls) {
  calls["gather_rows"] = [&](TestRun& run) { gather_rows(run, o.three, o.sources, o.rows); };
  calls["combine_rows"] = [&](TestRun& run) {
    combine_rows(run, o.rows, o.places, o.weights, o.three);
  };
  calls["weigh_rows"] = [&](TestRun& run) {
    weigh_rows(run, o.weights, o.sources, o.drows, o.rows, o.hidden, o.dweights);
  };
  calls["grouped_matmul"] = [&](TestRun& run) {
    grouped_matmul(run, Transpose::kNT, o.rows, o.square, o.offsets, o.hidden);
  };
  calls["grouped_matmul_tn"] = [&](TestRun& run) {
    grouped_matmul_tn(run, o.hidden, o.rows, o.offsets, o.dsquare);
  };
}

void add_other_calls(Operands& o, Calls& calls) {
  calls["matmul"] = [&](TestRun& run) {
    matmul(run, Transpose::kNT, o.x, o.square, o.y, o.vector);
  };
  calls["matmul_add"] = [&](TestRun& run) {
    matmul_add(run, Transpose::kNT, o.x, o.square, o.past, o.y, o.vector);
  };
  calls["linear_gelu"] = [&](TestRun& run) {
    linear_gelu(run, Gelu::kTanh, o.x, o.square, o.vector, o.y, o.dx);
  };
  calls["column_sum"] = [&](TestRun& run) { column_sum(run, o.dy, o.dvector); };
  calls["linear_cross_entropy"] = [&](TestRun& run) {
    linear_cross_entropy(run, 1, o.rows, o.table, o.targets, o.loss, o.drows, o.dtable);
  };
  calls["add_bias"] = [&](TestRun& run) { add_bias(run, o.x, o.vector, o.y); };
  calls["clear_foreign_rows"] = [&](TestRun& run) {
    clear_foreign_rows(run, {0, 1, 2}, o.tokens.view().reshaped({o.tokens.size()}), o.y);
  };
  calls["embedding_part_backward"] = [&](TestRun& run) {
    embedding_part_backward(run, {0, 7, 7}, o.tokens.view().reshaped({o.tokens.size()}), o.rows,
                            o.dtable);
  };
  calls["add"] = [&](TestRun& run) { add(run, o.x, o.dy, o.y); };
  calls["scale"] = [&](TestRun& run) { scale(run, 0.5, o.x, o.y); };
  calls["copy"] = [&](TestRun& run) { copy(run, o.x, o.y); };
  calls["copy_blocks"] = [&](TestRun& run) {
    copy_blocks(run, {2, 3}, 4, o.x, {0, 12, 4}, o.y, {0, 4, 8});
  };
  calls["convert"] = [&](TestRun& run) { convert(run, o.x, o.wide); };
  calls["fill_zero"] = [&](TestRun& run) { fill_zero(run, o.y); };
  calls["dropout"] = [&](TestRun& run) { dropout(run, 0.5, 0, o.x, o.y); };
  calls["embedding_forward"] = [&](TestRun& run) {
    embedding_forward(run, o.tokens, o.table, o.y);
  };
  calls["embedding_backward"] = [&](TestRun& run) {
    embedding_backward(run, o.tokens, o.dy, o.dtable);
  };
  calls["position_embedding_forward"] = [&](TestRun& run) {
    position_embedding_forward(run, {}, o.table, o.y);
  };
  calls["position_embedding_backward"] = [&](TestRun& run) {
    position_embedding_backward(run, {}, o.dy, o.dtable);
  };
  calls["block_diagonal"] = [&](TestRun& run) {
    const DiagonalBlock blocks[] = {{0, 6}};
    block_diagonal(run, 1, o.rows, blocks, o.drows);
  };
  calls["order_factor"] = [&](TestRun& run) {
    const std::int64_t columns[] = {0, 2, 1, 3};
    order_factor(run, 2, {2, true, columns}, o.square, o.change);
  };
  calls["place_token_rows"] = [&](TestRun& run) {
    const std::int32_t slots[] = {-1, 0, 1, -1, 2, -1, -1};
    place_token_rows(run, 1, slots, o.tokens, o.square, o.drows, o.rows);
  };
  calls["place_token_rows_backward"] = [&](TestRun& run) {
    const std::int32_t slots[] = {-1, 0, 1, -1, 2, -1, -1};
    place_token_rows_backward(run, 1, slots, o.tokens, o.rows, o.dtable);
  };
  calls["dora_gain"] = [&](TestRun& run) {
    const DiagonalBlock blocks[] = {{0, 4}};
    dora_gain(run, o.square, o.change, o.vector, blocks, true, o.gain);
  };
  calls["dora_scale"] = [&](TestRun& run) { dora_scale(run, o.x, o.gain, o.y); };
  calls["dora_backward"] = [&](TestRun& run) {
    const DiagonalBlock blocks[] = {{0, 4}};
    dora_backward(run, o.dy, o.x, o.gain, blocks, o.dvector);
  };
}

// Ops whose operands are f32 even in a bf16 model.
// What gpt_oss has besides.
void add_gpt_oss_calls(Operands& o, Calls& calls) {
  calls["attention_sinks"] = [&](TestRun& run) {
    attention_sinks(run, o.heads, o.head_weight, o.y, o.lse);
  };
  calls["attention_sinks_backward"] = [&](TestRun& run) {
    attention_sinks_backward(run, o.heads, o.head_weight, o.y, o.lse, o.dy, o.dsinks);
  };
  calls["clamped_swiglu_forward"] = [&](TestRun& run) {
    clamped_swiglu_forward(run, 7, o.twice, o.y);
  };
  calls["clamped_swiglu_backward"] = [&](TestRun& run) {
    clamped_swiglu_backward(run, 7, o.twice, o.dy, o.twice, o.y);
  };
  calls["add_group_bias"] = [&](TestRun& run) {
    add_group_bias(run, o.group_bias, o.offsets, o.rows);
  };
  calls["fill_group_bias"] = [&](TestRun& run) {
    fill_group_bias(run, o.group_bias, o.offsets, o.drows);
  };
  calls["add_group_sums"] = [&](TestRun& run) {
    add_group_sums(run, o.rows, o.offsets, o.dgroup_bias);
  };
}

const std::set<std::string> kNeverBf16 = {
    "block_diagonal_backward",  // a weight gradient from one
    "order_factor_backward",    // likewise
    "gated_delta_forward",
    "gated_delta_backward",  // a state that many tokens change: never rounded
    "take_columns",
    "put_columns",            // of logits, in the compute dtype
    "add_low_rank_rows",      // of activations in f32
    "policy_loss_of_logits",  // in f32
    "sum_of_squares",
    "sums_of_squares",  // of gradients
    "muon_momentum",
    "orthogonalize",  // gradients and momenta
    "matmul_int8",
    "embedding_int8",           // weights in 8 bits, activations in f32
    "attention_paged",          // of a cache in f32
    "widen_packed",             // to f32
    "cross_entropy_of_logits",  // logits are in the compute dtype
    "local_tokens",
    "local_positions",
    "softmax_part",  // logits are in the compute dtype
    "cross_entropy_part",
    "softcap_forward",
    "softcap_backward",
    "route_tokens",  // and so are these
    "route_tokens_backward",
    "add_router_sums",
    "route_scored_tokens",
    "route_scored_tokens_backward",
    "add_scored_router_sums",
    "add_norm_sums",
    "add_column_sums",      // sums of rows, never rounded
    "assign_rows",          // indices
    "count_choices",        // counts of them
    "grouped_matmul_int8",  // as matmul_int8
    "encode_codes",
    "decode_codes",  // what ranks send of gradients
    "encode_signs",
    "apply_signs",
    "keep_residual",
    "zero_one_step",
    "add_scaled",
    "sketch",
    "project_columns",
    "project_rows",
    "orthogonalise",
    "restore_product",
    "sample_token",  // logits are in the compute dtype
    "measure_peak_flops",
    "measure_amx_peak_flops",
    "measure_copy_bandwidth",
    "measure_read_bandwidth",
};
// Tested elsewhere in bf16: updates of parameters, what rounds bf16 to 8 bits (cuda/fp8_test.cpp),
// and products with weights that a file has in few bits (packed/packed_test.cpp).
const std::set<std::string> kOwnTests = {"adamw",
                                         "lion",
                                         "sgd",
                                         "apply_direction",
                                         "widen",
                                         "matmul_packed",
                                         "matmul_packed_backward",
                                         "embedding_packed",
                                         "grouped_matmul_packed",
                                         "round_to_fp8",
                                         "matmul_fp8",
                                         "linear_fp8",
                                         "linear_fp8_backward_input",
                                         "linear_fp8_backward_weight"};

// Headers of one implementation declare no op: ref.h, cpu*.h, cuda*.h, all of cuda/, and testing.h.
bool of_an_implementation(const std::filesystem::path& header) {
  static const std::regex parts(R"((ref|cpu|cuda|fake|mps|.*testing).*\.h)");
  return header.parent_path().filename() == "cuda" ||
         std::regex_match(header.filename().string(), parts);
}

// Every function that takes a Run, of the headers in ops/ and in the folders of its families.
std::set<std::string> declared_ops() {
  std::set<std::string> names;
  const std::regex declaration(R"(^[a-z]+ ([a-z_0-9]+)\(Run& run)");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test_source_dir() / "src/atoll/ops")) {
    if (entry.path().extension() != ".h") continue;
    if (of_an_implementation(entry.path())) continue;
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, match, declaration)) names.insert(match[1]);
    }
  }
  return names;
}

TEST(Bf16Coverage, EveryOpTakesBf16) {
  Operands operands;
  Calls calls;
  add_layer_calls(operands, calls);
  add_expert_calls(operands, calls);
  add_gpt_oss_calls(operands, calls);
  add_other_calls(operands, calls);
  TestRun run;
  for (const auto& [name, call] : calls) EXPECT_NO_THROW(call(run)) << name;

  const std::set<std::string> declared = declared_ops();
  EXPECT_GE(declared.size(), 30U);
  for (const std::string& name : declared) {
    EXPECT_TRUE(calls.count(name) + kNeverBf16.count(name) + kOwnTests.count(name) == 1)
        << name << " is in none of this test's lists, or in two";
  }
}

}  // namespace
}  // namespace atl::ops
