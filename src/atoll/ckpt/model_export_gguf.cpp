#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/paths.h"
#include "atoll/ckpt/convert.h"
#include "atoll/ckpt/gguf_config.h"
#include "atoll/ckpt/gguf_names.h"
#include "atoll/ckpt/gguf_tokenizer.h"
#include "atoll/ckpt/gguf_writer.h"
#include "atoll/ckpt/model_export.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/nn/models/family.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

namespace {

FloatRows rows_of(const SafetensorsFile& file, const std::string& name) {
  const Spec spec = file.spec(name);
  FloatRows rows;
  rows.name = name;
  for (int i = 0; i < spec.shape.rank(); ++i) rows.shape.push_back(spec.shape.dim(i));
  if (rows.shape.empty()) rows.shape = {1};
  rows.open = [bytes = file.bytes(name), dtype = spec.dtype]() -> RowReader {
    return [bytes, dtype](std::int64_t row, std::span<float> out) {
      const std::size_t row_bytes = out.size() * dtype_size(dtype);
      convert_to_f32(dtype, bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes),
                     out);
    };
  };
  return rows;
}

FloatRows to_gguf_order(FloatRows rows, GgufOrder order, std::int64_t head_dim) {
  switch (order) {
    case GgufOrder::kTransposed:
      return transpose_rows(std::move(rows));
    case GgufOrder::kQueryRotary:
    case GgufOrder::kKeyRotary:
      return reorder_rows(std::move(rows),
                          [head_dim](std::int64_t row) { return hf_row(row, head_dim); });
    default:
      return rows;
  }
}

GgmlType plain_type(Dtype dtype) {
  if (dtype == Dtype::kF16) return GgmlType::kF16;
  return dtype == Dtype::kBf16 ? GgmlType::kBf16 : GgmlType::kF32;
}

// "general.file_type", as llama.cpp numbers them.
std::uint32_t file_type(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBf16:
      return 32;
    default:
      return 0;
  }
}

// A base model's names lack the first part: "wte.weight" for "transformer.wte.weight".
std::optional<GgufName> gguf_name(const std::string& architecture, const std::string& name) {
  if (auto found = from_hf_name(architecture, name)) return found;
  return from_hf_name(architecture, (architecture == "gpt2" ? "transformer." : "model.") + name);
}

std::vector<GgufSource> sources_of(const HfDirectory& directory, const GgufModel& model,
                                   GgmlType type) {
  std::vector<GgufSource> sources;
  for (const std::string& name : directory.tensor_names()) {
    const auto found = gguf_name(model.shape.architecture, name);
    if (is_buffer(name) && (!found || found->hf != name)) continue;
    if (!found) {
      throw user_error("{}: tensor \"{}\" has no place in llama.cpp's {}; export as hf",
                       directory.path().string(), name, model.shape.architecture);
    }
    if (found->gguf == "output.weight" && model.is_tied) continue;
    const SafetensorsFile& file = directory.file_of(name);
    if (!converts_to_f32(file.spec(name).dtype)) {
      throw user_error("{}: tensor \"{}\" is {}, expected floats", file.path().string(), name,
                       dtype_name(file.spec(name).dtype));
    }
    FloatRows rows = to_gguf_order(rows_of(file, name), found->order, model.shape.head_dim);
    rows.name = found->gguf;
    const bool stays_f32 = rows.shape.size() == 1 || rows.name == "position_embd.weight";
    sources.push_back({std::move(rows), stays_f32 ? GgmlType::kF32 : type});
  }
  if (!model.rope_factors.empty()) {
    FloatRows factors;
    factors.name = "rope_freqs.weight";
    factors.shape = {static_cast<std::int64_t>(model.rope_factors.size())};
    factors.open = [values = model.rope_factors]() -> RowReader {
      return [values](std::int64_t, std::span<float> out) {
        std::copy(values.begin(), values.end(), out.begin());
      };
    };
    sources.push_back({std::move(factors), GgmlType::kF32});
  }
  return sources;
}

// The type of the largest tensor of the files that the model came from.
GgmlType source_type(const HfDirectory& directory) {
  GgmlType type = GgmlType::kF32;
  std::int64_t most = 0;
  for (const auto& [name, dtype] : directory.source_dtypes()) {
    const std::int64_t elements = directory.spec(name).shape.num_elements();
    if (elements > most) type = plain_type(dtype);
    most = std::max(most, elements);
  }
  return type;
}

}  // namespace

GgufExport export_gguf(const fs::path& from, const fs::path& to, std::optional<GgmlType> type) {
  if (path_exists(to)) {
    throw user_error("{} is there already; name a file that is not, or remove it", to.string());
  }
  const HfDirectory directory(from);
  const std::string origin = (from / "config.json").string();
  // Refuses what atoll does not compute.
  GgufModel model = gguf_model(nn::parse_config(directory.config_json(), origin), origin);
  const GgmlType matrices = type.value_or(source_type(directory));
  GgufFields fields = std::move(model.fields);
  fields.insert(fields.begin() + 1, {{"general.type", std::string("model")},
                                     {"general.file_type", file_type(matrices)},
                                     {"general.quantization_version", std::uint32_t{2}}});
  for (auto& field : tokenizer_to_gguf(directory, model.shape.vocab_size)) {
    fields.push_back(std::move(field));
  }
  write_gguf(to, fields, sources_of(directory, model, matrices));
  return {model.context_length, model.window_cuts_context};
}

}  // namespace atl::ckpt
