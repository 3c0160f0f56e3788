#include "atoll/model_dir/gguf_import.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/ckpt/hf/stacked_experts.h"
#include "atoll/model_dir/gguf_latent.h"
#include "atoll/model_dir/new_directory.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

namespace {

// Gathers what files hold of a model: each tensor's name and shape.
class FileShapes final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    for (const nn::FileTensor& part : param.files) {
      std::vector<std::int64_t> shape = {part.rows};
      if (param.spec.shape.rank() > 1) shape.push_back(param.spec.shape.dim(1));
      if (part.transposed) std::swap(shape[0], shape[1]);
      shapes[part.name] = shape;
    }
  }
  std::map<std::string, std::vector<std::int64_t>> shapes;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// Which row of a tensor of the file each of its rows in a directory is, where their order depends
// on heads; empty where it is the same.
std::function<std::int64_t(std::int64_t row)> rows_in_file(nn::GgufOrder order, std::int64_t count,
                                                           std::int64_t head_dim) {
  switch (order) {
    case nn::GgufOrder::kQueryRotary:
    case nn::GgufOrder::kKeyRotary:
      return [head_dim](std::int64_t row) { return ckpt::gguf_row(row, head_dim); };
    case nn::GgufOrder::kQkvByHead:
      return
          [count, head_dim](std::int64_t row) { return ckpt::gguf_qkv_row(row, count, head_dim); };
    default:
      return {};
  }
}

ckpt::FloatRows to_hf_order(ckpt::FloatRows rows, nn::GgufOrder order, std::int64_t head_dim) {
  switch (order) {
    case nn::GgufOrder::kTransposed:
      return ckpt::transpose_rows(std::move(rows));
    case nn::GgufOrder::kQueryRotary:
    case nn::GgufOrder::kKeyRotary:
    case nn::GgufOrder::kQkvByHead: {
      auto from = rows_in_file(order, rows.shape.front(), head_dim);
      return ckpt::reorder_rows(std::move(rows), std::move(from));
    }
    case nn::GgufOrder::kPlusOne:
      return ckpt::add_to_rows(std::move(rows), -1);
    case nn::GgufOrder::kSame:
    case nn::GgufOrder::kWholeName:
      break;
  }
  return rows;
}

// A matrix in blocks of integers, whose rows are written as they lie in the file.
struct Blocks {
  std::string name;
  ckpt::GgmlType type = ckpt::GgmlType::kF32;
  std::int64_t rows = 0, columns = 0;
  std::span<const std::byte> bytes;
  std::function<std::int64_t(std::int64_t row)> from =
      {};  // which row of the file; empty: the same
};

// What of a GGUF file goes into a directory.
struct Imported {
  std::vector<ckpt::TensorSource> floats;  // all of it, widened while it is written
  std::vector<Blocks> blocks;              // of these, what can stay as it is
};

Dtype float_dtype(const ckpt::GgufTensor& tensor, std::optional<Dtype> wanted) {
  return wanted.value_or(ckpt::plain_dtype(tensor.type).value_or(Dtype::kF32));
}

void add_blocks(const ckpt::GgufTensor& tensor, Blocks blocks, Imported& imported) {
  if (ckpt::plain_dtype(tensor.type)) return;
  blocks.type = tensor.type;
  blocks.columns = tensor.shape.back();
  blocks.rows = tensor.shape[tensor.shape.size() - 2];
  imported.blocks.push_back(std::move(blocks));
}

ckpt::TensorSource to_source(const Blocks& blocks) {
  const std::size_t row_bytes = ckpt::ggml_row_bytes(blocks.type, blocks.columns);
  const Shape shape = {blocks.rows, static_cast<std::int64_t>(row_bytes)};
  return {blocks.name, {Dtype::kU8, shape}, [blocks, row_bytes](const ckpt::ByteSink& sink) {
            for (std::int64_t row = 0; row < blocks.rows; ++row) {
              const auto from = static_cast<std::size_t>(blocks.from ? blocks.from(row) : row);
              sink(blocks.bytes.data() + from * row_bytes, row_bytes);
            }
          }};
}

// How many rows a tensor has for each head, where their order depends on heads; 1 where not.
std::int64_t rows_of_a_head(nn::GgufOrder order, std::int64_t head_dim) {
  switch (order) {
    case nn::GgufOrder::kQueryRotary:
    case nn::GgufOrder::kKeyRotary:
      return head_dim;
    case nn::GgufOrder::kQkvByHead:
      return 3 * head_dim;
    default:
      return 1;
  }
}

