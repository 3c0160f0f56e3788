// What a training step moves beside products and attention: by the cost of its ops, where each
// operand is read or written once, and by what the threads of its kernels ask for, of memory or of
// a cache. Models have their true widths, one and two layers and a few tokens, and are carried on
// to all of them: counts grow in proportion to tokens, layers and the vocabulary. Beside them the
// roofline: what is left when all is fused that can be.

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/profile.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/gpu_models_testing.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {
namespace {

// Bytes by the kernel's name.
using Bytes = std::map<std::string, double>;

Bytes operator-(Bytes a, const Bytes& b) {
  for (const auto& [name, bytes] : b) a[name] -= bytes;
  return a;
}
Bytes operator*(Bytes a, double factor) {
  for (auto& [name, bytes] : a) bytes *= factor;
  return a;
}
Bytes operator+(Bytes a, const Bytes& b) {
  for (const auto& [name, bytes] : b) a[name] += bytes;
  return a;
}

// What forward and backward ask for, over so many tokens.
struct Count {
  nn::ModelConfig config;
  std::int64_t layers, vocab, tokens;

  Bytes of_threads() const {
    fake_cuda::FakeCudaDevice device({.threads = 2});
    step(device, nullptr);
    Bytes bytes;
    for (const auto& [name, total] : device.totals()) {
      // Attention grows otherwise.
      if (name.rfind("attention", 0) == 0) continue;
      bytes[name] = static_cast<double>(total.traffic.read + total.traffic.written);
    }
    return bytes;
  }
  Bytes of_ops() const {
    fake_cuda::FakeCudaDevice device({.threads = 2});
    ops::OpProfile profile;
    step(device, &profile);
    Bytes bytes;
    for (const ops::OpProfile::Row& row : profile.rows()) {
      if (row.cost.flops > 0) continue;
      bytes[row.op] += row.cost.bytes * static_cast<double>(row.calls);
    }
    return bytes;
  }

 private:
  void step(Device& device, ops::OpProfile* profile) const;
};

void Count::step(Device& device, ops::OpProfile* profile) const {
  nn::ModelConfig model_config = config;
  model_config.num_layers = layers;
  model_config.vocab_size = vocab;
  const auto stream = device.open_stream();
  const auto model =
      nn::build_model(model_config, {.dtype = Dtype::kBf16, .device = DeviceKind::kCuda});
  SingleStore store(*model, true);
  // Sequences of one length, so that more tokens have no more places.
  constexpr std::int64_t kLength = 4;
  const std::int64_t sequences = tokens / kLength;
  Runner runner(*model, store, Use::kTrain, sequences, kLength);
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  plan.place();
  const Arena arena(device, plan);
  store.bind(arena);
  runner.bind(arena);
  Run run = {.stream = stream.get()};
  run.loss_scale = 1;
  // Each token once: most rows of the embedding's gradient are read and written.
  test::OwnedTensor<std::int32_t> ids({sequences, kLength});
  std::iota(ids.values.begin(), ids.values.end(), 0);
  const Batch batch = {.tokens = ids, .targets = ids};
  store.begin_round({0, true});
  run.profile = profile;
  runner.forward_backward(run, {&batch, 1});
  stream->synchronize();
}

struct Step {
  Bytes parts;
  double total = 0;
};

constexpr double kTokens = 32768;

// Of a step of kTokens, from counts at a few and at twice as many: what does not grow with
// tokens is partial sums, whose number has a bound.
Step whole_step(const nn::ModelConfig& config, Bytes (Count::*count)() const) {
  constexpr std::int64_t kVocab = 64, kFew = 8;
  const auto of_token = [&](std::int64_t layers, std::int64_t vocab) {
    const Count more = {config, layers, vocab, 2 * kFew}, less = {config, layers, vocab, kFew};
    return ((more.*count)() - (less.*count)()) * (1.0 / kFew);
  };
  const Bytes one = of_token(1, kVocab);
  const Bytes layer = of_token(2, kVocab) - one;
  const Bytes word = (of_token(1, 2 * kVocab) - one) * (1.0 / kVocab);
  Step step;
  const auto layers = static_cast<double>(config.num_layers);
  const auto vocab = static_cast<double>(config.vocab_size);
  step.parts =
      (one + layer * (layers - 1) + word * (vocab - static_cast<double>(kVocab))) * kTokens;
  for (const auto& [name, bytes] : step.parts) step.total += bytes;
  return step;
}

// Within 1% of what is pinned: more is a regression, less is to be pinned anew.
void expect_ratio(const char* what, const Step& step, double roofline, double pinned) {
  std::string parts;
  for (const auto& [name, bytes] : step.parts) {
    parts += fmt::format("  {:32} {:8.2f} GB\n", name, bytes / 1e9);
  }
  EXPECT_NEAR(step.total / roofline, pinned, 0.01 * pinned)
      << what << ": " << step.total / 1e9 << " GB of " << roofline / 1e9 << '\n'
      << parts;
}

TEST(GpuBytes, OfAStepOf124M) {
  const nn::ModelConfig config = test::gpt2_124m();
  // A norm's rows are read and written, in the backward pass with two gradients in the place of
  // one; residuals and GELU are part of products. GELU's gradient, bias sums, embeddings.
  // Cross-entropy is part of the head's products as an op, and a kernel of its own.
  const double row = 32768.0 * 768 * 2;
  const double roofline = 25 * (2 + 4) * row + 12 * (604e6 + 252e6) + 250e6;
  const double cross_entropy = 6593e6;
  expect_ratio("ops", whole_step(config, &Count::of_ops), roofline, 1.0145);
  expect_ratio("threads", whole_step(config, &Count::of_threads), roofline + cross_entropy, 1.132);
}

TEST(GpuBytes, OfAStepOf1B) {
  const nn::ModelConfig config = test::llama_1b();
  // Norms; SwiGLU, whose h is a row four times as wide, forward (2 + 1) and backward (2 + 1 + 2);
  // RoPE of queries and keys in place, twice; embeddings.
  const double row = 32768.0 * 2048 * 2;
  const double roofline = 33 * (2 + 4) * row + 16 * 8 * 4 * row + 16 * 2 * 2 * 1.25 * row + 3 * row;
  expect_ratio("ops", whole_step(config, &Count::of_ops), roofline, 1.004);
}

}  // namespace
}  // namespace atl::parallel
