#include "atoll/plan/code_op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "atoll/ops/codes/codes.h"
#include "atoll/ops/codes/factors.h"
#include "atoll/ops/codes/signs.h"
#include "atoll/plan/op_operands.h"
#include "atoll/tensor/host_access.h"

namespace atl::plan {

namespace {

using Bound = OpCase::Bound;

constexpr std::int64_t kRanks = 8;
constexpr std::int64_t kRank = 4;  // of factors
constexpr std::int64_t kCols = 1024;

Tensor floats(Operands& at, std::int64_t n) {
  return at.random({Dtype::kF32, {n}});
}

// Second moments.
Tensor squares(Operands& at, std::int64_t n) {
  const Tensor tensor = floats(at, n);
  update_on_host<float>(tensor, [](std::span<float> all) {
    for (float& one : all) one *= one;
  });
  return tensor;
}

Tensor codes_of(Operands& at, std::int64_t bytes) {
  return at.zeros({Dtype::kU8, {bytes}});
}

Tensor table(Operands& at, const std::vector<std::int64_t>& rows, std::int64_t columns) {
  const Tensor tensor = at.zeros({Dtype::kI64, {std::ssize(rows) / columns, columns}});
  write_on_host<std::int64_t>(tensor,
                              [&](auto to) { std::copy(rows.begin(), rows.end(), to.begin()); });
  return tensor;
}

template <typename Make>
OpCase made(std::string name, double bytes, std::int64_t elements, Make make) {
  return {std::move(name),
          Bound::kCopying,
          bytes,
          {elements, 1},
          [make](const Run& run) -> std::function<void()> {
            const auto operands = std::make_shared<Operands>(run);
            const auto call = make(*operands);
            return [operands, call] { call(operands->run()); };
          }};
}

// Pieces of so many elements as scales of signs have, one after the other.
constexpr std::int64_t kPiece = ops::kSignPiece;

std::int64_t code_bytes(int bits, std::int64_t n) {
  const std::int64_t blocks = (n + ops::kCodeBlock - 1) / ops::kCodeBlock;
  return 4 * blocks + (n * bits + 7) / 8;
}

Tensor code_table(Operands& at, int bits, std::int64_t n) {
  std::vector<std::int64_t> rows;
  for (std::int64_t begin = 0, byte = 0; begin < n; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, n - begin);
    rows.insert(rows.end(), {begin, count, byte});
    byte += code_bytes(bits, count);
  }
  return table(at, rows, ops::kPieceColumns);
}

void add_codes(std::vector<OpCase>& cases, int bits, std::int64_t n) {
  const std::int64_t bytes = code_bytes(bits, n);
  const auto codes = static_cast<double>(bytes), elements = static_cast<double>(n);
  cases.push_back(
      made(fmt::format("codes/encode int{}", bits), 12 * elements + codes, n, [=](Operands& at) {
        const ops::EncodeCodes args = {.bits = bits,
                                       .pieces = code_table(at, bits, n),
                                       .x = floats(at, n),
                                       .residual = floats(at, n),
                                       .codes = codes_of(at, bytes)};
        return [=](Run& run) { ops::encode_codes(run, args); };
      }));
  cases.push_back(made(
      fmt::format("codes/sum int{} of {}", bits, kRanks), 4 * elements + kRanks * codes, n,
      [=](Operands& at) {
        ops::DecodeCodes args = {.bits = bits,
                                 .pieces = code_table(at, bits, n),
                                 .codes = codes_of(at, kRanks * bytes),
                                 .sources = kRanks,
                                 .source_bytes = bytes,
                                 .to = at.zeros({Dtype::kF32, {n}})};
        for (std::int64_t rank = 0; rank < kRanks; ++rank) {
          ops::encode_codes(at.run(), {.bits = bits,
                                       .pieces = args.pieces,
                                       .x = floats(at, n),
                                       .codes = args.codes.rows(rank * bytes, (rank + 1) * bytes)});
        }
        return [=](Run& run) { ops::decode_codes(run, args); };
      }));
}

Tensor sign_table(Operands& at, std::int64_t n) {
  std::vector<std::int64_t> rows;
  for (std::int64_t begin = 0, byte = 0; begin < n; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, n - begin);
    rows.insert(rows.end(), {begin, count, byte, begin, begin, 1});
    byte += 4 + (count + 7) / 8;
  }
  return table(at, rows, ops::kSignColumns);
}

