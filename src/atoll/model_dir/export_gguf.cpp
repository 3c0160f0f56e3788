#include <algorithm>
#include <map>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/k_quants.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/hf/further_blocks.h"
#include "atoll/ckpt/hf/stacked_experts.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/model_dir/export.h"
#include "atoll/model_dir/gguf_latent.h"
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
    case nn::GgufOrder::kQkvByHead: {
      const std::int64_t count = rows.shape.front();
      return ckpt::reorder_rows(std::move(rows), [count, head_dim](std::int64_t row) {
        return ckpt::hf_qkv_row(row, count, head_dim);
      });
    }
    case nn::GgufOrder::kPlusOne:
      return ckpt::add_to_rows(std::move(rows), 1);
    case nn::GgufOrder::kSame:
    case nn::GgufOrder::kWholeName:
      break;
  }
  return rows;
}

ckpt::GgmlType plain_type(Dtype dtype) {
  if (dtype == Dtype::kF16) return ckpt::GgmlType::kF16;
  return dtype == Dtype::kBf16 ? ckpt::GgmlType::kBf16 : ckpt::GgmlType::kF32;
}

// What becomes of a model's tensors.
class Sources {
 public:
  Sources(const ckpt::HfDirectory& directory, const ckpt::GgufModel& model, ckpt::GgufMix mix,
          const ckpt::Imatrix* imatrix)
      : directory_(directory), model_(model), mix_(mix), imatrix_(imatrix) {
    const ckpt::FurtherBlocks further(directory);
    for (const std::string& name : directory.tensor_names()) {
      if (!further.has(name)) add(name);
    }
    for (auto& [name, matrices] : experts_) add_stack(name, std::move(matrices));
    if (!model.rope_factors.empty()) add_rope_factors();
    settle_types();
  }

  std::span<const ckpt::GgufSource> all() const { return sources_; }
  std::int64_t other_matrices() const { return other_matrices_; }
  std::int64_t no_importance() const { return no_importance_; }

 private:
  // Experts that Hugging Face's files stack, as GGUF does, in another order.
  void add_parts(const std::string& name, std::vector<ckpt::FloatRows> parts) {
    for (ckpt::FloatRows& rows : parts) {
      const auto found = ckpt::from_hf_name(*model_.shape.form, rows.name);
      if (!found) {
        throw user_error("{}: tensor \"{}\" has no place in llama.cpp's {}; export as hf",
                         directory_.path().string(), name, model_.shape.form->architecture);
      }
      num_experts_ = rows.shape.front();
      rows.name = found->gguf;
      sources_.push_back({std::move(rows), ckpt::GgmlType::kF32});
    }
  }

  void add(const std::string& name) {
    if (auto parts = ckpt::parts_of_stack(directory_.file_of(name), name); !parts.empty()) {
      return add_parts(name, std::move(parts));
    }
    const auto found = ckpt::from_hf_name(*model_.shape.form, name);
    if (ckpt::is_buffer(name) && (!found || found->hf != name)) return;
    if (!found) {
      throw user_error("{}: tensor \"{}\" has no place in llama.cpp's {}; export as hf",
                       directory_.path().string(), name, model_.shape.form->architecture);
    }
    if (found->gguf == "output.weight" && model_.is_tied) return;
    const ckpt::SafetensorsFile& file = directory_.file_of(name);
    if (!ckpt::converts_to_f32(file.spec(name).dtype)) {
      throw user_error("{}: tensor \"{}\" is {}, expected floats", file.path().string(), name,
                       dtype_name(file.spec(name).dtype));
    }
    ckpt::FloatRows rows = to_gguf_order(rows_of(file, name), found->order, model_.shape.head_dim);
    rows.name = found->gguf;
    if (model_.shape.latent.kv_rank > 0 && rows.name.ends_with(".attn_kv_b.weight")) {
      for (ckpt::FloatRows& part : split_key_value(rows, model_.shape.latent)) {
        sources_.push_back({std::move(part), ckpt::GgmlType::kF32});
      }
    } else if (found->expert) {
      experts_[found->gguf].emplace(*found->expert, std::move(rows));
    } else {
      sources_.push_back({std::move(rows), ckpt::GgmlType::kF32});
    }
  }

  void add_stack(const std::string& name, std::map<std::int64_t, ckpt::FloatRows> matrices) {
    std::vector<ckpt::FloatRows> stack;
    for (auto& [expert, rows] : matrices) {
      const bool fits = stack.empty() || rows.shape == stack.front().shape;
      if (expert != static_cast<std::int64_t>(stack.size()) || !fits) {
        throw user_error(
            "{}: the experts' matrices that would be {} are not one for each of {}, "
            "of one shape",
            directory_.path().string(), name, matrices.size());
      }
      stack.push_back(std::move(rows));
    }
    num_experts_ = static_cast<std::int64_t>(stack.size());
    sources_.push_back({ckpt::stack_matrices(std::move(stack)), ckpt::GgmlType::kF32});
  }

