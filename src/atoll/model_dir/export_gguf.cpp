#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/model_dir/export.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

ckpt::FloatRows rows_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  const Spec spec = file.spec(name);
  ckpt::FloatRows rows;
  rows.name = name;
  for (int i = 0; i < spec.shape.rank(); ++i) rows.shape.push_back(spec.shape.dim(i));
  if (rows.shape.empty()) rows.shape = {1};
  rows.open = [bytes = file.bytes(name), dtype = spec.dtype]() -> ckpt::RowReader {
    return [bytes, dtype](std::int64_t row, std::span<float> out) {
      const std::size_t row_bytes = out.size() * dtype_size(dtype);
      ckpt::convert_to_f32(
          dtype, bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes), out);
    };
  };
  return rows;
}

ckpt::FloatRows to_gguf_order(ckpt::FloatRows rows, nn::GgufOrder order, std::int64_t head_dim) {
  switch (order) {
    case nn::GgufOrder::kTransposed:
      return ckpt::transpose_rows(std::move(rows));
    case nn::GgufOrder::kQueryRotary:
    case nn::GgufOrder::kKeyRotary:
      return ckpt::reorder_rows(
          std::move(rows), [head_dim](std::int64_t row) { return ckpt::hf_row(row, head_dim); });
    case nn::GgufOrder::kPlusOne:
      return ckpt::add_to_rows(std::move(rows), 1);
    case nn::GgufOrder::kSame:
      break;
  }
  return rows;
}

ckpt::GgmlType plain_type(Dtype dtype) {
  if (dtype == Dtype::kF16) return ckpt::GgmlType::kF16;
  return dtype == Dtype::kBf16 ? ckpt::GgmlType::kBf16 : ckpt::GgmlType::kF32;
}

// "general.file_type", as llama.cpp numbers them.
std::uint32_t file_type(ckpt::GgmlType type) {
  switch (type) {
    case ckpt::GgmlType::kF16:
      return 1;
    case ckpt::GgmlType::kQ8_0:
      return 7;
    case ckpt::GgmlType::kBf16:
      return 32;
    default:
      return 0;
  }
}

std::vector<ckpt::GgufSource> sources_of(const ckpt::HfDirectory& directory,
                                         const ckpt::GgufModel& model, ckpt::GgmlType type) {
  std::vector<ckpt::GgufSource> sources;
  for (const std::string& name : directory.tensor_names()) {
    const auto found = ckpt::from_hf_name(*model.shape.form, name);
    if (ckpt::is_buffer(name) && (!found || found->hf != name)) continue;
    if (!found) {
      throw user_error("{}: tensor \"{}\" has no place in llama.cpp's {}; export as hf",
                       directory.path().string(), name, model.shape.form->architecture);
    }
    if (found->gguf == "output.weight" && model.is_tied) continue;
    const ckpt::SafetensorsFile& file = directory.file_of(name);
    if (!ckpt::converts_to_f32(file.spec(name).dtype)) {
      throw user_error("{}: tensor \"{}\" is {}, expected floats", file.path().string(), name,
                       dtype_name(file.spec(name).dtype));
    }
    ckpt::FloatRows rows = to_gguf_order(rows_of(file, name), found->order, model.shape.head_dim);
    rows.name = found->gguf;
    const bool stays_f32 = rows.shape.size() == 1 || rows.name == "position_embd.weight";
    sources.push_back({std::move(rows), stays_f32 ? ckpt::GgmlType::kF32 : type});
  }
  if (!model.rope_factors.empty()) {
    ckpt::FloatRows factors;
    factors.name = "rope_freqs.weight";
    factors.shape = {static_cast<std::int64_t>(model.rope_factors.size())};
    factors.open = [values = model.rope_factors]() -> ckpt::RowReader {
      return [values](std::int64_t, std::span<float> out) {
        std::copy(values.begin(), values.end(), out.begin());
      };
    };
    sources.push_back({std::move(factors), ckpt::GgmlType::kF32});
  }
  return sources;
}

// The type of the largest tensor of the files that the model came from.
ckpt::GgmlType source_type(const ckpt::HfDirectory& directory) {
  ckpt::GgmlType type = ckpt::GgmlType::kF32;
  std::int64_t most = 0;
  for (const auto& [name, dtype] : directory.source_dtypes()) {
    const std::int64_t elements = directory.spec(name).shape.num_elements();
    if (elements > most) type = plain_type(dtype);
    most = std::max(most, elements);
  }
  return type;
}

}  // namespace

GgufExport export_gguf(const fs::path& from, const fs::path& to,
                       std::optional<ckpt::GgmlType> type) {
  if (path_exists(to)) {
    throw user_error("{} is there already; name a file that is not, or remove it", to.string());
  }
  const ckpt::HfDirectory directory(from);
  const std::string origin = (from / "config.json").string();
  // Refuses what atoll does not compute.
  ckpt::GgufModel model =
      ckpt::gguf_model(nn::parse_config(directory.config_json(), origin), origin);
  const ckpt::GgmlType matrices = type.value_or(source_type(directory));
  ckpt::GgufFields fields = std::move(model.fields);
  fields.insert(fields.begin() + 1, {{"general.type", std::string("model")},
                                     {"general.file_type", file_type(matrices)},
                                     {"general.quantization_version", std::uint32_t{2}}});
  for (auto& field : ckpt::tokenizer_to_gguf(directory, model.shape.vocab_size)) {
    fields.push_back(std::move(field));
  }
  ckpt::write_gguf(to, fields, sources_of(directory, model, matrices));
  return {model.context_length, model.window_cuts_context};
}

}  // namespace atl::model_dir
