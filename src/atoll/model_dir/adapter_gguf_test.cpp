// Adapters as GGUF files: against gguf-py's (tools/golden/adapter_gguf.py), and back.

#include "atoll/model_dir/adapter_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/adapter_merge.h"
#include "atoll/model_dir/model_source.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path golden(const std::string& name) {
  return test_source_dir() / "tests" / "golden" / name;
}

struct Case {
  const char* adapter;
  const char* base;
  const char* type;
};

// For the tests' names, which would else hold the bytes of pointers.
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.adapter;
}

ModelPath path_of(const fs::path& adapter, const char* base) {
  return {adapter, golden(std::string("families/") + base)};
}

std::vector<TensorFactors> factors_of(const ModelPath& adapter) {
  const auto model = nn::build_model(read_model_config(adapter), {.max_positions = 1});
  return AdapterMerge(adapter.directory(), *model).factors();
}

// A tensor of a file, for a comparison.
std::string content_of(const ckpt::GgufFile& file, const std::string& name) {
  const ckpt::GgufTensor* tensor = file.find(name);
  if (tensor == nullptr) return "absent";
  return fmt::format("{} ({}) ", ckpt::ggml_layout(tensor->type).name,
                     fmt::join(tensor->shape, ", ")) +
         read_file(file.path()).substr(tensor->begin, tensor->end - tensor->begin);
}

void expect_same_tensors(const fs::path& actual, const fs::path& expected) {
  const ckpt::GgufFile ours(actual);
  const ckpt::GgufFile theirs(expected);
  EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const ckpt::GgufTensor& tensor : theirs.tensors()) {
    EXPECT_TRUE(content_of(ours, tensor.name) == content_of(theirs, tensor.name)) << tensor.name;
  }
}

class AdapterGgufTest : public ::testing::TestWithParam<Case> {
 protected:
  fs::path fixture() const {
    return golden(std::string("adapter_gguf/") + fs::path(GetParam().adapter).filename().string() +
                  ".gguf");
  }
  ckpt::GgufMix mix() const { return ckpt::find_gguf_mix(GetParam().type); }
  fs::path base() const { return golden(std::string("families/") + GetParam().base); }

  const ckpt::testing::TemporaryDirectory directory_{"adapter-gguf"};
};

TEST_P(AdapterGgufTest, IsTheFileThatTheLibraryWrites) {
  export_adapter_gguf(path_of(golden(GetParam().adapter), GetParam().base), directory_ / "a.gguf",
                      mix());
  expect_same_tensors(directory_ / "a.gguf", fixture());
  const ckpt::GgufFile ours(directory_ / "a.gguf");
  const ckpt::GgufFile theirs(fixture());
  EXPECT_EQ(ours.metadata().size(), theirs.metadata().size());
  for (const char* key : {"general.architecture", "general.type", "adapter.type"}) {
    EXPECT_EQ(ours.text(key), theirs.text(key));
  }
  EXPECT_EQ(ours.number("adapter.lora.alpha"), theirs.number("adapter.lora.alpha"));
  EXPECT_EQ(ours.integer("general.quantization_version"), 2);
}

TEST_P(AdapterGgufTest, ComesBackAndGoesThereAgain) {
  import_adapter_gguf(fixture(), base(), directory_ / "back", Dtype::kF32);
  EXPECT_EQ(base_directory(directory_ / "back"), fs::absolute(base()));
  export_adapter_gguf(directory_ / "back", directory_ / "again.gguf", mix());
  expect_same_tensors(directory_ / "again.gguf", fixture());
}

INSTANTIATE_TEST_SUITE_P(All, AdapterGgufTest,
                         ::testing::Values(Case{"lora/query_value", "llama3", "F32"},
                                           Case{"lora/all_linear", "qwen2", "Q8_0"},
                                           Case{"lora/conv1d", "gpt2", "F32"},
                                           Case{"adapters/embeddings", "mixtral", "F16"},
                                           Case{"adapters/expert_modules", "mixtral", "BF16"}),
                         [](const auto& info) {
                           return fs::path(info.param.adapter).filename().string();
                         });

