#include "atoll/nn/mixture_of_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/nn/models/parts.h"
#include "atoll/nn/recompute.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

constexpr Dtype kDouble = Dtype::kF64;
constexpr std::int64_t kExperts = 4, kTopK = 2, kWidth = 8, kHidden = 6;
const Spec kX = {kDouble, {2, 5, kWidth}};

// As of the other layers: see layers_test.cpp.
constexpr double kTolerance = 1e-7;

using Options = MixtureOfExperts::Options;

std::unique_ptr<MixtureOfExperts> experts(ExpertLoad& load, Options options = {}) {
  options.num_experts = kExperts;
  options.top_k = kTopK;
  const auto param = [](const char* name, std::int64_t rows, std::int64_t columns) {
    return make_param(name, {kDouble, {rows, columns}}, Init::normal(0.1), true);
  };
  return std::make_unique<MixtureOfExperts>(options, param("router", kExperts, kWidth),
                                            param("gate_up", kExperts * 2 * kHidden, kWidth),
                                            param("down", kExperts * kWidth, kHidden), &load);
}

ExpertLoad new_load() {
  return {0, kExperts};
}

void expect_gradients(Layer& layer) {
  LayerBench bench(layer, kX);
  std::string where;
  EXPECT_LT(bench.worst_error(&where), kTolerance) << where;
}

TEST(MixtureOfExperts, GradientsMatchFiniteDifferences) {
  for (const bool normalize : {true, false}) {
    ExpertLoad load = new_load();
    expect_gradients(*experts(load, {.router = {.normalize = normalize}}));
  }
}

TEST(MixtureOfExperts, GradientsMatchFiniteDifferencesOfDeepseeksRouters) {
  for (const bool sigmoid : {true, false}) {
    ExpertLoad load = new_load();
    expect_gradients(*experts(load, {.router = {.sigmoid = sigmoid,
                                                .scale = 2.5,
                                                .num_groups = 2,
                                                .top_groups = 1,
                                                .best_of_group = 2}}));
  }
}

TEST(MixtureOfExperts, GradientsMatchFiniteDifferencesWhereExpertsAreFull) {
  ExpertLoad load = new_load();
  expect_gradients(*experts(load, {.capacity_factor = 0.6}));
  EXPECT_GT(load.sum(ExpertLoad::kDropped), 0);
}

TEST(MixtureOfExperts, GradientsMatchFiniteDifferencesWhenMadeAgain) {
  ExpertLoad load = new_load();
  Recompute recompute(experts(load));
  EXPECT_TRUE(recompute.plan(kX).kept.empty());
  expect_gradients(recompute);
  // Forward ran twice, and the tokens count once.
  EXPECT_EQ(load.sum(ExpertLoad::kTokens), 10);
}

// sum over the chosen experts of weight * mlp(x), by the definition.
std::vector<double> by_definition(const LayerBench& bench, bool normalize) {
  const auto element = [](const Tensor& tensor, std::int64_t i) {
    return tensor.data<double>()[i];
  };
  const Tensor router = bench.params[0]->value;
  const Tensor gate_up = bench.params[1]->value;
  const Tensor down = bench.params[2]->value;
  std::vector<double> y(static_cast<std::size_t>(bench.x.num_elements()));
  for (std::int64_t t = 0; t < bench.x.shape().num_rows(); ++t) {
    const auto product = [&](const Tensor& w, std::int64_t row) {
      double sum = 0;
      for (std::int64_t c = 0; c < kWidth; ++c) {
        sum += element(w, row * kWidth + c) * element(bench.x, t * kWidth + c);
      }
      return sum;
    };
    std::vector<std::pair<double, std::int64_t>> scores;
    double all = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      scores.emplace_back(-std::exp(product(router, e)), e);
      all -= scores.back().first;
    }
    std::sort(scores.begin(), scores.end());
    scores.resize(kTopK);
    if (normalize) all = -(scores[0].first + scores[1].first);
    for (const auto& [negative, e] : scores) {
      for (std::int64_t f = 0; f < kHidden; ++f) {
        const double gate = product(gate_up, e * 2 * kHidden + f);
        const double up = product(gate_up, e * 2 * kHidden + kHidden + f);
        const double h = gate / (1 + std::exp(-gate)) * up;
        for (std::int64_t c = 0; c < kWidth; ++c) {
          y[static_cast<std::size_t>(t * kWidth + c)] +=
              -negative / all * h * element(down, (e * kWidth + c) * kHidden + f);
        }
      }
    }
  }
  return y;
}

