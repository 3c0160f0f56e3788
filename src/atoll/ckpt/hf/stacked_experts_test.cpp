// The experts that gpt-oss's files stack: names, both ways, and MXFP4 against transformers. That
// whole models go both ways is seen in tests/golden.

#include "atoll/ckpt/hf/stacked_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/testing.h"
#include "atoll/ops/testing.h"

namespace atl::ckpt {
namespace {

namespace fs = std::filesystem;
using test::OwnedTensor;
using test::random_tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kNumExperts = 3, kOut = 5, kIn = 7;

// As the family gpt_oss has it: gate above up, expert by expert.
nn::Param gate_up(bool is_bias) {
  nn::Param param;
  param.spec = {Dtype::kF32,
                is_bias ? Shape{kNumExperts * 2 * kOut} : Shape{kNumExperts * 2 * kOut, kIn}};
  for (std::int64_t e = 0; e < kNumExperts; ++e) {
    for (const char* part : {"gate", "up"}) {
      const std::string name =
          fmt::format("m.experts.{}.gate_up_proj.{}.{}", e, part, is_bias ? "bias" : "weight");
      param.files.push_back({name, std::ssize(param.files) * kOut, kOut, false});
    }
  }
  return param;
}

TEST(StackedExperts, NamesAreThoseOfPartsAndNoOthers) {
  const auto up = stacked_expert("model.layers.7.mlp.experts.12.gate_up_proj.up.bias");
  ASSERT_TRUE(up);
  EXPECT_EQ(up->tensor, "model.layers.7.mlp.experts.gate_up_proj_bias");
  EXPECT_EQ(up->expert, 12);
  EXPECT_EQ(up->part, 1);
  EXPECT_EQ(up->num_parts, 2);
  EXPECT_TRUE(up->is_bias);
  EXPECT_EQ(stacked_name("model.layers.7.mlp.experts.down_proj", 3, 0),
            "model.layers.7.mlp.experts.3.down_proj.down.weight");
  for (const char* other :
       {"model.layers.0.mlp.experts.3.down_proj.weight", "m.experts.x.gate_up_proj.up.bias",
        "m.experts..gate_up_proj.up.bias", "m.experts.3.gate_up_proj.down.weight",
        "m.experts.1234567.gate_up_proj.up.bias", "m.experts.3", ""}) {
    EXPECT_FALSE(stacked_expert(other)) << other;
  }
}

TEST(StackedExperts, AFileHasInputsByOutputsWithGateAndUpInTurn) {
  for (const bool is_bias : {false, true}) {
    const nn::Param param = gate_up(is_bias);
    OwnedTensor<float> value(param.spec.shape);
    for (std::int64_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(i);
    const std::vector<ParamTensor> held = {{&param, value}};
    const std::vector<TensorSource> sources = file_sources(held);
    ASSERT_EQ(sources.size(), 1U);
    EXPECT_EQ(sources[0].name, is_bias ? "m.experts.gate_up_proj_bias" : "m.experts.gate_up_proj");
    const std::int64_t in = is_bias ? 1 : kIn;
    EXPECT_EQ(sources[0].spec.shape,
              is_bias ? Shape({kNumExperts, 2 * kOut}) : Shape({kNumExperts, kIn, 2 * kOut}));
    std::vector<float> file;
    sources[0].produce([&](const void* data, std::size_t size) {
      const auto* values = static_cast<const float*>(data);
      file.insert(file.end(), values, values + size / sizeof(float));
    });
    ASSERT_EQ(std::ssize(file), value.size());
    for (std::int64_t i = 0; i < value.size(); ++i) {
      const std::int64_t column = i % (2 * kOut), row = i / (2 * kOut) % in;
      const std::int64_t expert = i / (2 * kOut * in);
      const std::int64_t out = (expert * 2 + column % 2) * kOut + column / 2;
      ASSERT_EQ(file[static_cast<std::size_t>(i)], value[out * in + row]) << i;
    }
  }
}

TEST(StackedExperts, WhatIsWrittenReadsBackInAnyFloats) {
  const testing::TemporaryDirectory directory("stacked-experts");
  const fs::path path = directory.path() / "model.safetensors";
  for (const bool is_bias : {false, true}) {
    const nn::Param param = gate_up(is_bias);
    auto value = random_tensor<float>(param.spec.shape, 1);
    for (float& x : value.values) x = static_cast<float>(static_cast<int>(x * 100)) / 128;  // bf16
    const std::vector<ParamTensor> held = {{&param, value}};
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      FileDtypes dtypes;
      for (const nn::FileTensor& file : param.files) dtypes[file.name] = dtype;
      write_safetensors(path, file_sources(held, "", dtypes));
      OwnedTensor<float> again(param.spec.shape);
      const std::vector<ParamTensor> read = {{&param, again}};
      read_params(SafetensorsFile(path), read);
      EXPECT_EQ(again, value) << is_bias;
    }
    // Optimizer state keeps them one by one.
    write_safetensors(path, file_sources(held, "exp_avg."));
    OwnedTensor<float> again(param.spec.shape);
    const std::vector<ParamTensor> read = {{&param, again}};
    read_params(SafetensorsFile(path), read, "exp_avg.");
    EXPECT_EQ(again, value) << is_bias;
  }
}

TEST(StackedExperts, AnotherShapeIsRefusedByName) {
  const testing::TemporaryDirectory directory("stacked-experts");
  const fs::path path = directory.path() / "model.safetensors";
  auto stack = random_tensor<float>({kNumExperts, kIn, 2 * kOut + 2}, 1);
  const std::vector<NamedTensor> written = {{"m.experts.gate_up_proj", stack}};
  write_safetensors(path, written);
  const nn::Param param = gate_up(/*is_bias=*/false);
  OwnedTensor<float> value(param.spec.shape);
  const std::vector<ParamTensor> read = {{&param, value}};
  try {
    read_params(SafetensorsFile(path), read);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("m.experts.gate_up_proj"),
                                    HasSubstr("(3, 7, 12)")));
  }
}

// tools/golden/quantised.py has had transformers widen them: bit for bit.
TEST(StackedExperts, Mxfp4HasTheNumbersOfTransformers) {
  const HfDirectory directory(testing::testdata() / "quantised" / "mxfp4");
  const QuantisedWeights weights(directory);
  EXPECT_EQ(weights.method(), "mxfp4");
  ASSERT_EQ(weights.all().size(), 2U * 2 + 2);
  for (const auto& [stack, parts] : {std::pair("gate_up_proj", 2), std::pair("down_proj", 1)}) {
    const std::string expected_name = std::string("expected.") + stack;
    const Shape shape = directory.spec(expected_name).shape;  // (experts, in, out)
    std::vector<float> expected(static_cast<std::size_t>(shape.num_elements()));
    directory.read_f32(expected_name, expected);
    const std::int64_t in = shape.dim(1), width = shape.dim(2), out = width / parts;
    for (std::int64_t expert = 0; expert < 2; ++expert) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const StoredMatrix* stored = weights.find(
            stacked_name(std::string("model.layers.0.mlp.experts.") + stack, expert, part));
        ASSERT_NE(stored, nullptr);
        EXPECT_EQ(stored->shape, Shape({out, in}));
        std::vector<float> wide(static_cast<std::size_t>(out * in));
        widen_stored(*stored, wide);
        for (std::int64_t i = 0; i < out * in; ++i) {
          const std::int64_t at = (expert * in + i % in) * width + i / in * parts + part;
          ASSERT_EQ(wide[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(at)])
              << stack << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace atl::ckpt
