// A model's parameters in files: Hugging Face's names and shapes out, and whatever they write in.

#include "atoll/ckpt/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/ckpt/testing.h"
#include "atoll/nn/models/family.h"

namespace atl::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

nn::ModelConfig llama() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.num_layers = 1;
  config.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 4};
  config.intermediate_size = 20;  // more than the band that transposing works in
  config.max_positions = 6;
  return config;
}

nn::ModelConfig gpt2() {
  nn::ModelConfig config = llama();
  config.family = "gpt2";
  config.heads = {.num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
  config.activation = "gelu_new";
  config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  return config;
}

// A model whose parameters have memory: element i of the p-th is p + i / 256, exact in f32, so that
// none that lands elsewhere goes unseen.
class Held final : public nn::ParamVisitor {
 public:
  explicit Held(const nn::ModelConfig& config, bool filled = true)
      : model_(nn::build_model(config, {})) {
    model_->visit(*this);
    if (!filled) return;
    for (std::size_t p = 0; p < params.size(); ++p) {
      for (std::size_t i = 0; i < memory_[p].size(); ++i) {
        memory_[p][i] = static_cast<float>(p) + static_cast<float>(i) / 256;
      }
    }
  }
  void param(nn::Param& param) override {
    for (const ParamTensor& seen : params) {
      if (seen.param == &param) return;
    }
    memory_.emplace_back(static_cast<std::size_t>(param.spec.shape.num_elements()), -1.0F);
    params.push_back({&param, Tensor(memory_.back().data(), param.spec)});
  }

  const std::deque<std::vector<float>>& memory() const { return memory_; }
  std::vector<ParamTensor> params;

 private:
  std::unique_ptr<nn::Model> model_;
  std::deque<std::vector<float>> memory_;
};

// A Hugging Face directory that a test changes tensor by tensor.
class ModelFiles : public ::testing::Test {
 protected:
  struct FileTensor {
    std::vector<float> values;
    Shape shape;
  };

  void SetUp() override { write_file(directory_ / "config.json", "{}"); }

  // What a new file of this model says.
  std::map<std::string, FileTensor> written(const nn::ModelConfig& config) {
    const Held held(config);
    write_safetensors(directory_ / "model.safetensors", file_sources(held.params));
    const SafetensorsFile file(directory_ / "model.safetensors");
    std::map<std::string, FileTensor> tensors;
    for (const SafetensorsEntry& entry : file.entries()) {
      const Spec spec = file.spec(entry.name);
      FileTensor& tensor = tensors[entry.name];
      tensor.shape = spec.shape;
      tensor.values.resize(static_cast<std::size_t>(spec.shape.num_elements()));
      file.read_f32(entry.name, Tensor(tensor.values.data(), spec));
    }
    return tensors;
  }

  void write(const std::map<std::string, FileTensor>& tensors, Dtype dtype = Dtype::kF32) {
    std::deque<std::vector<std::byte>> memory;
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors) {
      const Spec spec = {dtype, tensor.shape};
      memory.emplace_back(spec.bytes());
      convert_from_f32(tensor.values, dtype, memory.back());
      named.push_back({name, Tensor(memory.back().data(), spec)});
    }
    write_safetensors(directory_ / "model.safetensors", named);
  }

  std::deque<std::vector<float>> read(const nn::ModelConfig& config) {
    const Held held(config, /*filled=*/false);
    read_params(HfDirectory(directory_.path()), held.params);
    return held.memory();
  }
  std::string refusal(const nn::ModelConfig& config) {
    try {
      read(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(directory_.path().string()));
      return error.what();
    }
    return "read";
  }

  testing::TemporaryDirectory directory_{"model-files"};
};

// The names and shapes that transformers' LlamaForCausalLM and GPT2LMHeadModel write.
const std::map<std::string, Shape> kLlama = {
    {"lm_head.weight", {11, 8}},
    {"model.embed_tokens.weight", {11, 8}},
    {"model.layers.0.input_layernorm.weight", {8}},
    {"model.layers.0.mlp.down_proj.weight", {8, 20}},
    {"model.layers.0.mlp.gate_proj.weight", {20, 8}},
    {"model.layers.0.mlp.up_proj.weight", {20, 8}},
    {"model.layers.0.post_attention_layernorm.weight", {8}},
    {"model.layers.0.self_attn.k_proj.weight", {8, 8}},
    {"model.layers.0.self_attn.o_proj.weight", {8, 16}},
    {"model.layers.0.self_attn.q_proj.weight", {16, 8}},
    {"model.layers.0.self_attn.v_proj.weight", {8, 8}},
    {"model.norm.weight", {8}},
};
const std::map<std::string, Shape> kGpt2 = {
    {"transformer.h.0.attn.c_attn.bias", {24}},
    {"transformer.h.0.attn.c_attn.weight", {8, 24}},
    {"transformer.h.0.attn.c_proj.bias", {8}},
    {"transformer.h.0.attn.c_proj.weight", {8, 8}},
    {"transformer.h.0.ln_1.bias", {8}},
    {"transformer.h.0.ln_1.weight", {8}},
    {"transformer.h.0.ln_2.bias", {8}},
    {"transformer.h.0.ln_2.weight", {8}},
    {"transformer.h.0.mlp.c_fc.bias", {20}},
    {"transformer.h.0.mlp.c_fc.weight", {8, 20}},
    {"transformer.h.0.mlp.c_proj.bias", {8}},
    {"transformer.h.0.mlp.c_proj.weight", {20, 8}},
    {"transformer.ln_f.bias", {8}},
    {"transformer.ln_f.weight", {8}},
    {"transformer.wpe.weight", {6, 8}},
    {"transformer.wte.weight", {11, 8}},
};

