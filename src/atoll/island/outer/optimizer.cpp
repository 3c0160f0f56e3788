#include "atoll/island/outer/optimizer.h"

#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::island {

namespace {

void check_sizes(const OuterOptimizer& optimizer, std::size_t n, std::size_t mean_delta,
                 std::size_t state_in, std::size_t anchor_out, std::size_t state_out) {
  const std::size_t state = n * static_cast<std::size_t>(optimizer.num_state_vectors());
  ATOLL_CHECK(mean_delta == n && anchor_out == n && state_in == state && state_out == state,
              "an outer step of {} elements: mean {}, new anchor {}, state {} and {} of {}", n,
              mean_delta, anchor_out, state_in, state_out, state);
}

float lr_of(const OuterStepInfo& info, float usual) {
  return info.lr > 0 ? static_cast<float>(info.lr) : usual;
}

class Sgd final : public OuterOptimizer {
 public:
  explicit Sgd(const OuterOptimizerOptions& options) : lr_(static_cast<float>(options.lr)) {}

  int num_state_vectors() const override { return 0; }
  bool is_linear() const override { return true; }
  void step(std::span<const float> anchor, std::span<const float> mean_delta,
            std::span<const float> state_in, std::span<float> anchor_out,
            std::span<float> state_out, const OuterStepInfo& info) const override {
    check_sizes(*this, anchor.size(), mean_delta.size(), state_in.size(), anchor_out.size(),
                state_out.size());
    const float lr = lr_of(info, lr_);
    for (std::size_t i = 0; i < anchor.size(); ++i) {
      anchor_out[i] = anchor[i] - lr * mean_delta[i];
    }
  }

 private:
  float lr_;
};

// Heavy-ball and Nesterov's momentum differ in what is taken off the anchor.
class Momentum final : public OuterOptimizer {
 public:
  explicit Momentum(const OuterOptimizerOptions& options)
      : is_nesterov_(options.kind == "nesterov"),
        lr_(static_cast<float>(options.lr)),
        momentum_(static_cast<float>(options.momentum)) {}

  int num_state_vectors() const override { return 1; }
  bool is_linear() const override { return true; }
  void step(std::span<const float> anchor, std::span<const float> mean_delta,
            std::span<const float> state_in, std::span<float> anchor_out,
            std::span<float> state_out, const OuterStepInfo& info) const override {
    check_sizes(*this, anchor.size(), mean_delta.size(), state_in.size(), anchor_out.size(),
                state_out.size());
    const float lr = lr_of(info, lr_);
    // Each input element is read before its output is written, so they may be the same memory.
    for (std::size_t i = 0; i < anchor.size(); ++i) {
      const float delta = mean_delta[i];
      const float v = momentum_ * state_in[i] + delta;
      const float change = is_nesterov_ ? delta + momentum_ * v : v;
      anchor_out[i] = anchor[i] - lr * change;
      state_out[i] = v;
    }
  }

 private:
  bool is_nesterov_;
  float lr_;
  float momentum_;
};

// Of islands that come one by one.
class AsyncMomentum final : public OuterOptimizer {
 public:
  explicit AsyncMomentum(const OuterOptimizerOptions& options)
      : is_delayed_(options.kind == "delayed_nesterov"),
        islands_(options.islands),
        lr_(static_cast<float>(options.lr)),
        momentum_(static_cast<float>(options.momentum)) {}

