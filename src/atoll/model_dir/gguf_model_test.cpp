// Whole models through GGUF: what is exported comes back when it is imported.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/pre_tokenizers.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/gguf_import.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kLlama = R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "intermediate_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-05,
  "rope_theta": 500.0,
  "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": true, "mlp_bias": false})";
constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 12, "n_embd": 32, "n_layer": 2,
  "n_head": 4, "n_inner": 96, "n_positions": 16, "activation_function": "gelu_new",
  "layer_norm_epsilon": 1e-05, "tie_word_embeddings": true})";
// Bytes of "abc" and two words of them; unused rows above.
constexpr const char* kTokenizer = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 5, "content": "<end>", "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false, "special": true},
    {"id": 6, "content": "<mine>", "single_word": false, "lstrip": false, "rstrip": false,
    "normalized": false, "special": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
    "use_regex": true},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
    "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
    "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": [["a", "b"], ["ab", "c"]]}})";
constexpr const char* kTokenizerConfig =
    R"({"eos_token": {"content": "<end>"}, "chat_template": "{{ messages[0].content }}"})";

class GgufModelTest : public ::testing::Test, public nn::ParamVisitor {
 protected:
  // A directory whose tensors are all different numbers.
  void write_model(const char* config_json, Dtype dtype = Dtype::kF32) {
    fs::create_directories(directory_ / "in");
    write_file(directory_ / "in/config.json", config_json);
    write_file(directory_ / "in/tokenizer.json", kTokenizer);
    write_file(directory_ / "in/tokenizer_config.json", kTokenizerConfig);
    params_.clear();
    const auto model = nn::build_model(nn::parse_config(config_json, "config.json"), {});
    model->visit(*this);
    const std::vector<ckpt::TensorSource> sources = ckpt::file_sources(params_);
    ckpt::FileDtypes dtypes;
    for (const ckpt::TensorSource& source : sources) dtypes[source.name] = dtype;
    ckpt::write_weights(directory_ / "in", ckpt::file_sources(params_, "", dtypes));
  }
  void param(nn::Param& param) override {
    for (const ckpt::ParamTensor& seen : params_) {
      if (seen.param == &param) return;
    }
    auto& values = memory_.emplace_back(static_cast<std::size_t>(param.spec.shape.num_elements()));
    for (float& value : values) value = static_cast<float>(++count_) / 8192 - 0.5F;
    params_.push_back({&param, Tensor(values.data(), param.spec)});
  }
  std::string refusal(std::optional<ckpt::GgmlType> type = {}) {
    try {
      GgufExportOptions options;
      if (type) options.mix = ckpt::gguf_mix_of(*type);
      export_gguf(directory_ / "in", directory_ / "m.gguf", options);
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal);
      return error.what();
    }
    return "exported";
  }
  void edit(const char* file, const std::function<void(json&)>& change) {
    json content = json::parse(read_file(directory_ / "in" / file));
    change(content);
    write_file(directory_ / "in" / file, content.dump());
  }

  struct Directory {
    ckpt::testing::TemporaryDirectory root{"gguf-model"};
    fs::path operator/(const std::string& name) const { return root / name; }
  } directory_;
  std::deque<std::vector<float>> memory_;
  std::vector<ckpt::ParamTensor> params_;
  int count_ = 0;
};

