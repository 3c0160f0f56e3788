#include "atoll/ops/gated_delta/gated_delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

// As tools/golden/gated_delta.py has them.
constexpr std::int64_t kBatch = 2, kLength = 6, kHeads = 2, kKeys = 3, kValues = 4;
const Shape kKeyRows = {kBatch, kLength, kHeads, kKeys};
const Shape kValueRows = {kBatch, kLength, kHeads, kValues};
const Shape kNumbers = {kBatch, kLength, kHeads};
const Shape kStates = {kBatch, kHeads, kLength + 1, kKeys* kValues};

struct Operands {
  OwnedTensor<double> q, k, v, g, beta;

  template <typename Make>
  explicit Operands(Make&& make)
      : q(make("q", kKeyRows)),
        k(make("k", kKeyRows)),
        v(make("v", kValueRows)),
        g(make("g", kNumbers)),
        beta(make("beta", kNumbers)) {}
  GatedDelta view() { return {q, k, v, g, beta}; }
  std::vector<std::pair<const char*, OwnedTensor<double>*>> all() {
    return {{"q", &q}, {"k", &k}, {"v", &v}, {"g", &g}, {"beta", &beta}};
  }
};

OwnedTensor<double> zeros(const std::string& /*name*/, const Shape& shape) {
  return OwnedTensor<double>(shape);
}

// transformers computes in f32: sums of a few terms of order one.
TEST(GatedDelta, IsThatOfTransformers) {
  const auto golden = nlohmann::json::parse(
      read_file(test_source_dir() / "src/atoll/ops/testdata/gated_delta.json"));
  const auto read = [&](const std::string& name, const Shape& shape) {
    OwnedTensor<double> tensor(shape);
    tensor.values = golden.at(name).get<std::vector<double>>();
    EXPECT_EQ(std::ssize(tensor.values), shape.num_elements()) << name;
    return tensor;
  };
  Operands in(read), gradients(zeros);
  OwnedTensor<double> states(kStates), y(kValueRows);
  auto dy = read("dy", kValueRows);
  TestRun run;
  gated_delta_forward(run, in.view(), states, y);
  gated_delta_backward(run, in.view(), states, dy, gradients.view());
  EXPECT_LT(test::max_relative_error(y, read("y", kValueRows)), 1e-5);
  for (const auto& [name, tensor] : gradients.all()) {
    EXPECT_LT(test::max_relative_error(*tensor, read(std::string("d") + name, tensor->shape)), 1e-5)
        << name;
  }
}

TEST(GatedDelta, GradientsMatchFiniteDifferences) {
  std::uint64_t seed = 1;
  Operands in([&](const std::string& name, const Shape& shape) {
    auto tensor = random_tensor<double>(shape, seed++);
    for (double& value : tensor.values) {
      if (name == "g") value = -std::abs(value);
      if (name == "beta") value = 0.5 + 0.4 * value;
    }
    return tensor;
  });
  Operands gradients(zeros);
  // Not from nothing: as a sequence goes on.
  auto states = random_tensor<double>(kStates, 20);
  auto dy = random_tensor<double>(kValueRows, 21);
  OwnedTensor<double> y(kValueRows);
  TestRun run;
  const auto loss = [&] {
    gated_delta_forward(run, in.view(), states, y);
    double sum = 0;
    for (std::int64_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  loss();
  gated_delta_backward(run, in.view(), states, dy, gradients.view());
  const auto analytic = gradients.all();
  std::size_t which = 0;
  for (const auto& [name, tensor] : in.all()) {
    const auto numeric = test::finite_difference(*tensor, loss);
    EXPECT_LT(test::max_relative_error(*analytic[which++].second, numeric), 1e-7) << name;
  }
}

TEST(GatedDelta, ThreadCountChangesNoBit) {
  std::uint64_t seed = 1;
  Operands in(
      [&](const std::string&, const Shape& shape) { return random_tensor<double>(shape, seed++); });
  OwnedTensor<double> first(kValueRows), second(kValueRows);
  for (const auto& [threads, y] : {std::pair{1, &first}, std::pair{3, &second}}) {
    TestRun run(threads);
    OwnedTensor<double> states(kStates);
    gated_delta_forward(run, in.view(), states, *y);
  }
  EXPECT_EQ(first.values, second.values);
}

}  // namespace
}  // namespace atl::ops