TEST(MixtureOfExperts, IsTheWeightedSumOfTheChosen) {
  for (const bool normalize : {true, false}) {
    ExpertLoad load = new_load();
    const auto layer = experts(load, {.router = {.normalize = normalize}});
    LayerBench bench(*layer, kX);
    bench.loss();
    const std::vector<double> wanted = by_definition(bench, normalize);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(bench.y.data<double>()[i], wanted[i], 1e-13) << i;
    }
  }
}

// The loss of a token is 1/8 of the step's here. The router's losses are no part of y: their
// gradient is that of the step loss they are said to weigh, with the choices held fixed.
TEST(MixtureOfExperts, RouterLossesAddTheirGradients) {
  const Options options = {.router = {.normalize = false}, .balance_loss = 0.7, .z_loss = 0.3};
  ExpertLoad load = new_load();
  const auto layer = experts(load, options);
  LayerBench bench(*layer, kX);
  bench.run.run.loss_scale = 0.125;
  const Tensor router = bench.params[0]->value;
  bench.backward();
  std::vector<double> chosen(kExperts);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    chosen[static_cast<std::size_t>(e)] = load.chose(e) / load.sum(ExpertLoad::kTokens);
  }
  const auto losses_of = [&] {
    double sum = 0;
    for (std::int64_t t = 0; t < 10; ++t) {
      double exps[kExperts], all = 0;
      for (std::int64_t e = 0; e < kExperts; ++e) {
        double logit = 0;
        for (std::int64_t c = 0; c < kWidth; ++c) {
          logit += router.data<double>()[e * kWidth + c] * bench.x.data<double>()[t * kWidth + c];
        }
        exps[e] = std::exp(logit);
        all += exps[e];
      }
      sum += 0.3 * std::log(all) * std::log(all);
      for (std::int64_t e = 0; e < kExperts; ++e) {
        sum += 0.7 * kExperts * chosen[static_cast<std::size_t>(e)] * exps[e] / all;
      }
    }
    return 0.125 * sum;
  };
  // backward() spoils what a layer does not declare; x is declared.
  for (std::int64_t i = 0; i < router.num_elements(); ++i) {
    double& weight = router.data<double>()[i];
    const double saved = weight;
    constexpr double kStep = 1e-5;
    weight = saved + kStep;
    const double up = bench.loss() + losses_of();
    weight = saved - kStep;
    const double down = bench.loss() + losses_of();
    weight = saved;
    EXPECT_NEAR(bench.params[0]->grad.data<double>()[i], (up - down) / (2 * kStep), 1e-7) << i;
  }
}

TEST(MixtureOfExperts, CapacityIsForTrainingAlone) {
  ExpertLoad load = new_load();
  ExpertLoad roomy_load = new_load();
  const auto tight = experts(load, {.capacity_factor = 0.6});
  const auto roomy = experts(roomy_load);
  LayerBench a(*tight, kX), b(*roomy, kX);
  const auto same = [&] { return std::memcmp(a.y.raw(), b.y.raw(), a.y.bytes()) == 0; };
  a.loss(), b.loss();
  EXPECT_FALSE(same());
  a.run.run.training = b.run.run.training = false;
  a.loss(), b.loss();
  EXPECT_TRUE(same());
  EXPECT_EQ(load.sum(ExpertLoad::kTokens), 0) << "forward counts nothing";
}

TEST(MixtureOfExperts, CountsWhatItsTokensChoseUntilItIsCleared) {
  ExpertLoad load = new_load();
  const auto layer = experts(load);
  LayerBench bench(*layer, kX);
  bench.backward();
  bench.backward();
  double choices = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) choices += load.chose(e);
  EXPECT_EQ(choices, 2 * 10 * kTopK);
  EXPECT_EQ(load.sum(ExpertLoad::kTokens), 20);
  EXPECT_EQ(load.sum(ExpertLoad::kDropped), 0);
  EXPECT_GE(load.sum(ExpertLoad::kBalanceLoss), 0);
  load.clear();
  EXPECT_EQ(load.chose(0) + load.sum(ExpertLoad::kTokens), 0);
}

TEST(MixtureOfExperts, FrozenExpertsHandGradientsOn) {
  ExpertLoad load = new_load();
  const auto layer = experts(load);
  class Freeze final : public ParamVisitor {
    void param(Param& param) override { param.frozen = true; }
  } freeze;
  layer->visit(freeze);
  expect_gradients(*layer);
}

}  // namespace
}  // namespace atl::nn