TEST_F(ModelFiles, NamesAndShapesAreHuggingFaces) {
  for (const auto& [config, expected] : {std::pair(llama(), kLlama), std::pair(gpt2(), kGpt2)}) {
    std::map<std::string, Shape> shapes;
    for (const auto& [name, tensor] : written(config)) shapes[name] = tensor.shape;
    EXPECT_EQ(shapes, expected) << config.family;
  }
  nn::ModelConfig biased = llama();
  biased.attention_bias = biased.mlp_bias = biased.tie_embeddings = true;
  const auto tensors = written(biased);
  EXPECT_EQ(tensors.count("lm_head.weight"), 0U);
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_proj.bias").shape, Shape({16}));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.v_proj.bias").shape, Shape({8}));
  EXPECT_EQ(tensors.at("model.layers.0.mlp.down_proj.bias").shape, Shape({8}));
}

TEST_F(ModelFiles, FusedRowsAndConv1dWeightsLieWhereOthersLookForThem) {
  // Parameter 2 is the fused (16 + 8 + 8, 8) weight: embedding, norm, then it.
  const auto of_llama = written(llama());
  EXPECT_EQ(of_llama.at("model.layers.0.self_attn.q_proj.weight").values[3], 2 + 3.0F / 256);
  EXPECT_EQ(of_llama.at("model.layers.0.self_attn.k_proj.weight").values[3],
            2 + (16 * 8 + 3) / 256.0F);
  EXPECT_EQ(of_llama.at("model.layers.0.self_attn.v_proj.weight").values[3],
            2 + (24 * 8 + 3) / 256.0F);
  // GPT-2's c_attn is (in, out) in the file: tables, norm's two, then it.
  const auto of_gpt2 = written(gpt2());
  const auto& c_attn = of_gpt2.at("transformer.h.0.attn.c_attn.weight").values;
  for (std::size_t in = 0; in < 8; ++in) {
    for (std::size_t out = 0; out < 24; ++out) {
      ASSERT_EQ(c_attn[in * 24 + out], 4 + static_cast<float>(out * 8 + in) / 256);
    }
  }
}

TEST_F(ModelFiles, ReadBackBitForBit) {
  nn::ModelConfig biased = llama();
  biased.attention_bias = biased.mlp_bias = true;
  for (const nn::ModelConfig& config : {llama(), biased, gpt2()}) {
    written(config);
    EXPECT_EQ(read(config), Held(config).memory()) << config.family;
  }
}

TEST_F(ModelFiles, PrefixedFilesReadBackToo) {
  const Held held(gpt2());
  const auto path = directory_ / "optimizer.safetensors";
  write_safetensors(path, file_sources(held.params, "exp_avg."));
  const SafetensorsFile file(path);
  EXPECT_TRUE(file.contains("exp_avg.transformer.wte.weight"));
  const Held back(gpt2(), /*filled=*/false);
  read_params(file, back.params, "exp_avg.");
  EXPECT_EQ(back.memory(), held.memory());
  EXPECT_THROW(read_params(file, back.params, "exp_avg_sq."), Error);
}

TEST_F(ModelFiles, ABaseModelsNamesAreUnderstood) {
  for (const nn::ModelConfig& config : {llama(), gpt2()}) {
    std::map<std::string, FileTensor> base;
    for (auto& [name, tensor] : written(config)) {
      const bool is_head = name == "lm_head.weight";
      base[is_head ? name : name.substr(name.find('.') + 1)] = tensor;
    }
    write(base);
    EXPECT_EQ(read(config), Held(config).memory()) << config.family;
  }
}