// What no other family has comes back, too.
const char* const kOthers[] = {
    R"({"model_type": "smollm3", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 64, "no_rope_layers": [1, 1, 1, 0], "rope_theta": 5000.0,
        "tie_word_embeddings": true})",
    R"({"model_type": "phi3", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 64, "partial_rotary_factor": 0.5, "sliding_window": null,
        "rope_theta": 5000.0, "tie_word_embeddings": false})",
    R"({"model_type": "granite", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 64, "embedding_multiplier": 12.0, "residual_multiplier": 0.25,
        "attention_multiplier": 0.125, "logits_scaling": 8.0, "tie_word_embeddings": true})",
    R"({"model_type": "glm4", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "attention_bias": true,
        "intermediate_size": 32, "max_position_embeddings": 64, "partial_rotary_factor": 0.5,
        "tie_word_embeddings": false})",
    R"({"model_type": "gemma3_text", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 7,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "query_pre_attn_scalar": 16, "intermediate_size": 32, "max_position_embeddings": 64,
        "sliding_window": 24, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention", "full_attention",
                        "sliding_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "tie_word_embeddings": true})",
    R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 256, "tie_word_embeddings": true,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "attention_factor": 1.138629436111989, "truncate": true,
                         "original_max_position_embeddings": 64}})",
    R"({"model_type": "gemma2", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "query_pre_attn_scalar": 16, "intermediate_size": 32, "max_position_embeddings": 64,
        "sliding_window": 24, "attn_logit_softcapping": 40.0, "final_logit_softcapping": 20.0,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "tie_word_embeddings": true})",
    R"({"model_type": "olmo2", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 64, "rope_theta": 5000.0, "tie_word_embeddings": false})",
    R"({"model_type": "starcoder2", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
        "max_position_embeddings": 64, "norm_epsilon": 1e-05, "use_bias": true,
        "tie_word_embeddings": true})",
    R"({"model_type": "mixtral", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 32, "max_position_embeddings": 64, "num_local_experts": 12,
        "num_experts_per_tok": 2, "tie_word_embeddings": false})",
    R"({"model_type": "qwen3_moe", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 64, "moe_intermediate_size": 32, "max_position_embeddings": 64,
        "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true,
        "tie_word_embeddings": true})",
    R"({"model_type": "gpt_neox", "vocab_size": 12, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
        "hidden_act": "gelu", "layer_norm_eps": 1e-05, "rotary_emb_base": 5000.0,
        "rotary_pct": 0.25, "use_parallel_residual": true, "attention_bias": true,
        "tie_word_embeddings": false})",
    R"({"model_type": "gpt_neox", "vocab_size": 12, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 96, "max_position_embeddings": 64,
        "hidden_act": "gelu_fast", "rotary_pct": 1.0, "use_parallel_residual": false,
        "tie_word_embeddings": false})",
    R"({"model_type": "deepseek_v2", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 32,
        "max_position_embeddings": 64, "q_lora_rank": null, "kv_lora_rank": 24,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 4,
        "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.5, "norm_topk_prob": false, "tie_word_embeddings": false,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "attention_factor": 1.0, "truncate": true, "mscale_all_dim": 0.707,
                         "original_max_position_embeddings": 16}})",
    R"({"model_type": "deepseek_v3", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 32,
        "max_position_embeddings": 64, "q_lora_rank": 20, "kv_lora_rank": 24,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 16, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0, "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2,
        "routed_scaling_factor": 2.5, "norm_topk_prob": true, "rope_interleave": true,
        "tie_word_embeddings": false})",
    R"({"model_type": "gpt_oss", "vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "attention_bias": true,
        "intermediate_size": 32, "max_position_embeddings": 256, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 24, "tie_word_embeddings": false,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "attention_factor": 1.138629436111989, "truncate": false,
                         "original_max_position_embeddings": 64}})"};

TEST_F(GgufModelTest, WhatIsExportedComesBack) {
  std::vector<const char*> configs = {kLlama, kGpt2};
  configs.insert(configs.end(), std::begin(kOthers), std::end(kOthers));
  for (const char* config : configs) {
    write_model(config, Dtype::kF16);
    export_gguf(directory_ / "in", directory_ / "m.gguf");
    import_gguf(directory_ / "m.gguf", directory_ / "back", Dtype::kF32);
    const ckpt::HfDirectory in(directory_ / "in");
    const ckpt::HfDirectory back(directory_ / "back");
    EXPECT_EQ(in.tensor_names(), back.tensor_names());
    for (const std::string& name : in.tensor_names()) {
      ASSERT_EQ(in.spec(name).shape, back.spec(name).shape) << name;
      const auto count = static_cast<std::size_t>(in.spec(name).shape.num_elements());
      std::vector<float> before(count);
      std::vector<float> after(count);
      in.read_f32(name, before);
      back.read_f32(name, after);
      EXPECT_EQ(before, after) << name;
    }
    const json stated = json::parse(config);
    const json got = json::parse(back.config_json());
    for (const auto& [field, value] : stated.items()) EXPECT_EQ(got[field], value) << field;
    EXPECT_EQ(json::parse(back.read_text("tokenizer.json")), json::parse(kTokenizer));
    const json tokenizer = json::parse(back.read_text("tokenizer_config.json"));
    EXPECT_EQ(tokenizer["eos_token"], "<end>");
    EXPECT_EQ(tokenizer["chat_template"], "{{ messages[0].content }}");
    EXPECT_EQ(json::parse(back.read_text("generation_config.json"))["eos_token_id"], 5);
    for (const char* name : {"in", "back", "m.gguf"}) fs::remove_all(directory_ / name);
  }
}

