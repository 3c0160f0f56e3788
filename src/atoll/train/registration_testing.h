#pragma once

// An optimizer and a model family that the program does not have, each as its file would be.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/nn/models/assemble.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/sequential.h"
#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/registry.h"

namespace atl::train::testing {

/// values -= lr boldness sign(gradient).
class SignDescent final : public optim::FlatOptimizer {
 public:
  SignDescent(const optim::OptimizerOptions& options, Spec flat,
              std::span<const optim::ParamRange> ranges)
      : FlatOptimizer(options, flat, ranges), boldness_(options.number("test_boldness")) {}

  void update(Run& /*run*/, const optim::StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    const auto size = static_cast<float>(args.lr * boldness_);
    for (const optim::ParamRange& range : ranges()) {
      float* value = values.data<float>() + range.in_values();
      const float* grad = grads.data<float>() + range.in_grads();
      for (std::int64_t i = 0; i < range.count; ++i) {
        if (grad[i] != 0) value[i] -= std::copysign(size, grad[i]);
      }
    }
  }

 private:
  double boldness_;
};

/// The entry of SignDescent.
inline optim::OptimizerKind sign_descent(bool whole_matrices = false) {
  return {
      .name = "test_sign",
      .doc = "test_sign: the sign of the gradient",
      .options = {{.name = "test_boldness",
                   .default_value = 1.0,
                   .doc = "how large its steps are.",
                   .range = between(0, 10)},
                  optim::weight_decay_option()},
      .whole_matrices = whole_matrices,
      .make = [](const optim::OptimizerOptions& options, Spec flat,
                 std::span<const optim::ParamRange> ranges) -> std::unique_ptr<optim::Optimizer> {
        return std::make_unique<SignDescent>(options, flat, ranges);
      }};
}

/// y = x / sqrt(mean(x^2) + eps), without parameters.
class PlainNorm final : public nn::Layer {
 public:
  nn::Footprint plan(Spec x) const override { return {.y = x, .need_x = nn::kForInput}; }
  void forward(Run& /*run*/, const nn::Pass& pass) override {
    for_rows(pass.x, [&](std::int64_t at, std::int64_t width) {
      const float* x = pass.x.data<float>() + at;
      const float scale = scale_of(x, width);
      for (std::int64_t i = 0; i < width; ++i) pass.y.data<float>()[at + i] = x[i] * scale;
    });
  }
  void backward_input(Run& /*run*/, const nn::Pass& pass) override {
    for_rows(pass.x, [&](std::int64_t at, std::int64_t width) {
      const float* x = pass.x.data<float>() + at;
      const float* dy = pass.dy.data<float>() + at;
      const float scale = scale_of(x, width);
      float mean = 0;  // of dy y
      for (std::int64_t i = 0; i < width; ++i) mean += dy[i] * x[i] * scale;
      mean /= static_cast<float>(width);
      for (std::int64_t i = 0; i < width; ++i) {
        pass.dx.data<float>()[at + i] = scale * (dy[i] - x[i] * scale * mean);
      }
    });
  }

 private:
  static float scale_of(const float* x, std::int64_t width) {
    float sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
    return 1 / std::sqrt(sum / static_cast<float>(width) + 1e-5F);
  }
  template <typename Fn>
  static void for_rows(const Tensor& x, const Fn& fn) {
    const std::int64_t width = x.dim(-1);
    for (std::int64_t at = 0; at < x.num_elements(); at += width) fn(at, width);
  }
};

/// y = max(x, 0)^2 (So et al. 2021, "Primer").
class SquaredRelu final : public nn::Layer {
 public:
  nn::Footprint plan(Spec x) const override { return {.y = x, .need_x = nn::kForInput}; }
  void forward(Run& /*run*/, const nn::Pass& pass) override {
    for (std::int64_t i = 0; i < pass.x.num_elements(); ++i) {
      const float x = std::max(pass.x.data<float>()[i], 0.0F);
      pass.y.data<float>()[i] = x * x;
    }
  }
  void backward_input(Run& /*run*/, const nn::Pass& pass) override {
    for (std::int64_t i = 0; i < pass.x.num_elements(); ++i) {
      pass.dx.data<float>()[i] =
          2 * std::max(pass.x.data<float>()[i], 0.0F) * pass.dy.data<float>()[i];
    }
  }
};

/// Blocks of an MLP alone, with SquaredRelu and PlainNorm. Its config.json is Llama's but for the
/// type.
inline nn::Family squared_relu_family() {
  static constexpr const char* kName = "test_relu2";
  const auto renamed = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find('"' + from + '"');
    return at == std::string::npos ? text : text.replace(at + 1, from.size(), to);
  };
  static const auto rename = renamed;
  return {
      .model_type = kName,
      .parse =
          [](std::string_view json, const std::string& origin) {
            nn::ModelConfig config = nn::find_family("llama", origin)
                                         .parse(rename(std::string(json), kName, "llama"), origin);
            config.family = kName;
            return config;
          },
      .to_json =
          [](const nn::ModelConfig& config) {
            return rename(nn::find_family("llama", "").to_json(config), "llama", kName);
          },
      .build =
          [](const nn::ModelConfig& config, const nn::BuildOptions& options) {
            const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
              return std::make_unique<nn::Linear>(nn::make_linear(
                  options.dtype, {{name, out}}, in, config.initializer_range, /*bias=*/false));
            };
            std::vector<std::unique_ptr<nn::Layer>> blocks;
            for (int i = 0; i < config.num_layers; ++i) {
              const std::string at = "model.layers." + std::to_string(i) + ".mlp.";
              std::vector<std::unique_ptr<nn::Layer>> mlp;
              mlp.push_back(linear(at + "up", config.intermediate_size, config.hidden_size));
              mlp.push_back(std::make_unique<SquaredRelu>());
              mlp.push_back(linear(at + "down", config.hidden_size, config.intermediate_size));
              blocks.push_back(nn::make_residual(std::make_unique<PlainNorm>(),
                                                 std::make_unique<nn::Sequential>(std::move(mlp)),
                                                 options, 2 * i + 2));
            }
            const Spec table = {options.dtype, {config.vocab_size, config.hidden_size}};
            const nn::Init init = nn::Init::normal(config.initializer_range);
            nn::TensorSplit split(config, options);
            nn::TensorEnds ends =
                split.ends(nn::make_param("model.embed_tokens.weight", table, init, true), {},
                           nn::make_param("lm_head.weight", table, init, true));
            return nn::assemble(config, options, {}, split, std::move(ends), std::move(blocks),
                                std::make_unique<PlainNorm>());
          },
      .norm = "plain_norm",
      .activation = "squared_relu",
      .has_gate = false};
}

}  // namespace atl::train::testing