  // The momentum, and the sum of the round so far.
  int num_state_vectors() const override { return is_delayed_ ? 2 : 1; }
  bool is_linear() const override { return false; }
  void step(std::span<const float> anchor, std::span<const float> mean_delta,
            std::span<const float> state_in, std::span<float> anchor_out,
            std::span<float> state_out, const OuterStepInfo& info) const override {
    check_sizes(*this, anchor.size(), mean_delta.size(), state_in.size(), anchor_out.size(),
                state_out.size());
    const std::size_t n = anchor.size();
    const float lr = lr_of(info, lr_);
    const auto part = static_cast<float>(static_cast<double>(info.contributions) / islands_);
    const bool ends_round =
        (info.arrivals + info.contributions) / islands_ > info.arrivals / islands_;
    for (std::size_t i = 0; i < n; ++i) {
      const float delta = part * mean_delta[i];
      if (!is_delayed_) {
        const float v = momentum_ * state_in[i] + delta;
        anchor_out[i] = anchor[i] - lr * (delta + momentum_ * v);
        state_out[i] = v;
        continue;
      }
      const float sum = state_in[n + i] + delta;
      const float m = ends_round ? momentum_ * state_in[i] + sum : state_in[i];
      anchor_out[i] = anchor[i] - lr * (ends_round ? delta + momentum_ * m : delta);
      state_out[i] = m;
      state_out[n + i] = ends_round ? 0.0F : sum;
    }
  }

 private:
  bool is_delayed_;
  std::int64_t islands_;
  float lr_;
  float momentum_;
};

class Adam final : public OuterOptimizer {
 public:
  explicit Adam(const OuterOptimizerOptions& options) : options_(options) {}

  int num_state_vectors() const override { return 2; }
  bool is_linear() const override { return false; }
  void step(std::span<const float> anchor, std::span<const float> mean_delta,
            std::span<const float> state_in, std::span<float> anchor_out,
            std::span<float> state_out, const OuterStepInfo& info) const override {
    check_sizes(*this, anchor.size(), mean_delta.size(), state_in.size(), anchor_out.size(),
                state_out.size());
    const std::size_t n = anchor.size();
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto rest1 = static_cast<float>(1 - options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto rest2 = static_cast<float>(1 - options_.beta2);
    const auto exponent = static_cast<double>(info.k + 1);
    const auto step_size = static_cast<float>((info.lr > 0 ? info.lr : options_.lr) /
                                              (1 - std::pow(options_.beta1, exponent)));
    const auto root_scale =
        static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, exponent)));
    const auto eps = static_cast<float>(options_.eps);
    for (std::size_t i = 0; i < n; ++i) {
      const float delta = mean_delta[i];
      const float m = beta1 * state_in[i] + rest1 * delta;
      const float v = beta2 * state_in[n + i] + rest2 * delta * delta;
      anchor_out[i] = anchor[i] - step_size * m / (std::sqrt(v) * root_scale + eps);
      state_out[i] = m;
      state_out[n + i] = v;
    }
  }

 private:
  OuterOptimizerOptions options_;
};

void require(bool is_right, const char* name, double value, const char* range) {
  if (is_right) return;
  throw user_error("the outer optimizer's {} is {}: it must be {}", name, value, range);
}

bool is_fraction(double value) {
  return value >= 0 && value < 1;
}

}  // namespace

std::unique_ptr<OuterOptimizer> make_outer_optimizer(const OuterOptimizerOptions& options) {
  require(options.lr > 0 && std::isfinite(options.lr), "lr", options.lr, "above 0");
  if (options.kind == "sgd" || options.kind == "nesterov") {
    require(is_fraction(options.momentum), "momentum", options.momentum, "from 0 to below 1");
    // Without momentum both are the same, and carry nothing.
    if (options.momentum == 0) return std::make_unique<Sgd>(options);
    return std::make_unique<Momentum>(options);
  }
  if (options.kind == "delayed_nesterov" || options.kind == "naive_nesterov") {
    require(is_fraction(options.momentum), "momentum", options.momentum, "from 0 to below 1");
    require(options.islands >= 1, "number of islands", options.islands, "at least 1");
    return std::make_unique<AsyncMomentum>(options);
  }
  if (options.kind == "adam") {
    require(is_fraction(options.beta1), "beta1", options.beta1, "from 0 to below 1");
    require(is_fraction(options.beta2), "beta2", options.beta2, "from 0 to below 1");
    require(options.eps > 0 && std::isfinite(options.eps), "eps", options.eps, "above 0");
    return std::make_unique<Adam>(options);
  }
  throw user_error("there is no outer optimizer '{}': choose sgd, nesterov or adam", options.kind);
}

}  // namespace atl::island