TEST_F(GgufModelTest, TypesAreThoseOfTheMatrices) {
  write_model(kLlama, Dtype::kBf16);
  EXPECT_EQ(refusal(), "exported");
  const ckpt::GgufFile source(directory_ / "m.gguf");
  EXPECT_EQ(source.find("blk.1.ffn_up.weight")->type, ckpt::GgmlType::kBf16);
  EXPECT_EQ(source.integer("general.file_type"), 32);
  EXPECT_THAT(refusal(), HasSubstr("is there already"));
  fs::remove(directory_ / "m.gguf");
  EXPECT_EQ(refusal(ckpt::GgmlType::kQ8_0), "exported");
  const ckpt::GgufFile file(directory_ / "m.gguf");
  EXPECT_EQ(file.find("blk.1.ffn_up.weight")->type, ckpt::GgmlType::kQ8_0);
  EXPECT_EQ(file.find("blk.1.attn_norm.weight")->type, ckpt::GgmlType::kF32);
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens")[11], "[PAD11]");
  EXPECT_EQ(file.integers("tokenizer.ggml.token_type"),
            (std::vector<std::int64_t>{1, 1, 1, 1, 1, 3, 4, 5, 5, 5, 5, 5}));
}

TEST_F(GgufModelTest, WhatLlamaCppComputesOtherwiseIsRefusedByField) {
  write_model(kGpt2);
  edit("config.json", [](json& c) { c["activation_function"] = "gelu"; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("config.json"), HasSubstr("\"activation_function\"")));
  edit("config.json", [](json& c) { c["activation_function"] = "gelu_new"; });
  edit("tokenizer.json", [](json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"pre_tokenizer\""), HasSubstr("gpt-2")));
  edit("tokenizer.json", [](json& t) { t["pre_tokenizer"]["add_prefix_space"] = false; });
  edit("tokenizer.json", [](json& t) { t["normalizer"] = {{"type", "NFKC"}}; });
  EXPECT_THAT(refusal(), HasSubstr("\"normalizer\""));
  edit("tokenizer.json", [](json& t) { t["normalizer"] = nullptr; });
  edit("tokenizer.json", [](json& t) { t["model"]["vocab"]["z"] = 12; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"z\""), HasSubstr("12 rows")));
  fs::remove(directory_ / "in/tokenizer.json");
  EXPECT_EQ(refusal(), "exported");
  EXPECT_EQ(ckpt::GgufFile(directory_ / "m.gguf").text("tokenizer.ggml.model"), "none");
}

TEST_F(GgufModelTest, TokensThatLlamaCppWouldFindOtherwiseAreRefusedByName) {
  write_model(kGpt2);
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    edit("tokenizer.json", [&](json& t) { t["added_tokens"][0][flag] = true; });
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr("\"added_tokens\" has \"<end>\" with"), HasSubstr(flag)));
    edit("tokenizer.json", [&](json& t) { t["added_tokens"][0][flag] = false; });
  }
  edit("tokenizer.json", [](json& t) {
    t["added_tokens"][0]["normalized"] = true;
    t["normalizer"] = {{"type", "NFC"}};
  });
  EXPECT_THAT(refusal(), HasSubstr("\"normalized\", beside a normalizer"));
  edit("tokenizer.json", [](json& t) { t["normalizer"] = nullptr; });
  EXPECT_EQ(refusal(), "exported");  // without a normalizer the flag says nothing
}