  void add_rope_factors() {
    ckpt::FloatRows factors;
    factors.name = "rope_freqs.weight";
    factors.shape = {static_cast<std::int64_t>(model_.rope_factors.size())};
    factors.open = [values = model_.rope_factors]() -> ckpt::RowReader {
      return [values](std::int64_t, std::span<float> out) {
        std::copy(values.begin(), values.end(), out.begin());
      };
    };
    sources_.push_back({std::move(factors), ckpt::GgmlType::kF32});
  }

  // Types depend on which tensors there are.
  void settle_types() {
    std::int64_t layers = 0;
    bool has_output = false;
    for (const ckpt::GgufSource& source : sources_) {
      layers = std::max(layers, ckpt::gguf_layer(source.rows.name).value_or(-1) + 1);
      has_output = has_output || source.rows.name == "output.weight";
    }
    const std::string head = has_output ? "output.weight" : "token_embd.weight";
    std::vector<std::string> others;
    for (ckpt::GgufSource& source : sources_) {
      const std::string& name = source.rows.name;
      if (stays_f32(source.rows)) continue;
      const ckpt::MixedType mixed =
          ckpt::type_in_mix(mix_, {name, source.rows.width(), layers, name == head, num_experts_});
      source.type = mixed.type;
      if (mixed.instead_of) others.push_back(name);
      if (ckpt::is_k_type(mixed.type)) source.importance = importance_of(source.rows);
    }
    other_matrices_ = static_cast<std::int64_t>(others.size());
    if (others.empty()) return;
    log::warning(
        "{} matrices, first {}, have rows of no multiple of 256 elements, which {} needs: "
        "they are written as Q8_0, or as F16 where 32 does not divide the rows either",
        others.size(), others.front(), mix_.name);
  }

  // llama.cpp wants these so.
  static bool stays_f32(const ckpt::FloatRows& rows) {
    return rows.shape.size() == 1 || rows.name == "position_embd.weight" ||
           rows.name.ends_with(".ffn_gate_inp.weight") || rows.name.ends_with(".bias");
  }

  std::vector<float> importance_of(const ckpt::FloatRows& rows) {
    if (imatrix_ == nullptr) return {};
    const auto found = imatrix_->columns.find(rows.name);
    if (found == imatrix_->columns.end()) {
      // llama-imatrix leaves out embeddings and head, unless it is told otherwise.
      if (ckpt::gguf_layer(rows.name)) ++no_importance_;
      return {};
    }
    const std::int64_t columns = rows.width() * (rows.shape.size() == 3 ? rows.shape[0] : 1);
    if (found->second.size() != static_cast<std::size_t>(columns)) {
      throw user_error("{}: it has {} columns of {}, and the model {}; it is of another model",
                       imatrix_->name, found->second.size(), rows.name, columns);
    }
    return found->second;
  }

  const ckpt::HfDirectory& directory_;
  const ckpt::GgufModel& model_;
  ckpt::GgufMix mix_;
  const ckpt::Imatrix* imatrix_;
  std::vector<ckpt::GgufSource> sources_;
  std::map<std::string, std::map<std::int64_t, ckpt::FloatRows>> experts_;  // by name in GGUF
  std::int64_t num_experts_ = 0;
  std::int64_t other_matrices_ = 0;
  std::int64_t no_importance_ = 0;
};

// What llama.cpp's own quantiser writes about the matrix it was given.
void add_imatrix_fields(const ckpt::Imatrix& imatrix, ckpt::GgufFields& fields) {
  fields.emplace_back("quantize.imatrix.file", imatrix.name);
  if (!imatrix.datasets.empty()) {
    fields.emplace_back("quantize.imatrix.dataset", imatrix.datasets.front());
  }
  fields.emplace_back("quantize.imatrix.entries_count",
                      static_cast<std::uint32_t>(imatrix.columns.size()));
  if (imatrix.chunks > 0) {
    fields.emplace_back("quantize.imatrix.chunks_count",
                        static_cast<std::uint32_t>(imatrix.chunks));
  }
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

GgufExport export_gguf(const fs::path& from, const fs::path& to, const GgufExportOptions& options) {
  if (path_exists(to)) {
    throw user_error("{} is there already; name a file that is not, or remove it", to.string());
  }
  const ckpt::HfDirectory directory(from);
  const std::string origin = (from / "config.json").string();
  // Refuses what atoll does not compute.
  ckpt::GgufModel model =
      ckpt::gguf_model(nn::parse_config(directory.config_json(), origin), origin);
  const ckpt::GgufMix mix = options.mix ? *options.mix : ckpt::gguf_mix_of(source_type(directory));
  ckpt::GgufFields fields = std::move(model.fields);
  fields.insert(fields.begin() + 1, {{"general.type", std::string("model")},
                                     {"general.file_type", mix.file_type},
                                     {"general.quantization_version", std::uint32_t{2}}});
  if (options.imatrix != nullptr) add_imatrix_fields(*options.imatrix, fields);
  for (auto& field : ckpt::tokenizer_to_gguf(directory, model.shape.vocab_size)) {
    fields.push_back(std::move(field));
  }
  const Sources sources(directory, model, mix, options.imatrix);
  ThreadPool threads(available_cpus());
  ckpt::write_gguf(to, fields, sources.all(), &threads);
  return {model.context_length, model.window_cuts_context, sources.other_matrices(),
          sources.no_importance()};
}

}  // namespace atl::model_dir
