#include "atoll/model_dir/gguf_import.h"

#include <algorithm>
#include <map>

#include "atoll/base/error.h"
#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/gguf/tokenizer.h"
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

ckpt::FloatRows to_hf_order(ckpt::FloatRows rows, nn::GgufOrder order, std::int64_t head_dim) {
  switch (order) {
    case nn::GgufOrder::kTransposed:
      return ckpt::transpose_rows(std::move(rows));
    case nn::GgufOrder::kQueryRotary:
    case nn::GgufOrder::kKeyRotary:
      return ckpt::reorder_rows(
          std::move(rows), [head_dim](std::int64_t row) { return ckpt::gguf_row(row, head_dim); });
    case nn::GgufOrder::kQkvByHead: {
      const std::int64_t count = rows.shape.front();
      return ckpt::reorder_rows(std::move(rows), [count, head_dim](std::int64_t row) {
        return ckpt::gguf_qkv_row(row, count, head_dim);
      });
    }
    case nn::GgufOrder::kPlusOne:
      return ckpt::add_to_rows(std::move(rows), -1);
    case nn::GgufOrder::kSame:
      break;
  }
  return rows;
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

// A stack of experts' matrices as a tensor for each; `hf` has "*" for the number.
void add_experts(const ckpt::GgufFile& file, const ckpt::GgufTensor& tensor, const std::string& hf,
                 Dtype dtype, std::vector<ckpt::TensorSource>& sources) {
  if (tensor.shape.size() != 3) {
    throw damaged_error("{}: tensor \"{}\" has shape {}, not that of a matrix for each expert",
                        file.path().string(), tensor.name, shape_text(tensor.shape));
  }
  for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
    ckpt::FloatRows rows = ckpt::matrix_of_stack(file.rows(tensor), expert);
    rows.name = hf;
    rows.name.replace(hf.find('*'), 1, std::to_string(expert));
    sources.push_back(ckpt::to_source(std::move(rows), dtype));
  }
}

std::vector<ckpt::TensorSource> sources_of(const ckpt::GgufFile& file, Dtype dtype) {
  const ckpt::GgufShape shape = ckpt::gguf_shape(file);
  std::vector<ckpt::TensorSource> sources;
  for (const ckpt::GgufTensor& tensor : file.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // config.json says it
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
      add_experts(file, tensor, name->hf, dtype, sources);
      continue;
    }
    ckpt::FloatRows rows = to_hf_order(file.rows(tensor), name->order, shape.head_dim);
    rows.name = name->hf;
    sources.push_back(ckpt::to_source(std::move(rows), dtype));
  }
  return sources;
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

}  // namespace

void import_gguf(const std::filesystem::path& file, const std::filesystem::path& out, Dtype dtype,
                 std::uint64_t shard_bytes) {
  const ckpt::GgufFile source(file);
  const std::string config = ckpt::config_from_gguf(source, dtype);
  const std::vector<ckpt::TensorSource> tensors = sources_of(source, dtype);
  check_complete(config, tensors, file.string());
  const auto texts = ckpt::tokenizer_from_gguf(source);
  NewDirectory directory(out, "--out");
  write_file(directory.temporary() / "config.json", config);
  for (const auto& [name, content] : texts) write_file(directory.temporary() / name, content);
  ckpt::write_weights(directory.temporary(), tensors, shard_bytes);
  directory.commit();
}

}  // namespace atl::model_dir
