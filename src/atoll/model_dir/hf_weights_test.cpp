#include "atoll/ckpt/hf/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/export.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HfWeights : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(directory_ / "in"); }

  // Tensors of 6 elements of these dtypes, called t0, t1, ...
  std::vector<ckpt::TensorSource> tensors(const std::vector<Dtype>& dtypes) {
    std::vector<ckpt::TensorSource> sources;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      const Spec spec = {dtypes[i], {2, 3}};
      std::vector<std::byte>& bytes = memory_.emplace_back(spec.bytes());
      std::vector<float> values(6);
      for (std::size_t j = 0; j < 6; ++j) values[j] = static_cast<float>(10 * i + j) + 0.1F;
      ckpt::convert_from_f32(values, dtypes[i], bytes);
      sources.push_back({"t" + std::to_string(i), spec, [&bytes](const ckpt::ByteSink& sink) {
                           sink(bytes.data(), bytes.size());
                         }});
    }
    return sources;
  }
  void write_model(const std::vector<Dtype>& dtypes, std::uint64_t shard_bytes) {
    ckpt::write_weights(directory_ / "in", tensors(dtypes), shard_bytes);
    write_file(directory_ / "in/config.json",
               "{\"model_type\":\"x\", \"torch_dtype\":\"bfloat16\"}");
    write_file(directory_ / "in/merges.txt", "a b\n");
  }
  std::string refusal(const HfExportOptions& options) {
    try {
      export_hf(directory_ / "in", directory_ / "out", options);
    } catch (const Error& error) {
      return error.what();
    }
    return "exported";
  }
  // Every file of a directory.
  static std::map<std::string, std::string> contents(const fs::path& path) {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      found[entry.path().filename().string()] = read_file(entry.path());
    }
    return found;
  }

  ckpt::testing::TemporaryDirectory directory_{"hf-weights"};
  std::deque<std::vector<std::byte>> memory_;
};

