#include "atoll/ckpt/gguf/names.h"

#include <algorithm>
#include <span>

namespace atl::ckpt {

namespace {

struct Row {
  const char* gguf;  // within a block where `hf` has no dot in front
  const char* hf;
  bool has_bias;
  GgufOrder order = GgufOrder::kSame;
};

struct Table {
  const char* architecture;
  const char* block;  // what stands before a layer's number
  std::span<const Row> outside;
  std::span<const Row> inside;
};

constexpr Row kOutside[] = {{"token_embd", "model.embed_tokens", false},
                            {"output_norm", "model.norm", false},
                            {"output", "lm_head", false}};
// llama.cpp's llama takes every bias that config.json can ask for, its qwen2 those of the query,
// key and value, its qwen3 none.
constexpr Row kLlama[] = {
    {"attn_norm", "input_layernorm", false},
    {"attn_q", "self_attn.q_proj", true, GgufOrder::kQueryRotary},
    {"attn_k", "self_attn.k_proj", true, GgufOrder::kKeyRotary},
    {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj", true},
    {"ffn_norm", "post_attention_layernorm", false},
    {"ffn_gate", "mlp.gate_proj", true},
    {"ffn_up", "mlp.up_proj", true},
    {"ffn_down", "mlp.down_proj", true},
};
constexpr Row kQwen2[] = {
    {"attn_norm", "input_layernorm", false},    {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true},       {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj", false}, {"ffn_norm", "post_attention_layernorm", false},
    {"ffn_gate", "mlp.gate_proj", false},       {"ffn_up", "mlp.up_proj", false},
    {"ffn_down", "mlp.down_proj", false},
};
constexpr Row kQwen3[] = {
    {"attn_norm", "input_layernorm", false},    {"attn_q", "self_attn.q_proj", false},
    {"attn_q_norm", "self_attn.q_norm", false}, {"attn_k", "self_attn.k_proj", false},
    {"attn_k_norm", "self_attn.k_norm", false}, {"attn_v", "self_attn.v_proj", false},
    {"attn_output", "self_attn.o_proj", false}, {"ffn_norm", "post_attention_layernorm", false},
    {"ffn_gate", "mlp.gate_proj", false},       {"ffn_up", "mlp.up_proj", false},
    {"ffn_down", "mlp.down_proj", false},
};
constexpr Row kGpt2Outside[] = {{"token_embd", "transformer.wte", false},
                                {"position_embd", "transformer.wpe", false},
                                {"output_norm", "transformer.ln_f", true},
                                {"output", "lm_head", false}};
constexpr Row kGpt2[] = {
    {"attn_norm", "ln_1", true},
    {"attn_qkv", "attn.c_attn", true, GgufOrder::kTransposed},
    {"attn_output", "attn.c_proj", true, GgufOrder::kTransposed},
    {"ffn_norm", "ln_2", true},
    {"ffn_up", "mlp.c_fc", true, GgufOrder::kTransposed},
    {"ffn_down", "mlp.c_proj", true, GgufOrder::kTransposed},
};
constexpr Table kTables[] = {
    {"llama", "model.layers.", kOutside, kLlama},
    {"qwen2", "model.layers.", kOutside, kQwen2},
    {"qwen3", "model.layers.", kOutside, kQwen3},
    {"gpt2", "transformer.h.", kGpt2Outside, kGpt2},
};

const Table* find_table(std::string_view architecture) {
  for (const Table& table : kTables) {
    if (architecture == table.architecture) return &table;
  }
  return nullptr;
}

// "blk.12.attn_q" behind "blk." -> "12" and "attn_q"; a number as it is printed, and no other.
bool split_layer(std::string_view text, std::string_view& layer, std::string_view& rest) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 6) return false;
  layer = text.substr(0, dot);
  rest = text.substr(dot + 1);
  return std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         (layer.size() == 1 || layer.front() != '0');
}

// One name as block prefix, layer, stem and ".weight" or ".bias", looked up under the spelling that
// `spelling` picks of a row.
std::optional<GgufName> translate(const Table& table, std::string_view name, std::string_view block,
                                  const char* Row::*spelling) {
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (!name.ends_with(suffix)) continue;
    std::string_view stem = name.substr(0, name.size() - suffix.size());
    std::string_view layer;
    const bool is_inside =
        stem.starts_with(block) && split_layer(stem.substr(block.size()), layer, stem);
    for (const Row& row : is_inside ? table.inside : table.outside) {
      if (stem != row.*spelling || (suffix == ".bias" && !row.has_bias)) continue;
      GgufName found;
      found.order = row.order;
      if (suffix == ".bias" && row.order == GgufOrder::kTransposed) found.order = GgufOrder::kSame;
      if (is_inside) {
        found.gguf.append("blk.").append(layer).append(".");
        found.hf.append(table.block).append(layer).append(".");
      }
      found.gguf.append(row.gguf).append(suffix);
      found.hf.append(row.hf).append(suffix);
      return found;
    }
  }
  return {};
}

}  // namespace

std::string gguf_architectures() {
  std::string names;
  for (const Table& table : kTables) {
    names += (names.empty() ? "" : ", ") + std::string(table.architecture);
  }
  return names;
}

bool is_gguf_architecture(std::string_view architecture) {
  return find_table(architecture) != nullptr;
}

std::optional<GgufName> from_gguf_name(std::string_view architecture, std::string_view name) {
  const Table* table = find_table(architecture);
  return table == nullptr ? std::nullopt : translate(*table, name, "blk.", &Row::gguf);
}

std::optional<GgufName> from_hf_name(std::string_view architecture, std::string_view name) {
  const Table* table = find_table(architecture);
  return table == nullptr ? std::nullopt : translate(*table, name, table->block, &Row::hf);
}

std::int64_t gguf_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t within = row % head_dim;
  const std::int64_t half = head_dim / 2;
  return row - within + (within % half) * 2 + within / half;
}

std::int64_t hf_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t within = row % head_dim;
  return row - within + (within % 2) * (head_dim / 2) + within / 2;
}

}  // namespace atl::ckpt