TEST_F(GgufModelTest, SpacesThatLlamaCppWouldPutElsewhereAreRefusedByName) {
  write_model(kLlama);
  edit("tokenizer.json", [](json& t) {
    t["model"]["byte_fallback"] = true;
    t["pre_tokenizer"] = {{"type", "Metaspace"},
                          {"replacement", "\u2581"},
                          {"prepend_scheme", "first"},
                          {"split", false}};
  });
  EXPECT_THAT(refusal(),
              HasSubstr("\"pre_tokenizer\" is a Metaspace whose prepend_scheme is \"first\""));
  edit("tokenizer.json", [](json& t) { t["pre_tokenizer"]["prepend_scheme"] = "never"; });
  EXPECT_EQ(refusal(), "exported");
}

TEST_F(GgufModelTest, WhatConfigJsonLeavesOutIsWhatTheFamilyTakesForIt) {
  write_model(R"({"model_type": "qwen3", "vocab_size": 12, "hidden_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 32, "intermediate_size": 8})");
  ASSERT_EQ(refusal(), "exported");
  const ckpt::GgufFile qwen(directory_ / "m.gguf");
  EXPECT_EQ(qwen.integer("qwen3.attention.key_length"), 128);
  EXPECT_EQ(qwen.integer("qwen3.attention.head_count_kv"), 32);
  EXPECT_EQ(qwen.integer("qwen3.context_length"), 32768);
  for (const char* name : {"in", "m.gguf"}) fs::remove_all(directory_ / name);
  write_model(R"({"model_type": "mistral", "vocab_size": 12, "hidden_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 16, "intermediate_size": 8})");
  ASSERT_EQ(refusal(), "exported");
  const ckpt::GgufFile mistral(directory_ / "m.gguf");
  EXPECT_EQ(mistral.integer("llama.attention.head_count_kv"), 8);
  EXPECT_EQ(mistral.integer("llama.context_length"), 4096);  // the window, not the 131072 positions
}

// Rewrites an exported file with other metadata or tensors, and imports it.
std::string import_of(const fs::path& path, const std::function<void(ckpt::GgufFields&)>& change,
                      const std::string& without = "") {
  const ckpt::GgufFile file(path);
  const std::string architecture = file.text("general.architecture");
  ckpt::GgufFields fields = {{"general.architecture", architecture}};
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(architecture + ".")) continue;
    if (value.kind == ckpt::GgufKind::kString) {
      fields.emplace_back(key, file.text(key));
    } else if (value.kind == ckpt::GgufKind::kF32) {
      fields.emplace_back(key, static_cast<float>(file.number(key)));
    } else {
      fields.emplace_back(key, static_cast<std::uint32_t>(file.integer(key)));
    }
  }
  change(fields);
  std::vector<ckpt::GgufSource> sources;
  for (const ckpt::GgufTensor& tensor : file.tensors()) {
    if (tensor.name != without) sources.push_back({file.rows(tensor), tensor.type});
  }
  const fs::path changed = path.parent_path() / "changed.gguf";
  ckpt::write_gguf(changed, fields, sources);
  try {
    import_gguf(changed, path.parent_path() / "changed", Dtype::kF32);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("changed.gguf"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "imported";
}

// What llama.cpp would compute otherwise is not written.
TEST_F(GgufModelTest, AnExportRefusesWhatLlamaCppComputesOtherwise) {
  const std::tuple<const char*, const char*, json> refusals[] = {
      {kOthers[0], "no_rope_layers", {1, 0, 1, 0}},
      {kOthers[4], "rope_local_base_freq", 5000.0},
      {kOthers[4], "query_pre_attn_scalar", 20},
      {kOthers[4], "layer_types", std::vector<std::string>(7, "sliding_attention")},
      {kOthers[6], "layer_types", std::vector<std::string>(3, "sliding_attention")},
      {kOthers[6], "final_logit_softcapping", nullptr},
      {kOthers[8], "use_bias", false},
      {kOthers[10], "norm_topk_prob", false},
      {kOthers[10], "mlp_only_layers", {0}},
      {kOthers[11], "attention_bias", false},
      {kOthers[15], "attention_bias", false},
      {kOthers[15], "layer_types", std::vector<std::string>(3, "sliding_attention")},
  };
  for (const auto& [config, field, value] : refusals) {
    write_model(config);
    edit("config.json", [key = field, to = value](json& content) { content[key] = to; });
    EXPECT_THAT(refusal(), AllOf(HasSubstr("config.json"), HasSubstr(field), HasSubstr("as hf")));
    fs::remove_all(directory_ / "in");
  }
  write_model(kOthers[5]);
  edit("config.json", [](json& content) { content["rope_scaling"]["beta_fast"] = 16; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("yarn"), HasSubstr("export as hf")));
}

TEST_F(GgufModelTest, ExpertsAreStackedAndTheirRouterStaysF32) {
  write_model(kOthers[9]);
  ASSERT_EQ(refusal(ckpt::GgmlType::kQ8_0), "exported");
  const ckpt::GgufFile file(directory_ / "m.gguf");
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.expert_count"), 12);
  EXPECT_EQ(file.integer("llama.expert_used_count"), 2);
  const ckpt::GgufTensor& up = *file.find("blk.1.ffn_up_exps.weight");
  EXPECT_EQ(up.shape, (std::vector<std::int64_t>{12, 32, 32}));
  EXPECT_EQ(up.type, ckpt::GgmlType::kQ8_0);
  EXPECT_EQ(file.find("blk.1.ffn_gate_inp.weight")->type, ckpt::GgmlType::kF32);
  // Not after building so many experts.
  EXPECT_THAT(import_of(directory_ / "m.gguf",
                        [](ckpt::GgufFields& fields) {
                          std::erase_if(fields, [](const auto& field) {
                            return field.first == "llama.expert_count";
                          });
                          fields.emplace_back("llama.expert_count", std::uint32_t{65536});
                        }),
              HasSubstr("of 65536 experts"));
  // Expert 10 is where its number says, and not where its name stands in an alphabet.
  const ckpt::HfDirectory in(directory_ / "in");
  std::vector<float> expected(32 * 32);
  in.read_f32("model.layers.1.block_sparse_moe.experts.10.w3.weight", expected);
  std::vector<float> row(32);
  file.rows(up).open()(10 * 32, row);
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], expected[i], 0.01) << i;
}

