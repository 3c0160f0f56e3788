#pragma once

// A model directory that transformers wrote, with what torch computes from it beside it; see
// tools/golden/families.py for the tensors' names.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/ops/testing.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/step/step.h"

namespace atl::golden {

/// Sizes of families.py.
constexpr std::int64_t kSteps = 10;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 24;
constexpr std::int64_t kPrompt = 11;
constexpr std::int64_t kVocab = 101;
constexpr std::int32_t kDocuments[] = {0, 7, 8, 18};

/// max |a - b| / max |b|; infinite where the sizes differ or something is NaN.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double{a[i]} - double{b[i]});
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return largest > 0 ? worst / largest : worst;
}

/// The directory `name` below tests/golden.
struct Fixture {
  explicit Fixture(const std::string& name)
      : path(test_source_dir() / "tests" / "golden" / name),
        expected(path / "expected.safetensors") {}

  nn::ModelConfig config() const {
    return nn::parse_config(read_file(path / "config.json"), path / "config.json");
  }
  std::vector<float> numbers(const std::string& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(expected.spec(tensor).shape.num_elements()));
    expected.read_f32(tensor, std::span<float>(values));
    return values;
  }
  test::OwnedTensor<std::int32_t> ids(const std::string& tensor) const {
    test::OwnedTensor<std::int32_t> values(expected.spec(tensor).shape);
    expected.read(tensor, values);
    return values;
  }

  std::filesystem::path path;
  ckpt::SafetensorsFile expected;
};

/// The logits of every position, (B * T * V), by the layers' forward passes one after the other.
/// In training a model never forms them: the head goes from its input to losses in pieces.
inline std::vector<float> logits_of(nn::Model& model, test::TestRun& run, const Batch& batch) {
  std::deque<test::OwnedTensor<float>> memory;
  const auto make = [&](const Spec& spec) {
    memory.emplace_back(spec.shape);
    return Tensor(memory.back().values.data(), spec);  // f32, or indices of as many bytes
  };
  Tensor x = batch.tokens;
  for (std::size_t i = 0; i + 1 < model.stages.size(); ++i) {
    const nn::Footprint footprint = model.stages[i]->plan(x.spec());
    std::vector<Tensor> kept;
    for (const Spec& spec : footprint.kept) kept.push_back(make(spec));
    const Tensor y = make(footprint.y);
    model.stages[i]->forward(run, {.x = x, .y = y, .kept = kept, .batch = &batch});
    x = y;
  }
  const std::int64_t rows = x.shape().num_rows();
  test::OwnedTensor<float> logits({rows, model.config.vocab_size});
  const Tensor hidden = x.reshaped({rows, x.dim(-1)});
  const auto* capped = dynamic_cast<const nn::VocabularyCrossEntropy*>(model.stages.back().get());
  capped != nullptr ? capped->logits(run, hidden, logits) : model.head->logits(run, hidden, logits);
  return logits.values;
}

/// What a model directory would hold: name to elements, in the files' names and shapes. `tensor`
/// gives a parameter's value or its gradient.
template <typename TensorOf>
std::map<std::string, std::vector<float>> as_files(const parallel::ParamStore& store,
                                                   TensorOf&& tensor) {
  std::vector<ckpt::ParamTensor> held;
  for (const nn::Param* param : store.params()) held.push_back({param, tensor(*param)});
  std::map<std::string, std::vector<float>> files;
  for (const ckpt::TensorSource& source : ckpt::file_sources(held)) {
    std::string bytes;
    source.produce([&](const void* data, std::size_t size) {
      bytes.append(static_cast<const char*>(data), size);
    });
    std::vector<float>& values = files[source.name];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return files;
}

}  // namespace atl::golden