// Row `index` of a stack of vectors (count, n).
ckpt::FloatRows vector_of_stack(ckpt::FloatRows stack, std::int64_t index) {
  stack.shape.erase(stack.shape.begin());
  stack.open = [open = std::move(stack.open), index]() -> ckpt::RowReader {
    return [read = open(), index](std::int64_t, std::span<float> out) { read(index, out); };
  };
  return stack;
}

// A stack of experts' matrices as a tensor for each; `hf` has "*" for the number.
void add_experts(const ckpt::GgufFile& file, const ckpt::GgufTensor& tensor, const std::string& hf,
                 std::optional<Dtype> dtype, Imported& imported) {
  const bool is_bias = hf.ends_with(".bias");
  if (tensor.shape.size() != (is_bias ? 2 : 3)) {
    throw damaged_error("{}: tensor \"{}\" has shape {}, not that of a matrix for each expert",
                        file.path().string(), tensor.name, shape_text(tensor.shape));
  }
  for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    ckpt::FloatRows rows = is_bias ? vector_of_stack(file.rows(tensor), expert)
                                   : ckpt::matrix_of_stack(file.rows(tensor), expert);
    rows.name = hf;
    rows.name.replace(hf.find('*'), 1, std::to_string(expert));
    if (is_bias) {
      imported.floats.push_back(ckpt::to_source(std::move(rows), float_dtype(tensor, dtype)));
      continue;
    }
    const auto bytes = file.bytes(tensor);
    const std::size_t size = bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
    add_blocks(
        tensor,
        {.name = rows.name, .bytes = bytes.subspan(static_cast<std::size_t>(expert) * size, size)},
        imported);
    imported.floats.push_back(ckpt::to_source(std::move(rows), float_dtype(tensor, dtype)));
  }
}

bool is_key_of_latent(const ckpt::GgufShape& shape, std::string_view name) {
  return nn::has_latent(*shape.form) && name.ends_with(".attn_k_b.weight");
}
bool is_value_of_latent(const ckpt::GgufShape& shape, std::string_view name) {
  return nn::has_latent(*shape.form) && name.ends_with(".attn_v_b.weight");
}

// Both products of a latent vector as the one that Hugging Face's files have, widened to floats.
void add_key_value(const ckpt::GgufFile& file, const ckpt::GgufTensor& keys,
                   std::optional<Dtype> dtype, Imported& imported) {
  const std::string block = keys.name.substr(0, keys.name.rfind(".attn_k_b"));
  const std::string name = block + ".attn_kv_b.weight";
  if (file.find(name) != nullptr) return;  // some files have both forms
  const ckpt::GgufTensor* values = file.find(block + ".attn_v_b.weight");
  if (values == nullptr) {
    throw damaged_error("{}: there is {} and no {}.attn_v_b.weight", file.path().string(),
                        keys.name, block);
  }
  const auto joined = ckpt::from_gguf_name(*ckpt::gguf_shape(file).form, name);
  if (!joined) {
    throw user_error("{}: no parameter of a DeepSeek model is called {}", file.path().string(),
                     keys.name);
  }
  ckpt::FloatRows rows = join_key_value(file.rows(keys), file.rows(*values));
  rows.name = joined->hf;
  imported.floats.push_back(ckpt::to_source(std::move(rows), float_dtype(keys, dtype)));
}

Imported sources_of(const ckpt::GgufFile& file, std::optional<Dtype> dtype) {
  const ckpt::GgufShape shape = ckpt::gguf_shape(file);
  Imported imported;
  for (const ckpt::GgufTensor& tensor : file.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // config.json says it
    if (is_key_of_latent(shape, tensor.name)) {
      add_key_value(file, tensor, dtype, imported);
      continue;
    }
    if (is_value_of_latent(shape, tensor.name)) continue;  // with the keys
    const auto name = ckpt::from_gguf_name(*shape.form, tensor.name);
    if (!name) {
      throw user_error("{}: no parameter of a {} model is called {}", file.path().string(),
                       shape.form->architecture, tensor.name);
    }
    if (name->order == nn::GgufOrder::kTransposed && tensor.shape.size() != 2) {
      throw damaged_error("{}: tensor \"{}\" has shape {}, not that of a matrix",
                          file.path().string(), tensor.name, shape_text(tensor.shape));
    }
    if (tensor.shape.front() % rows_of_a_head(name->order, shape.head_dim) != 0) {
      throw damaged_error("{}: tensor \"{}\" has {} rows, not whole heads of {}",
                          file.path().string(), tensor.name, tensor.shape.front(), shape.head_dim);
    }
    if (name->hf.find('*') != std::string::npos) {
      add_experts(file, tensor, name->hf, dtype, imported);
      continue;
    }
    ckpt::FloatRows rows = to_hf_order(file.rows(tensor), name->order, shape.head_dim);
    rows.name = name->hf;
    const bool keeps_rows =
        name->order != nn::GgufOrder::kPlusOne && name->order != nn::GgufOrder::kTransposed;
    if (tensor.shape.size() == 2 && keeps_rows) {
      Blocks blocks = {.name = name->hf, .bytes = file.bytes(tensor)};
      blocks.from = rows_in_file(name->order, tensor.shape.front(), shape.head_dim);
      add_blocks(tensor, std::move(blocks), imported);
    }
    imported.floats.push_back(ckpt::to_source(std::move(rows), float_dtype(tensor, dtype)));
  }
  return imported;
}