void add_signs(std::vector<OpCase>& cases, std::int64_t n) {
  const std::int64_t bytes = (n + 7) / 8 + 4 * ((n + kPiece - 1) / kPiece);
  const auto elements = static_cast<double>(n), codes = static_cast<double>(bytes);
  // Gradients and moments read, the residual read and written.
  cases.push_back(made("signs/encode", 16 * elements + 2 * codes, n, [=](Operands& at) {
    const ops::EncodeSigns args = {.adds = ops::EncodeSigns::Adds::kGradients,
                                   .units = {.root_scale = 1, .eps = 1e-8F},
                                   .pieces = sign_table(at, n),
                                   .codes = codes_of(at, bytes),
                                   .v = {squares(at, n), ops::kSignBegin},
                                   .residual = {floats(at, n), ops::kSignBegin},
                                   .grads = floats(at, n),
                                   .beta1 = 0.9F,
                                   .rest = 0.1F};
    return [=](Run& run) { ops::encode_signs(run, args); };
  }));
  cases.push_back(made("signs/apply", 16 * elements + codes, n, [=](Operands& at) {
    const ops::ApplySigns args = {.units = {.root_scale = 1, .eps = 1e-8F},
                                  .pieces = sign_table(at, n),
                                  .codes = codes_of(at, bytes),
                                  .v = {squares(at, n), ops::kSignBegin},
                                  .m = {at.zeros({Dtype::kF32, {n}}), ops::kSignBegin},
                                  .x = floats(at, n),
                                  .step_size = 1e-4F};
    return [=](Run& run) { ops::apply_signs(run, args); };
  }));
}

ops::Factors factors(Operands& at, std::int64_t rows) {
  return {.matrices = table(at, {0, rows, kCols, 0, 0, 0}, ops::kFactorColumns),
          .rank = kRank,
          .most_rows = rows,
          .most_cols = kCols,
          .most_elements = rows * kCols,
          .m = floats(at, rows * kCols),
          .p = floats(at, kRank * rows),
          .q = floats(at, kRank * kCols),
          .residual = floats(at, rows * kCols)};
}

void add_factors(std::vector<OpCase>& cases, std::int64_t n) {
  const std::int64_t rows = std::max<std::int64_t>(n / kCols, 1);
  const auto elements = static_cast<double>(rows * kCols);
  cases.push_back(made("factors/project rows", 12 * elements, n, [=](Operands& at) {
    const ops::Factors all = factors(at, rows);
    return [=](Run& run) { ops::project_rows(run, all); };
  }));
  const auto with_flags = [&](const char* name, double bytes, auto call) {
    cases.push_back(made(name, bytes * elements, n, [=](Operands& at) {
      const ops::Factors all = factors(at, rows);
      const Tensor flags = at.zeros({Dtype::kI32, {1}});
      write_on_host<std::int32_t>(flags, [](auto to) { to[0] = 1; });
      return [=](Run& run) { call(run, all, flags); };
    }));
  };
  with_flags("factors/project columns", 4, ops::project_columns);
  with_flags("factors/residual", 8, ops::keep_residual);
  with_flags("factors/restore", 4, ops::restore_product);
}

}  // namespace

std::vector<OpCase> code_op_cases(std::int64_t elements) {
  std::vector<OpCase> cases;
  for (const int bits : {8, 4}) add_codes(cases, bits, elements);
  add_signs(cases, elements);
  add_factors(cases, elements);
  return cases;
}

}  // namespace atl::plan