TEST_F(GgufModelTest, AWindowsOwnRotationIsRead) {
  write_model(kOthers[4]);
  ASSERT_EQ(refusal(), "exported");
  const std::string result = import_of(directory_ / "m.gguf", [](ckpt::GgufFields& fields) {
    fields.emplace_back("gemma3.rope.freq_base_swa", 5000.0F);
  });
  ASSERT_EQ(result, "imported");
  const json got = json::parse(read_file(directory_ / "changed" / "config.json"));
  EXPECT_EQ(got["rope_local_base_freq"], 5000.0);
}

TEST_F(GgufModelTest, AnImportRefusesWhatItDoesNotKnowByName) {
  write_model(kLlama);
  ASSERT_EQ(refusal(), "exported");
  const fs::path path = directory_ / "m.gguf";
  const auto with = [&](const char* key, ckpt::GgufField value) {
    return import_of(path, [&](ckpt::GgufFields& fields) {
      std::erase_if(fields, [&](const auto& field) { return field.first == key; });
      fields.emplace_back(key, std::move(value));
    });
  };
  EXPECT_THAT(with("llama.logit_scale", 2.0F), HasSubstr("\"llama.logit_scale\""));
  for (const char* harmless : {"llama.tensor_data_layout", "llama.made_by"}) {
    EXPECT_EQ(with(harmless, std::string("x")), "imported") << harmless;
    fs::remove_all(directory_ / "changed");
  }
  EXPECT_EQ(with("llama.expert_shared_count", std::uint32_t{0}), "imported");
  fs::remove_all(directory_ / "changed");
  EXPECT_THAT(with("llama.expert_count", std::uint32_t{8}), HasSubstr("expert_used_count"));
  EXPECT_THAT(with("llama.rope.dimension_count", std::uint32_t{4}), HasSubstr("dimension_count"));
  EXPECT_THAT(with("llama.rope.scaling.type", std::string("longrope")), HasSubstr("longrope"));
  EXPECT_THAT(with("llama.rope.freq_base", std::numeric_limits<float>::infinity()),
              AllOf(HasSubstr("\"llama.rope.freq_base\""), HasSubstr("inf")));
  EXPECT_THAT(with("llama.attention.sliding_window", std::uint32_t{8}), HasSubstr("window"));
  EXPECT_THAT(with("llama.attention.head_count", std::uint32_t{0}), HasSubstr("not a size"));
  EXPECT_THAT(with("llama.attention.head_count", std::uint32_t{3}), HasSubstr("attention"));
  EXPECT_THAT(with("llama.feed_forward_length", std::uint32_t{32}), HasSubstr("(32, 64)"));
  EXPECT_THAT(with("llama.block_count", std::uint32_t{1}), HasSubstr("model.layers.1."));
  EXPECT_THAT(with("llama.block_count", std::uint32_t{3}), HasSubstr("model.layers.2."));
  // Not after building so many layers.
  EXPECT_THAT(with("llama.block_count", std::uint32_t{1000000}), HasSubstr("at most 4096 layers"));
  EXPECT_THAT(with("llama.block_count", std::uint32_t{4096}), HasSubstr("of 4096 layers"));
  EXPECT_THAT(with("general.architecture", std::string("mamba")), HasSubstr("\"mamba\""));
  EXPECT_THAT(with("tokenizer.ggml.model", std::string("t5")), HasSubstr("\"t5\""));
  EXPECT_THAT(import_of(
                  path, [](ckpt::GgufFields&) {}, "blk.1.ffn_up.weight"),
              HasSubstr("no tensor for model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(fs::exists(directory_ / "changed"));
  EXPECT_EQ(import_of(path, [](ckpt::GgufFields&) {}), "imported");
}

TEST_F(GgufModelTest, ATokenThatAFileDoesNotNameIsNull) {
  write_model(kLlama);
  ASSERT_EQ(refusal(), "exported");
  EXPECT_EQ(import_of(directory_ / "m.gguf",
                      [](ckpt::GgufFields& fields) {
                        fields.emplace_back("tokenizer.ggml.bos_token_id", std::uint32_t{3});
                        fields.emplace_back("tokenizer.ggml.padding_token_id", UINT32_MAX);
                      }),
            "imported");
  const json config = json::parse(read_file(directory_ / "changed/config.json"));
  EXPECT_EQ(config["bos_token_id"], 3);
  for (const char* none : {"eos_token_id", "pad_token_id"}) {
    ASSERT_TRUE(config.contains(none)) << none;
    EXPECT_TRUE(config[none].is_null()) << none;
  }
}

TEST_F(GgufModelTest, AFactorWithoutATypeOfScalingIsLinear) {
  write_model(kLlama);
  ASSERT_EQ(refusal(), "exported");
  EXPECT_EQ(import_of(directory_ / "m.gguf",
                      [](ckpt::GgufFields& fields) {
                        fields.emplace_back("llama.rope.scaling.factor", 4.0F);
                      }),
            "imported");
  const json config = json::parse(read_file(directory_ / "changed/config.json"));
  EXPECT_EQ(config["rope_scaling"], (json{{"rope_type", "linear"}, {"factor", 4.0}}));
}

TEST(GgufTokenizer, ListsThatLieAreRefused) {
  const ckpt::testing::TemporaryDirectory directory("gguf-tokenizer");
  const auto refusal = [&](ckpt::GgufFields changes) -> std::string {
    ckpt::GgufFields fields = {{"general.architecture", std::string("llama")}};
    const auto put = [&](const char* key, ckpt::GgufField value) {
      for (const auto& [changed, unused] : changes) {
        if (changed == std::string("tokenizer.ggml.") + key) return;
      }
      fields.emplace_back(std::string("tokenizer.ggml.") + key, std::move(value));
    };
    put("model", std::string("gpt2"));
    put("pre", std::string("gpt-2"));
    put("tokens", std::vector<std::string>{"a", "b", "ab"});
    put("token_type", std::vector<std::int32_t>{1, 1, 1});
    put("merges", std::vector<std::string>{"a b"});
    fields.insert(fields.end(), changes.begin(), changes.end());
    ckpt::write_gguf(directory / "t.gguf", fields, {});
    try {
      const auto files = ckpt::tokenizer_from_gguf(ckpt::GgufFile(directory / "t.gguf"));
      return json::parse(files.at("tokenizer.json"))["model"].dump();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("t.gguf"));
      EXPECT_NE(error.kind(), ErrorKind::kInternal);
      return error.what();
    }
  };
  EXPECT_THAT(refusal({}), HasSubstr(R"("vocab":{"a":0,"ab":2,"b":1})"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.pre", std::string("new")}}),
              AllOf(HasSubstr("\"new\""), HasSubstr("qwen2")));
  EXPECT_THAT(refusal({{"tokenizer.ggml.token_type", std::vector<std::int32_t>{1}}}),
              HasSubstr("3 tokens and 1"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 9, 1}}}),
              HasSubstr("token_type[1] is 9"));
  // As llama.cpp, which takes the last of two, and no token for an id that is none.
  EXPECT_THAT(refusal({{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "a"}}}),
              HasSubstr(R"("vocab":{"<|unused_0|>":0,"a":2,"b":1})"));
  // Ids without gaps, which Hugging Face's library would close.
  EXPECT_THAT(
      refusal({{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "u", "<e>"}},
               {"tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 5, 3}}}),
      HasSubstr(R"("vocab":{"<|unused_3|>":3,"a":0,"ab":2,"b":1})"));
  EXPECT_THAT(
      refusal({{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<e>", "u"}},
               {"tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 3, 5}}}),
      HasSubstr(R"("vocab":{"a":0,"ab":2,"b":1})"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.eos_token_id", std::uint32_t{3}}}),
              HasSubstr(R"("vocab":{"a":0,"ab":2,"b":1})"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "\xff"}}}),
              HasSubstr("tokens[2] is not UTF-8"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.merges", std::vector<std::string>{"ab"}}}),
              HasSubstr("merges[0] is not two tokens"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("llama")},
                       {"tokenizer.ggml.scores", std::vector<float>{0}}}),
              HasSubstr("3 tokens and 1 tokenizer.ggml.scores"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("llama")},
                       {"tokenizer.ggml.tokens", std::vector<std::string>{}},
                       {"tokenizer.ggml.token_type", std::vector<std::int32_t>{}},
                       {"tokenizer.ggml.scores", std::vector<float>{}}}),
              HasSubstr("tokens is empty"));
  std::vector<std::string> runs;
  for (std::size_t size = 1; size <= 200; ++size) runs.emplace_back(size, 'a');
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("llama")},
                       {"tokenizer.ggml.tokens", runs},
                       {"tokenizer.ggml.token_type", std::vector<std::int32_t>(200, 1)},
                       {"tokenizer.ggml.scores", std::vector<float>(200, 0)}}),
              HasSubstr("200 pieces"));
}