TEST_F(ModelFiles, BuffersAndARepeatedTiedHeadPass) {
  auto tensors = written(gpt2());
  tensors["transformer.h.0.attn.bias"] = {std::vector<float>(36), {1, 1, 6, 6}};
  tensors["transformer.h.0.attn.masked_bias"] = {{-1e4F}, {}};
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
  write(tensors);
  EXPECT_EQ(read(gpt2()), Held(gpt2()).memory());

  std::map<std::string, FileTensor> base;
  for (const auto& [name, tensor] : tensors) {
    base[name == "lm_head.weight" ? name : name.substr(name.find('.') + 1)] = tensor;
  }
  write(base);  // h.0.attn.bias, wte.weight and the head
  EXPECT_EQ(read(gpt2()), Held(gpt2()).memory());

  nn::ModelConfig neox = gpt2();
  neox.family = "gpt_neox";
  auto of_neox = written(neox);
  of_neox["gpt_neox.layers.0.attention.bias"] = {std::vector<float>(36), {1, 1, 6, 6}};
  of_neox["gpt_neox.layers.0.attention.masked_bias"] = {{-1e4F}, {}};
  of_neox["embed_out.weight"] = of_neox.at("gpt_neox.embed_in.weight");
  write(of_neox);
  EXPECT_EQ(read(neox), Held(neox).memory());

  auto of_llama = written(llama());
  of_llama["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{1, 2}, {2}};
  write(of_llama);
  EXPECT_EQ(read(llama()), Held(llama()).memory());
}

TEST_F(ModelFiles, NarrowFloatsAreRead) {
  const auto tensors = written(gpt2());
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    write(tensors, dtype);
    std::deque<std::vector<float>> expected = Held(gpt2()).memory();
    for (auto& values : expected) {
      for (float& value : values) {
        value =
            dtype == Dtype::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : f16_to_f32(f32_to_f16(value));
      }
    }
    EXPECT_EQ(read(gpt2()), expected) << dtype_name(dtype);
  }
}

TEST_F(ModelFiles, NarrowFilesGoBackBitForBitThroughF32AndTheirOwnDtype) {
  const auto tensors = written(gpt2());
  const auto path = directory_ / "model.safetensors";
  for (const Dtype file_dtype : {Dtype::kBf16, Dtype::kF16}) {
    write(tensors, file_dtype);
    const std::string before = read_file(path);
    for (const Dtype param_dtype : {Dtype::kF32, file_dtype}) {
      Held held(gpt2(), /*filled=*/false);
      std::deque<std::vector<std::byte>> memory;
      for (ParamTensor& param : held.params) {
        const Spec spec = {param_dtype, param.tensor.shape()};
        param.tensor = Tensor(memory.emplace_back(spec.bytes()).data(), spec);
      }
      const FileDtypes dtypes = read_params(HfDirectory(directory_.path()), held.params);
      std::vector<TensorSource> sources = file_sources(held.params, "", dtypes);
      std::sort(sources.begin(), sources.end(),
                [](const auto& a, const auto& b) { return a.name < b.name; });
      write_safetensors(path, sources);
      EXPECT_EQ(read_file(path), before) << dtype_name(file_dtype) << dtype_name(param_dtype);
    }
  }
}

TEST_F(ModelFiles, WhatDoesNotBelongTogetherIsRefusedByName) {
  const auto whole = written(gpt2());
  auto tensors = whole;
  tensors["transformer.h.1.ln_1.weight"] = {{1, 2}, {2}};
  write(tensors);
  EXPECT_THAT(refusal(gpt2()),
              AllOf(HasSubstr("transformer.h.1.ln_1.weight"), HasSubstr("do not belong together")));
  tensors = whole;
  tensors.erase("transformer.h.0.mlp.c_fc.bias");
  write(tensors);
  EXPECT_THAT(refusal(gpt2()), HasSubstr("h.0.mlp.c_fc.bias"));
  tensors = whole;
  tensors["transformer.wpe.weight"].shape = {8, 6};  // as many elements, otherwise laid out
  write(tensors);
  EXPECT_THAT(refusal(gpt2()),
              AllOf(HasSubstr("transformer.wpe.weight"), HasSubstr("(8, 6)"), HasSubstr("(6, 8)")));
  tensors = whole;
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
  tensors["lm_head.weight"].values[5] += 1;
  write(tensors);
  EXPECT_THAT(refusal(gpt2()), AllOf(HasSubstr("lm_head.weight differs"),
                                     HasSubstr("\"tie_word_embeddings\": false")));
  // The mirror image: an untied model whose head is not there.
  auto headless = written(llama());
  headless.erase("lm_head.weight");
  write(headless);
  EXPECT_THAT(refusal(llama()), HasSubstr("lm_head.weight"));
}

}  // namespace
}  // namespace atl::ckpt