TEST_F(HfWeights, OneFileUpToTheShardSizeAndShardsBeyond) {
  ckpt::write_weights(directory_.path(), tensors({Dtype::kF32, Dtype::kF32}), 48);
  EXPECT_TRUE(fs::exists(directory_ / "model.safetensors"));
  fs::remove(directory_ / "model.safetensors");
  // 24, 24, 12 and 24 bytes: the last does not fit beside the third.
  ckpt::write_weights(directory_ / "in",
                      tensors({Dtype::kF32, Dtype::kF32, Dtype::kBf16, Dtype::kF32}), 30);
  const auto index =
      nlohmann::json::parse(read_file(directory_ / "in/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 84);
  EXPECT_EQ(index["weight_map"]["t0"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["t3"], "model-00004-of-00004.safetensors");
  write_file(directory_ / "in/config.json", "{}");
  const ckpt::HfDirectory opened(directory_ / "in");
  EXPECT_EQ(opened.tensor_names(), (std::vector<std::string>{"t0", "t1", "t2", "t3"}));
  std::vector<float> values(6);
  opened.read_f32("t3", values);
  EXPECT_EQ(values[5], 35.1F);
}

TEST_F(HfWeights, AnExportWithoutOptionsIsTheSameFiles) {
  for (const std::uint64_t shard_bytes : {1000, 30}) {
    write_model({Dtype::kBf16, Dtype::kF16, Dtype::kF32}, shard_bytes);
    EXPECT_EQ(refusal({}), "exported");
    EXPECT_EQ(contents(directory_ / "out"), contents(directory_ / "in"));
    fs::remove_all(directory_ / "in");
    fs::remove_all(directory_ / "out");
    fs::create_directory(directory_ / "in");
  }
}

TEST_F(HfWeights, ACutAloneKeepsEveryTensorsBytes) {
  write_model({Dtype::kBf16, Dtype::kF16, Dtype::kF32}, 1000);
  EXPECT_EQ(refusal({.shard_bytes = 30}), "exported");
  const ckpt::HfDirectory in(directory_ / "in");
  const ckpt::HfDirectory out(directory_ / "out");
  EXPECT_EQ(out.files().size(), 2U);
  EXPECT_EQ(out.config_json(), in.config_json());
  for (const std::string& name : in.tensor_names()) {
    EXPECT_EQ(in.spec(name), out.spec(name));
    const auto a = in.file_of(name).bytes(name);
    const auto b = out.file_of(name).bytes(name);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
  }
}

// Each rank that saves a checkpoint writes a file; tensors lie in them as it came.
TEST_F(HfWeights, ACheckpointOfSeveralRanksIsCutBySizeAlone) {
  std::vector<Dtype> dtypes(12, Dtype::kF32);
  write_model(dtypes, 30);
  write_file(directory_ / "in/manifest.json", "{}");
  EXPECT_EQ(refusal({}), "exported");
  const ckpt::HfDirectory out(directory_ / "out");
  ASSERT_EQ(out.files().size(), 1U);
  EXPECT_EQ(out.files()[0].path().filename(), "model.safetensors");
  EXPECT_FALSE(out.has_file("model.safetensors.index.json"));
  EXPECT_FALSE(out.has_file("manifest.json"));
  const auto bytes = out.files()[0].bytes("t10").data();
  EXPECT_GT(bytes, out.files()[0].bytes("t9").data());  // whoever had which
  const ckpt::HfDirectory in(directory_ / "in");
  for (const std::string& name : in.tensor_names()) {
    const auto a = in.file_of(name).bytes(name);
    const auto b = out.file_of(name).bytes(name);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
  }
}

TEST_F(HfWeights, AnotherDtypeStandsInConfigJsonToo) {
  write_model({Dtype::kF32, Dtype::kF32}, 1000);
  EXPECT_EQ(refusal({.dtype = Dtype::kF16}), "exported");
  const ckpt::HfDirectory out(directory_ / "out");
  EXPECT_EQ(out.spec("t1").dtype, Dtype::kF16);
  EXPECT_EQ(nlohmann::json::parse(out.config_json())["torch_dtype"], "float16");
  EXPECT_EQ(out.read_text("merges.txt"), "a b\n");
  std::vector<float> values(6);
  out.read_f32("t1", values);
  EXPECT_EQ(values[0], ckpt::f16_to_f32(ckpt::f32_to_f16(10.1F)));
  EXPECT_EQ(
      nlohmann::json::parse(ckpt::with_dtype(R"({"model_type":"x","dtype":"?"})", Dtype::kBf16, ""))
          .dump(),
      R"({"dtype":"bfloat16","model_type":"x"})");
  EXPECT_THROW(ckpt::with_dtype("[]", Dtype::kF32, "config.json"), Error);
}

TEST_F(HfWeights, ACheckpointOfANarrowModelGoesBackAsNarrow) {
  write_model({Dtype::kF32, Dtype::kF32}, 1000);
  write_file(directory_ / "in/source_dtypes.json", R"({"*":"BF16","t1":"F32"})");
  write_file(directory_ / "in/trainer.json", "{}");
  EXPECT_EQ(refusal({}), "exported");
  const ckpt::HfDirectory out(directory_ / "out");
  EXPECT_EQ(out.spec("t0").dtype, Dtype::kBf16);
  EXPECT_EQ(out.spec("t1").dtype, Dtype::kF32);
  EXPECT_FALSE(out.has_file("trainer.json"));
  EXPECT_FALSE(out.has_file("source_dtypes.json"));
  write_file(directory_ / "in/source_dtypes.json", R"({"*":"I32"})");
  EXPECT_THAT(refusal({}), HasSubstr("\"I32\" is not a float dtype"));
  write_file(directory_ / "in/source_dtypes.json", R"({"t0":"F32"})");
  EXPECT_THAT(refusal({}), HasSubstr("source_dtypes.json"));
}

TEST_F(HfWeights, WhatF16CannotHoldIsRefusedAndLeavesNothing) {
  std::vector<float> values = {1, 70000};
  const std::vector<ckpt::NamedTensor> named = {{"w", Tensor(values.data(), {Dtype::kF32, {2}})}};
  ckpt::write_safetensors(directory_ / "in/model.safetensors", named);
  write_file(directory_ / "in/config.json", "{\"model_type\":\"x\"}");
  EXPECT_THAT(refusal({.dtype = Dtype::kF16}), HasSubstr("\"w\" holds 70000"));
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  EXPECT_EQ(contents(directory_ / "in").size(), 2U);
  fs::create_directory(directory_ / "out");
  EXPECT_THAT(refusal({}), HasSubstr("is there already"));
}

TEST(ParseBytes, UnitsOfTenAndOfTwo) {
  EXPECT_EQ(ckpt::parse_bytes("5GB", "--s"), 5'000'000'000U);
  EXPECT_EQ(ckpt::parse_bytes("3MiB", "--s"), 3U << 20);
  EXPECT_EQ(ckpt::parse_bytes("17", "--s"), 17U);
  for (const char* wrong :
       {"", "GB", "0", "5gb", "-1", "5 GB", "99999999999999999999", "1e3", "99999999999TB"}) {
    EXPECT_THROW(ckpt::parse_bytes(wrong, "--s"), Error) << wrong;
  }
}

}  // namespace
}  // namespace atl::model_dir
