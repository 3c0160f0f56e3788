#include "atoll/ckpt/gguf/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace atl::ckpt {

namespace {

// "blk.12.attn_q" behind "blk." -> "12" and "attn_q"; a number as it is printed, and no other.
bool split_layer(std::string_view text, std::string_view& layer, std::string_view& rest) {
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 6) return false;
  layer = text.substr(0, dot);
  rest = text.substr(dot + 1);
  return std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         (layer.size() == 1 || layer.front() != '0');
}

// "mlp.experts.3.up_proj" of "mlp.experts.*.up_proj": expert 3; nothing where it is no such name.
std::optional<std::int64_t> expert_of(std::string_view stem, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos || !stem.starts_with(pattern.substr(0, star))) return {};
  std::string_view number;
  std::string_view rest;
  if (!split_layer(stem.substr(star), number, rest) || rest != pattern.substr(star + 2)) return {};
  return std::stoll(std::string(number));
}

// Whether a row has whole names, of which Hugging Face's has no ".weight".
bool has_whole_names(const nn::GgufTensorName& row) {
  return row.order == nn::GgufOrder::kWholeName || std::string_view(row.gguf).ends_with(".weight");
}

// One name as block prefix, layer, stem and ".weight" or ".bias", looked up under the spelling that
// `spelling` picks of a row.
std::optional<GgufName> translate(const nn::GgufForm& form, std::string_view name,
                                  std::string_view block,
                                  const char* nn::GgufTensorName::*spelling) {
  for (const std::string_view suffix : {".weight", ".bias", ""}) {
    if (!name.ends_with(suffix)) continue;
    std::string_view stem = name.substr(0, name.size() - suffix.size());
    std::string_view layer;
    const bool is_inside =
        stem.starts_with(block) && split_layer(stem.substr(block.size()), layer, stem);
    for (const nn::GgufTensorName& row : is_inside ? form.inside : form.outside) {
      if (has_whole_names(row) != suffix.empty()) continue;
      const auto expert = expert_of(stem, row.*spelling);
      if ((stem != row.*spelling && !expert) || (suffix == ".bias" && !row.has_bias)) continue;
      GgufName found;
      found.expert = expert;
      found.order = row.order;
      if (suffix == ".bias" && row.order == nn::GgufOrder::kTransposed) {
        found.order = nn::GgufOrder::kSame;
      }
      if (is_inside) {
        found.gguf.append("blk.").append(layer).append(".");
        found.hf.append(form.block).append(layer).append(".");
      }
      found.gguf.append(row.gguf).append(suffix);
      found.hf.append(expert ? stem : row.hf).append(suffix);
      return found;
    }
  }
  return {};
}

}  // namespace

const nn::Family* find_gguf_family(std::string_view architecture, bool has_experts) {
  for (const nn::Family& family : nn::families()) {
    if (architecture.empty() || architecture != family.gguf.architecture) continue;
    if (family.has_experts == has_experts) return &family;
  }
  return nullptr;
}

std::string gguf_architectures() {
  std::vector<std::string_view> names;
  for (const nn::Family& family : nn::families()) {
    const std::string_view name = family.gguf.architecture;
    const bool is_new = std::find(names.begin(), names.end(), name) == names.end();
    if (!name.empty() && is_new) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<GgufName> from_gguf_name(const nn::GgufForm& form, std::string_view name) {
  return translate(form, name, "blk.", &nn::GgufTensorName::gguf);
}

std::optional<GgufName> from_hf_name(const nn::GgufForm& form, std::string_view name) {
  constexpr auto kHf = &nn::GgufTensorName::hf;
  if (auto found = translate(form, name, form.block, kHf)) return found;
  const std::string_view block = form.block;
  return translate(form, std::string(block.substr(0, block.find('.') + 1)).append(name), block,
                   kHf);
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

std::int64_t gguf_qkv_row(std::int64_t row, std::int64_t rows, std::int64_t head_dim) {
  const std::int64_t head = row / (3 * head_dim);
  const std::int64_t which = row / head_dim % 3;
  return which * (rows / 3) + head * head_dim + row % head_dim;
}

std::int64_t hf_qkv_row(std::int64_t row, std::int64_t rows, std::int64_t head_dim) {
  const std::int64_t which = row / (rows / 3);
  const std::int64_t head = row % (rows / 3) / head_dim;
  return (head * 3 + which) * head_dim + row % head_dim;
}

}  // namespace atl::ckpt