class AdapterGguf : public ::testing::Test {
 protected:
  std::string error_of(const std::string& adapter, const char* base, const char* type = "F32") {
    try {
      export_adapter_gguf(path_of(golden("adapters/" + adapter), base), directory_ / "e.gguf",
                          ckpt::find_gguf_mix(type));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string error_of_import(const fs::path& file, const char* base) {
    try {
      import_adapter_gguf(file, golden(std::string("families/") + base), directory_ / "e",
                          Dtype::kF32);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const ckpt::testing::TemporaryDirectory directory_{"adapter-gguf"};
};

// Ranks and alphas by pattern, rank-stabilised: a file has one alpha, and B takes up the rest, with
// one rounding. Experts that are stacked or one by one are the same in GGUF.
TEST_F(AdapterGguf, ScalesOfModulesAndStackedExpertsComeBack) {
  for (const auto& [adapter, base] : {std::pair{"patterns", "llama3"},
                                      {"experts", "qwen3_moe"},
                                      {"one_expert_parameter", "mixtral"}}) {
    SCOPED_TRACE(adapter);
    const ModelPath from = path_of(golden(std::string("adapters/") + adapter), base);
    const fs::path file = directory_ / (std::string(adapter) + ".gguf");
    const fs::path back = directory_ / adapter;
    export_adapter_gguf(from, file, std::nullopt);
    import_adapter_gguf(file, from.base(), back, Dtype::kF32);
    std::map<std::string, TensorFactors> ours;
    for (TensorFactors& one : factors_of(back)) ours[one.tensor] = std::move(one);
    const std::vector<TensorFactors> expected = factors_of(from);
    EXPECT_EQ(ours.size(), expected.size());
    for (const TensorFactors& one : expected) {
      const TensorFactors& other = ours[one.tensor];
      ASSERT_EQ(other.rank, one.rank) << one.tensor;
      EXPECT_EQ(other.right, one.right) << one.tensor;
      ASSERT_EQ(other.left.size(), one.left.size()) << one.tensor;
      for (std::size_t i = 0; i < one.left.size(); ++i) {
        const double want = one.scale * one.left[i];
        // Of alpha, which the file has in f32, and of B.
        ASSERT_NEAR(other.scale * other.left[i], want, std::abs(want) * 0x1p-22) << one.tensor;
      }
    }
  }
}

TEST_F(AdapterGguf, WhatAFileCannotHoldIsRefusedByName) {
  EXPECT_THAT(error_of("dora", "llama3"), AllOf(HasSubstr("use_dora"), HasSubstr("--merge")));
  EXPECT_THAT(error_of("bias_all", "gpt2"), HasSubstr(".bias"));
  EXPECT_THAT(error_of("lora_bias", "gpt2"), HasSubstr("lora_B.bias"));
  EXPECT_THAT(error_of("saved_modules", "llama2"), HasSubstr("norm"));
  EXPECT_THAT(error_of("tokens", "llama3"), HasSubstr("trainable_tokens"));
  EXPECT_THAT(error_of("resized", "llama3"), HasSubstr("embed_tokens"));
  EXPECT_THAT(error_of("untied_by_lora", "llama3"), AllOf(HasSubstr("model.embed_tokens.weight"),
                                                          HasSubstr("ties"), HasSubstr("--merge")));
  EXPECT_THAT(error_of("expert_modules", "mixtral", "Q4_K_M"),
              AllOf(HasSubstr("Q4_K_M"), HasSubstr("q8_0")));
  write_file(directory_ / "e.gguf", "");
  EXPECT_THAT(error_of("expert_modules", "mixtral"), HasSubstr("there already"));
}

TEST_F(AdapterGguf, AFileOfAnotherModelIsRefused) {
  const fs::path file = golden("adapter_gguf/query_value.gguf");
  EXPECT_TRUE(is_gguf_adapter(file));
  EXPECT_EQ(error_of_import(file, "llama3"), "");
  EXPECT_THAT(error_of_import(file, "qwen2"), AllOf(HasSubstr("llama"), HasSubstr("qwen2")));
  EXPECT_THAT(error_of_import(golden("adapter_gguf/expert_modules.gguf"), "llama3"),
              HasSubstr("_exps"));
}

TEST_F(AdapterGguf, AFileThatIsNoWholeAdapterIsRefused) {
  const auto refused = [&](const char* name, std::vector<std::int64_t> shape,
                           ckpt::GgufFields more = {}) {
    ckpt::GgufFields fields = {{"general.architecture", std::string("llama")},
                               {"general.type", std::string("adapter")},
                               {"adapter.type", std::string("lora")}};
    fields.insert(fields.end(), more.begin(), more.end());
    ckpt::FloatRows rows;
    rows.name = name;
    rows.shape = std::move(shape);
    rows.open = []() -> ckpt::RowReader {
      return [](std::int64_t, std::span<float> out) { std::fill(out.begin(), out.end(), 1.0F); };
    };
    const ckpt::GgufSource source = {rows, ckpt::GgmlType::kF32};
    ckpt::write_gguf(directory_ / "w.gguf", fields, std::span(&source, 1));
    return error_of_import(directory_ / "w.gguf", "llama3");
  };
  EXPECT_THAT(refused("blk.0.attn_q.weight.lora_a", {4, 32}), HasSubstr("attn_q.weight.lora_b"));
  EXPECT_THAT(refused("blk.0.attn_q.weight.lora_b", {32, 4}), HasSubstr("attn_q.weight.lora_a"));
  EXPECT_THAT(refused("blk.0.attn_q.weight", {32, 32}), HasSubstr("no part of an adapter"));
  EXPECT_THAT(refused("blk.0.attn_norm.weight", {32}), HasSubstr("no tensor that adapts"));
  EXPECT_THAT(refused("x", {1}, {{"adapter.alora.invocation_tokens", std::vector{1, 2}}}),
              HasSubstr("invocation_tokens"));
}

}  // namespace
}  // namespace atl::model_dir