TEST(GgufPreTokenizers, EveryNameGoesBothWays) {
  for (const char* name : {"gpt-2", "olmo", "smollm", "llama-bpe", "qwen2", "tekken", "default"}) {
    const auto found = ckpt::find_gguf_pre_tokenizer(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(
        ckpt::name_gguf_pre_tokenizer(found->pre_tokenizer, found->is_nfc, found->ignore_merges),
        name);
  }
  EXPECT_FALSE(ckpt::find_gguf_pre_tokenizer("falcon"));
  // SmolLM2's own way to say the same.
  EXPECT_EQ(ckpt::name_gguf_pre_tokenizer(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})",
                                          false, false),
            "smollm");
  EXPECT_EQ(ckpt::name_gguf_pre_tokenizer("null", false, false), std::nullopt);
  EXPECT_EQ(ckpt::name_gguf_pre_tokenizer(R"({"type": 3})", false, false), std::nullopt);
}

TEST(GgufNames, BothWaysAndNoOthers) {
  const auto form = [](const char* family) -> const nn::GgufForm& {
    return nn::find_family(family, "a test").gguf;
  };
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gpt2"}) {
    for (const char* name : {"token_embd.weight", "blk.10.attn_output.weight",
                             "blk.0.ffn_down.weight", "output_norm.weight"}) {
      const auto found = ckpt::from_gguf_name(form(architecture), name);
      ASSERT_TRUE(found) << architecture << ' ' << name;
      EXPECT_EQ(ckpt::from_hf_name(form(architecture), found->hf)->gguf, name);
    }
    for (const char* name : {"blk..attn_q.weight", "blk.01.attn_q.weight", "blk.x.ffn_up.weight",
                             "attn_q.weight", "blk.0.token_embd.weight", "output", "",
                             "blk.0.ffn_gate_inp.weight", "blk.9999999.attn_norm.weight"}) {
      EXPECT_FALSE(ckpt::from_gguf_name(form(architecture), name)) << architecture << ' ' << name;
    }
  }
  EXPECT_EQ(ckpt::from_gguf_name(form("llama"), "blk.3.attn_k.bias")->hf,
            "model.layers.3.self_attn.k_proj.bias");
  EXPECT_FALSE(ckpt::from_gguf_name(form("qwen3"), "blk.3.attn_k.bias"));
}

