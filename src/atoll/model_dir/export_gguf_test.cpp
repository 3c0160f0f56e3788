// Exports in K types: which tensor gets which, and what an importance matrix changes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/gguf_import.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Rows of 256 elements, but for those of 64 that attn_output multiplies.
constexpr const char* kWide = R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 256,
  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "intermediate_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": true})";

// A model whose elements are all different numbers, without a tokenizer.
class ExportGgufTest : public ::testing::Test, public nn::ParamVisitor {
 protected:
  ExportGgufTest() {
    fs::create_directories(directory_ / "in");
    write_file(directory_ / "in/config.json", kWide);
    const auto model = nn::build_model(nn::parse_config(kWide, "config.json"), {});
    model->visit(*this);
    ckpt::write_weights(directory_ / "in", ckpt::file_sources(params_));
  }
  void param(nn::Param& param) override {
    for (const ckpt::ParamTensor& seen : params_) {
      if (seen.param == &param) return;
    }
    auto& values = memory_.emplace_back(static_cast<std::size_t>(param.spec.shape.num_elements()));
    for (float& value : values) value = static_cast<float>(++count_ % 8192) / 8192 - 0.5F;
    params_.push_back({&param, Tensor(values.data(), param.spec)});
  }

  const ckpt::testing::TemporaryDirectory directory_{"export-gguf"};
  std::deque<std::vector<float>> memory_;
  std::vector<ckpt::ParamTensor> params_;
  int count_ = 0;
};

TEST_F(ExportGgufTest, AMixGivesTensorsTheirTypesAndComesBackNearly) {
  GgufExportOptions options;
  options.mix = ckpt::find_gguf_mix("Q4_K_M");
  const GgufExport result = export_gguf(directory_ / "in", directory_ / "m.gguf", options);
  EXPECT_EQ(result.other_matrices, 4);
  const ckpt::GgufFile file(directory_ / "m.gguf");
  EXPECT_EQ(file.integer("general.file_type"), 15);
  EXPECT_EQ(file.find("token_embd.weight")->type, ckpt::GgmlType::kQ6_K);
  EXPECT_EQ(file.find("blk.1.attn_v.weight")->type, ckpt::GgmlType::kQ4_K);
  EXPECT_EQ(file.find("blk.2.attn_v.weight")->type, ckpt::GgmlType::kQ6_K);
  EXPECT_EQ(file.find("blk.3.ffn_down.weight")->type, ckpt::GgmlType::kQ6_K);
  EXPECT_EQ(file.find("blk.3.ffn_up.weight")->type, ckpt::GgmlType::kQ4_K);
  EXPECT_EQ(file.find("blk.0.attn_output.weight")->type, ckpt::GgmlType::kQ8_0);
  EXPECT_EQ(file.find("blk.0.attn_norm.weight")->type, ckpt::GgmlType::kF32);
  import_gguf(directory_ / "m.gguf", directory_ / "back", Dtype::kF32);
  const ckpt::HfDirectory in(directory_ / "in");
  const ckpt::HfDirectory back(directory_ / "back");
  for (const std::string& name : in.tensor_names()) {
    const auto count = static_cast<std::size_t>(in.spec(name).shape.num_elements());
    std::vector<float> before(count);
    std::vector<float> after(count);
    in.read_f32(name, before);
    back.read_f32(name, after);
    // Numbers count up by 2^-13: 32 of a row in 16 steps, and as much again for rounded scales.
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(before[i], after[i], 32.0 / 8192 + std::abs(before[i]) / 32) << name << i;
    }
  }
}

TEST_F(ExportGgufTest, AnImportanceMatrixIsUsedForItsMatrices) {
  const auto exported = [&](const ckpt::Imatrix* imatrix) {
    GgufExportOptions options = {ckpt::find_gguf_mix("Q4_K_M"), imatrix};
    fs::remove(directory_ / "m.gguf");
    return export_gguf(directory_ / "in", directory_ / "m.gguf", options);
  };
  const auto bytes_of = [&](const char* name) {
    const ckpt::GgufFile file(directory_ / "m.gguf");
    const ckpt::GgufTensor& tensor = *file.find(name);
    return read_file(file.path()).substr(tensor.begin, tensor.end - tensor.begin);
  };
  EXPECT_EQ(exported(nullptr).no_importance, 0);
  const std::string up = bytes_of("blk.1.ffn_up.weight");
  const std::string gate = bytes_of("blk.1.ffn_gate.weight");
  ckpt::Imatrix imatrix;
  imatrix.name = "x.imatrix";
  imatrix.datasets = {"wiki.txt"};
  std::vector<float>& columns = imatrix.columns["blk.1.ffn_up.weight"];
  for (int i = 0; i < 256; ++i) columns.push_back(static_cast<float>(i % 3 * 100));
  // 4 layers of q, k, v, gate, up and down have K types; one is known.
  EXPECT_EQ(exported(&imatrix).no_importance, 4 * 6 - 1);
  EXPECT_NE(bytes_of("blk.1.ffn_up.weight"), up);
  EXPECT_EQ(bytes_of("blk.1.ffn_gate.weight"), gate);
  const ckpt::GgufFile file(directory_ / "m.gguf");
  EXPECT_EQ(file.text("quantize.imatrix.file"), "x.imatrix");
  EXPECT_EQ(file.text("quantize.imatrix.dataset"), "wiki.txt");
  EXPECT_EQ(file.integer("quantize.imatrix.entries_count"), 1);
  columns.pop_back();
  try {
    exported(&imatrix);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("x.imatrix"), HasSubstr("255"), HasSubstr("256")));
  }
  EXPECT_FALSE(fs::exists(directory_ / "m.gguf"));
}

}  // namespace
}  // namespace atl::model_dir
