#include "atoll/plan/generation_op_cases.h"

#include <fmt/format.h>

#include <memory>

#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/plan/op_operands.h"
#include "atoll/tensor/host_access.h"

namespace atl::plan {

namespace {

using ops::Int8Matrix;
using ops::Transpose;

// A product of rows of `inner` elements with a matrix of `columns` x `inner` for each of `groups`,
// of which the first `rows` have a row each; without groups the rows are all the matrix's.
struct Product {
  std::string name;
  std::int64_t rows, columns, inner, groups = 0;

  Shape weights() const { return {std::max<std::int64_t>(groups, 1) * columns, inner}; }
  Spec x() const { return {Dtype::kF32, {rows, inner}}; }
  Spec y() const { return {Dtype::kF32, {rows, columns}}; }
  // Of matrices that have a row.
  double read(double bytes) const {
    return groups == 0 ? bytes : bytes * static_cast<double>(rows) / static_cast<double>(groups);
  }
  Tensor offsets(Operands& at) const {
    const Tensor tensor = at.zeros({Dtype::kI32, {groups + 1}});
    write_on_host<std::int32_t>(tensor, [&](std::span<std::int32_t> all) {
      for (std::size_t g = 0; g < all.size(); ++g) {
        all[g] = static_cast<std::int32_t>(std::min(static_cast<std::int64_t>(g), rows));
      }
    });
    return tensor;
  }
};

template <typename Make>
OpCase made(const Product& of, const char* weights, double bytes, Make make) {
  return {fmt::format("generate/{} {}/rows:{}", of.name, weights, of.rows),
          OpCase::Bound::kReading,
          of.read(bytes),
          {of.rows, of.columns, of.inner},
          [make](const Run& run) -> std::function<void()> {
            const auto operands = std::make_shared<Operands>(run);
            const auto call = make(*operands);
            return [operands, call] { call(operands->run()); };
          }};
}

void add_bf16(std::vector<OpCase>& cases, const Product& of) {
  const Spec spec = {Dtype::kBf16, of.weights()};
  cases.push_back(made(of, "bf16", static_cast<double>(spec.bytes()), [=](Operands& at) {
    const Tensor x = at.random(of.x()), w = at.random(spec), y = at.zeros(of.y());
    const Tensor offsets = of.groups == 0 ? Tensor() : of.offsets(at);
    at.scratch(ops::matmul_scratch_bytes(Transpose::kNT, of.x(), spec));
    return [=](Run& run) {
      offsets.defined() ? ops::grouped_matmul(run, Transpose::kNT, x, w, offsets, y)
                        : ops::matmul(run, Transpose::kNT, x, w, y);
    };
  }));
}

void add_int8(std::vector<OpCase>& cases, const Product& of) {
  const Spec values = ops::int8_values_spec(of.weights());
  const Spec scales = ops::int8_scales_spec(of.weights());
  const auto bytes = static_cast<double>(values.bytes() + scales.bytes());
  cases.push_back(made(of, "int8", bytes, [=](Operands& at) {
    const Int8Matrix w = {at.zeros(values), at.random(scales)};
    write_on_host<std::uint8_t>(w.values, [](std::span<std::uint8_t> all) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(7 * i);
    });
    const Tensor x = at.random(of.x()), y = at.zeros(of.y());
    const Tensor offsets = of.groups == 0 ? Tensor() : of.offsets(at);
    at.scratch(ops::matmul_int8_scratch_bytes(of.x(), of.weights()));
    return [=](Run& run) {
      offsets.defined() ? ops::grouped_matmul_int8(run, x, w, offsets, y)
                        : ops::matmul_int8(run, x, w, y);
    };
  }));
}

}  // namespace

std::vector<OpCase> generation_op_cases(const nn::ModelConfig& config) {
  std::vector<Product> products;
  for (const std::int64_t rows : {1, 8}) {
    products.push_back({"head", rows, config.vocab_size, config.hidden_size});
  }
  if (const nn::ExpertShape& experts = config.experts; experts.num_experts > 0) {
    products.push_back({"experts", experts.top_k, 2 * experts.intermediate_size, config.hidden_size,
                        experts.num_experts});
  }
  std::vector<OpCase> cases;
  for (const Product& product : products) {
    add_bf16(cases, product);
    add_int8(cases, product);
  }
  return cases;
}

}  // namespace atl::plan