TEST(GgufNames, ExpertsHaveOneTensorInGgufAndOneEachInHuggingFacesFiles) {
  const nn::GgufForm& form = nn::find_family("qwen3_moe", "a test").gguf;
  const auto found = ckpt::from_hf_name(form, "model.layers.3.mlp.experts.17.down_proj.weight");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->gguf, "blk.3.ffn_down_exps.weight");
  EXPECT_EQ(found->hf, "model.layers.3.mlp.experts.17.down_proj.weight");
  EXPECT_EQ(found->expert, 17);
  const auto back = ckpt::from_gguf_name(form, "blk.3.ffn_down_exps.weight");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->hf, "model.layers.3.mlp.experts.*.down_proj.weight");
  EXPECT_FALSE(back->expert);
  EXPECT_FALSE(ckpt::from_hf_name(form, "model.layers.3.mlp.gate.weight")->expert);
  for (const char* name : {"mlp.experts..down_proj.weight", "mlp.experts.01.down_proj.weight",
                           "mlp.experts.x.down_proj.weight", "mlp.experts.1.down.weight",
                           "mlp.experts.1.down_proj.bias"}) {
    EXPECT_FALSE(ckpt::from_hf_name(form, std::string("model.layers.3.") + name)) << name;
  }
}

TEST(GgufRows, RotaryRowsArePairsInGguf) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 16; ++row) rows.push_back(ckpt::gguf_row(row, 8));
  EXPECT_EQ(rows,
            (std::vector<std::int64_t>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
  for (std::int64_t row = 0; row < 96; ++row)
    EXPECT_EQ(ckpt::hf_row(ckpt::gguf_row(row, 24), 24), row);
}

TEST(GgufRows, QueriesKeysAndValuesAreEachTogetherInGguf) {
  std::vector<std::int64_t> rows;  // two heads of two elements: q q k k v v, twice
  for (std::int64_t row = 0; row < 12; ++row) rows.push_back(ckpt::gguf_qkv_row(row, 12, 2));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  for (std::int64_t row = 0; row < 90; ++row)
    EXPECT_EQ(ckpt::hf_qkv_row(ckpt::gguf_qkv_row(row, 90, 6), 90, 6), row);
}

// llama.cpp takes this setting only as a bool.
TEST_F(GgufModelTest, WhetherBranchesAreParallelIsABool) {
  write_model(kOthers[12]);
  ASSERT_EQ(refusal(), "exported");
  const ckpt::GgufFile file(directory_ / "m.gguf");
  EXPECT_FALSE(file.boolean("gptneox.use_parallel_residual", true));
  EXPECT_EQ(file.integer("gptneox.rope.dimension_count"), 32);
  EXPECT_TRUE(file.find("blk.0.attn_qkv.bias"));
}

TEST(GgufRope, LlamaThreesScalingIsFoundAgain) {
  const ckpt::Llama3Rope tiny = {.factor = 32, .original_positions = 64};
  const std::vector<float> factors = ckpt::rope_factors(tiny, 500, 64);
  EXPECT_EQ(factors.front(), 1);
  EXPECT_EQ(factors.back(), 32);
  EXPECT_GT(std::count_if(factors.begin(), factors.end(), [](float f) { return f > 1 && f < 32; }),
            2);
  const auto found = ckpt::find_llama3_rope(factors, 500, 64, 64);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->factor, 32);
  EXPECT_EQ(found->original_positions, 64);
  EXPECT_FALSE(ckpt::find_llama3_rope(factors, 500, 64, 24));
  EXPECT_FALSE(ckpt::find_llama3_rope(factors, 500, 32, 64));
  EXPECT_FALSE(ckpt::find_llama3_rope({}, 500, 64, 64));
}

}  // namespace
}  // namespace atl::model_dir
