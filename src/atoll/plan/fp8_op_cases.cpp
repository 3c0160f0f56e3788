#include "atoll/plan/fp8_op_cases.h"

#include <fmt/format.h>

#include <memory>

#include "atoll/nn/models/family.h"
#include "atoll/ops/fp8/fp8.h"
#include "atoll/plan/op_operands.h"

namespace atl::plan {

namespace {

using Bound = OpCase::Bound;
using ops::Fp8Format;
using ops::Fp8Matrix;
using ops::Fp8Tile;

Fp8Matrix matrix(Operands& at, Fp8Format format, Fp8Tile tile, std::int64_t outer, std::int64_t k) {
  return {format, tile, at.zeros({Dtype::kU8, {outer, k}}),
          at.zeros(ops::fp8_scales_spec(tile, outer, k))};
}

// A matrix of `rows` rows, which is rounded along its columns, or along its rows.
OpCase rounding(const char* what, Fp8Format format, Fp8Tile tile, std::int64_t rows,
                std::int64_t cols, bool transposed) {
  constexpr const char* kTiles[] = {"tensor", "rows of 128", "blocks of 128"};
  const std::int64_t elements = rows * cols;
  // Where all of it shares a scale it is read twice.
  const double bytes = static_cast<double>(elements) * (tile == Fp8Tile::kTensor ? 5 : 3);
  return {fmt::format("fp8/round {}{}, {}", what, transposed ? " transposed" : "",
                      kTiles[static_cast<std::size_t>(tile)]),
          Bound::kCopying,
          bytes,
          {rows, cols},
          [=](const Run& run) -> std::function<void()> {
            const auto at = std::make_shared<Operands>(run);
            const Tensor x = at->random({Dtype::kBf16, {rows, cols}});
            const Fp8Matrix out = transposed ? matrix(*at, format, tile, cols, rows)
                                             : matrix(*at, format, tile, rows, cols);
            at->scratch(ops::round_to_fp8_scratch_bytes(elements));
            return [=] { ops::round_to_fp8(at->run(), x, transposed, out); };
          }};
}

struct Product {
  const char* pass;
  Fp8Format of_a;
  Fp8Tile tile_a, tile_b;
  ops::Fp8Sums sums;
  Dtype c;
  std::int64_t m, n, k;
};

// c (m, n) of operands that are codes already.
OpCase product(const Product& p) {
  const bool in_blocks = p.tile_a != Fp8Tile::kTensor;
  return {fmt::format("fp8/{}{}", p.pass, in_blocks ? ", blocks" : ""),
          Bound::kArithmetic,
          2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k),
          {p.m, p.n, p.k},
          [p](const Run& run) -> std::function<void()> {
            const auto at = std::make_shared<Operands>(run);
            const auto rounded = [&](Fp8Format format, Fp8Tile tile, std::int64_t outer) {
              const Tensor x = at->random({Dtype::kBf16, {outer, p.k}});
              const Fp8Matrix out = matrix(*at, format, tile, outer, p.k);
              at->scratch(ops::round_to_fp8_scratch_bytes(outer * p.k));
              ops::round_to_fp8(at->run(), x, false, out);
              return out;
            };
            const Fp8Matrix a = rounded(p.of_a, p.tile_a, p.m);
            const Fp8Matrix b = rounded(Fp8Format::kE4M3, p.tile_b, p.n);
            const Tensor c = at->zeros({p.c, {p.m, p.n}});
            const bool accumulate = p.c == Dtype::kF32;
            return [=] { ops::matmul_fp8(at->run(), a, b, c, p.sums, {}, accumulate); };
          }};
}

}  // namespace

std::vector<OpCase> fp8_op_cases(const nn::ModelConfig& config, const OpSizes& sizes,
                                 bool has_blocks) {
  constexpr std::int64_t kUnit = ops::kFp8Multiple;
  const std::int64_t tokens = (sizes.tokens() + kUnit - 1) / kUnit * kUnit;
  const std::int64_t in = config.hidden_size;
  const std::int64_t out =
      config.intermediate_size * (nn::find_family(config.family, "a plan").has_gate ? 2 : 1);
  std::vector<OpCase> cases;
  for (const bool in_blocks : {false, true}) {
    if (in_blocks && !has_blocks) continue;
    const Fp8Tile x = in_blocks ? Fp8Tile::kRow : Fp8Tile::kTensor;
    const Fp8Tile w = in_blocks ? Fp8Tile::kBlock : Fp8Tile::kTensor;
    const Fp8Format dy = in_blocks ? Fp8Format::kE4M3 : Fp8Format::kE5M2;
    for (const bool transposed : {false, true}) {
      cases.push_back(rounding("x", Fp8Format::kE4M3, x, tokens, in, transposed));
      cases.push_back(rounding("W", Fp8Format::kE4M3, w, out, in, transposed));
      cases.push_back(rounding("dy", dy, x, tokens, out, transposed));
    }
    const ops::Fp8Sums sums = in_blocks ? ops::Fp8Sums::kExact : ops::Fp8Sums::kFast;
    cases.push_back(
        product({"mlp_up forward", Fp8Format::kE4M3, x, w, sums, Dtype::kBf16, tokens, out, in}));
    cases.push_back(product(
        {"mlp_up backward_input", dy, x, w, ops::Fp8Sums::kExact, Dtype::kBf16, tokens, in, out}));
    cases.push_back(product(
        {"mlp_up backward_weight", dy, x, x, ops::Fp8Sums::kExact, Dtype::kF32, out, in, tokens}));
  }
  return cases;
}

}  // namespace atl::plan