// That these are the tensors of the model that config.json describes, no more and no less.
void check_complete(const std::string& config_json, std::span<const ckpt::TensorSource> sources,
                    const std::string& origin) {
  const nn::ModelConfig config = nn::parse_config(config_json, origin);
  // Before a model is built that the file has nothing of: a number is cheap to write.
  const std::int64_t experts = std::max(config.experts.num_experts, std::int64_t{1});
  if (config.num_layers * experts > static_cast<std::int64_t>(sources.size())) {
    throw user_error("{} has {} tensors, too few for a model of {} layers{}", origin,
                     sources.size(), config.num_layers,
                     experts > 1 ? fmt::format(" of {} experts", experts) : "");
  }
  FileShapes model;
  nn::build_model(config, {.max_positions = 1})->visit(model);
  std::map<std::string, std::string> found;
  for (const ckpt::TensorSource& source : sources)
    found[source.name] = source.spec.shape.to_string();
  for (const auto& [name, shape] : model.shapes) {
    const auto there = found.find(name);
    if (there == found.end()) throw user_error("{} has no tensor for {}", origin, name);
    if (there->second != shape_text(shape)) {
      throw user_error("{}: the tensor for {} has shape {}, and the model needs {}", origin, name,
                       there->second, shape_text(shape));
    }
    found.erase(there);
  }
  if (!found.empty()) {
    throw user_error("{}: no parameter of this model is called {}", origin, found.begin()->first);
  }
}

// Writes blocks in the place of the floats that they mean, and says so in config.json.
void keep_blocks(Imported& imported, std::string& config) {
  if (imported.blocks.empty()) return;
  auto json = parse_ordered_json(config, "config.json");
  nlohmann::ordered_json& tensors = json["quantization_config"]["tensors"];
  std::map<std::string, const Blocks*> kept;
  for (const Blocks& blocks : imported.blocks) kept[blocks.name] = &blocks;
  for (ckpt::TensorSource& source : imported.floats) {
    const auto blocks = kept.find(source.name);
    if (blocks == kept.end()) continue;
    source = to_source(*blocks->second);
    tensors[source.name] = {{"type", ckpt::ggml_layout(blocks->second->type).name},
                            {"shape", {blocks->second->rows, blocks->second->columns}}};
  }
  json["quantization_config"]["quant_method"] = "gguf";
  config = json.dump(2) + "\n";
}

}  // namespace

void import_gguf(const std::filesystem::path& file, const std::filesystem::path& out,
                 std::optional<Dtype> dtype, std::uint64_t shard_bytes) {
  const ckpt::GgufFile source(file);
  std::string config = ckpt::config_from_gguf(source, dtype.value_or(Dtype::kF32));
  Imported imported = sources_of(source, dtype);
  const std::vector<ckpt::TensorSource>& tensors = imported.floats;
  check_complete(config, tensors, file.string());
  if (!dtype) keep_blocks(imported, config);
  // Of families whose files in Hugging Face's form stack them.
  if (dtype || imported.blocks.empty())
    imported.floats = ckpt::stack_experts(std::move(imported.floats));
  const auto texts = ckpt::tokenizer_from_gguf(source);
  NewDirectory directory(out, "--out");
  write_file(directory.temporary() / "config.json", config);
  for (const auto& [name, content] : texts) write_file(directory.temporary() / name, content);
  ckpt::write_weights(directory.temporary(), tensors, shard_bytes);
  directory.commit();
}

}  // namespace atl::model_dir
