#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/adapter_gguf.h"
#include "atoll/model_dir/new_directory.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

// The matrices that the base model has, by name, and what shape they have as (out, in).
struct Matrix {
  std::string module;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool is_table = false;  // of tokens
};

std::map<std::string, Matrix> matrices_of(nn::Model& model) {
  std::map<std::string, Matrix> matrices;
  for (const nn::ModelTensor& tensor : nn::model_tensors(model)) {
    const Shape& shape = tensor.param->spec.shape;
    if (tensor.is_bias || shape.rank() != 2) continue;
    matrices[tensor.file.name] = {tensor.module, tensor.file.rows, shape.dim(1),
                                  tensor.kind == nn::ModuleKind::kEmbedding};
  }
  return matrices;
}

// One module's factors, as llama.cpp has them.
struct Pair {
  ckpt::FloatRows a, b;
  std::int64_t rank = 0;
};

class AdapterReader {
 public:
  AdapterReader(const ckpt::GgufFile& file, const nn::ModelConfig& base, const fs::path& base_path)
      : file_(file),
        base_(base),
        base_path_(base_path),
        form_(nn::find_family(base.family, base_path.string()).gguf),
        matrices_(matrices_of(*nn::build_model(base, {.max_positions = 1}))) {
    check_kind();
    for (const ckpt::GgufTensor& tensor : file.tensors()) add(tensor);
    if (pairs_.empty()) throw user_error("{} has no tensor that adapts one", origin());
  }

  std::vector<ckpt::TensorSource> sources(Dtype dtype) const {
    std::vector<ckpt::TensorSource> sources;
    for (const auto& [name, pair] : pairs_) {
      const Matrix& matrix = matrices_.at(name);
      const std::string at = nn::kPeftPrefix + matrix.module;
      ckpt::FloatRows a = matrix.is_table ? ckpt::transpose_rows(pair.a) : pair.a;
      ckpt::FloatRows b = pair.b;
      a.name = at + (matrix.is_table ? ".lora_embedding_A" : ".lora_A.weight");
      b.name = at + (matrix.is_table ? ".lora_embedding_B" : ".lora_B.weight");
      sources.push_back(ckpt::to_source(std::move(a), dtype));
      sources.push_back(ckpt::to_source(std::move(b), dtype));
    }
    return sources;
  }

  // What PEFT computes the same from.
  AdapterConfig config(const std::string& base) const {
    AdapterConfig config;
    config.base = base;
    config.lora.targets = targets();
    std::map<std::int64_t, std::size_t> count;  // by rank
    for (const auto& [name, pair] : pairs_) ++count[pair.rank];
    config.lora.rank = std::max_element(count.begin(), count.end(), [](auto& a, auto& b) {
                         return a.second < b.second;
                       })->first;
    // Without an alpha llama.cpp multiplies by 1.
    const double alpha = file_.number("adapter.lora.alpha", 0);
    config.lora.alpha = alpha != 0 ? alpha : static_cast<double>(config.lora.rank);
    for (const auto& [name, pair] : pairs_) {
      if (pair.rank == config.lora.rank) continue;
      const std::string& module = matrices_.at(name).module;
      config.lora.ranks.emplace_back(module, pair.rank);
      if (alpha == 0) config.lora.alphas.emplace_back(module, static_cast<double>(pair.rank));
    }
    return config;
  }

 private:
  std::string origin() const { return file_.path().string(); }

  void check_kind() const {
    const std::string type = file_.text("adapter.type", "");
    if (type != "lora") {
      throw user_error("{}: \"adapter.type\" is \"{}\", and atoll reads \"lora\" alone", origin(),
                       type);
    }
    if (file_.has("adapter.alora.invocation_tokens")) {
      throw user_error(
          "{}: \"adapter.alora.invocation_tokens\" applies the adapter from certain tokens on, "
          "which no merged weight does; use llama.cpp for it",
          origin());
    }
    const std::string architecture = file_.text("general.architecture");
    if (architecture == form_.architecture) return;
    throw user_error("{}: it adapts a model of llama.cpp's architecture {}, and {} is one of {}",
                     origin(), architecture, base_path_.string(),
                     form_.architecture[0] == '\0' ? base_.family : form_.architecture);
  }

  void add(const ckpt::GgufTensor& tensor) {
    if (tensor.name.ends_with(".lora_b")) return find(name_of(tensor, ".lora_b") + ".lora_a");
    if (tensor.name.ends_with(".lora_a")) {
      const std::string name = name_of(tensor, ".lora_a");
      const ckpt::GgufTensor* b = file_.find(name + ".lora_b");
      if (b == nullptr) find(name + ".lora_b");
      return add_pair(name, tensor, *b);
    }
    if (tensor.name.ends_with("_norm.weight")) {
      log::warning("{}: {} is passed over, as llama.cpp does", origin(), tensor.name);
      return;
    }
    throw user_error("{}: the tensor {} is no part of an adapter", origin(), tensor.name);
  }
  static std::string name_of(const ckpt::GgufTensor& tensor, std::string_view ending) {
    return tensor.name.substr(0, tensor.name.size() - ending.size());
  }
  void find(const std::string& name) const {
    if (file_.find(name) == nullptr) throw user_error("{} has no tensor {}", origin(), name);
  }

  void add_pair(const std::string& name, const ckpt::GgufTensor& a, const ckpt::GgufTensor& b) {
    const auto found = ckpt::from_gguf_name(form_, name);
    if (!found) {
      throw user_error("{}: no parameter of a {} model is called {}", origin(), form_.architecture,
                       name);
    }
    const std::size_t star = found->hf.find('*');
    if (star == std::string::npos) {
      return add_matrix(*found, found->hf, a, file_.rows(a), file_.rows(b));
    }
    const std::int64_t count = base_.experts.num_experts;
    for (const ckpt::GgufTensor* tensor : {&a, &b}) {
      if (tensor->shape.size() == 3 && tensor->shape[0] == count) continue;
      throw user_error("{}: {} has shape ({}), not that of a matrix for each of {} experts",
                       origin(), tensor->name, fmt::join(tensor->shape, ", "), count);
    }
    for (std::int64_t expert = 0; expert < count; ++expert) {
      std::string hf = found->hf;
      hf.replace(star, 1, std::to_string(expert));
      add_matrix(*found, hf, a, ckpt::matrix_of_stack(file_.rows(a), expert),
                 ckpt::matrix_of_stack(file_.rows(b), expert));
    }
  }

  void add_matrix(const ckpt::GgufName& name, const std::string& hf, const ckpt::GgufTensor& tensor,
                  ckpt::FloatRows a, ckpt::FloatRows b) {
    const auto at = matrices_.find(hf);
    if (at == matrices_.end()) {
      throw user_error("{}: {} adapts {}, which the base model {} has not", origin(), tensor.name,
                       hf, base_path_.string());
    }
    check_tied(name, tensor);
    const Matrix& matrix = at->second;
    const bool are_matrices = a.shape.size() == 2 && b.shape.size() == 2;
    const std::int64_t rank = are_matrices ? b.shape[1] : 0;
    // Of an embedding a row of A is a token's, and B is as everywhere.
    const std::vector<std::int64_t> want_a =
        matrix.is_table ? std::vector{matrix.rows, rank} : std::vector{rank, matrix.columns};
    const std::int64_t want_b = matrix.is_table ? matrix.columns : matrix.rows;
    if (!are_matrices || a.shape != want_a || b.shape[0] != want_b) {
      throw user_error(
          "{}: {} and its lora_b have shapes ({}) and ({}), and {} of the base model {} is ({}, "
          "{}); it adapts another model",
          origin(), tensor.name, fmt::join(a.shape, ", "), fmt::join(b.shape, ", "), hf,
          base_path_.string(), matrix.rows, matrix.columns);
    }
    if (name.order == nn::GgufOrder::kQueryRotary || name.order == nn::GgufOrder::kKeyRotary) {
      b = ckpt::reorder_rows(std::move(b), [head_dim = base_.heads.head_dim](std::int64_t row) {
        return ckpt::gguf_row(row, head_dim);
      });
    } else if (name.order == nn::GgufOrder::kQkvByHead) {
      b = ckpt::reorder_rows(
          std::move(b), [rows = matrix.rows, head_dim = base_.heads.head_dim](std::int64_t row) {
            return ckpt::gguf_qkv_row(row, rows, head_dim);
          });
    }
    pairs_.emplace(hf, Pair{std::move(a), std::move(b), rank});
  }

  void check_tied(const ckpt::GgufName& name, const ckpt::GgufTensor& tensor) const {
    if (!base_.tie_embeddings || name.gguf != "token_embd.weight") return;
    throw user_error(
        "{}: {} adapts the embedding, which the base model {} ties to its head: llama.cpp has no "
        "adapter for both, and PEFT unties them",
        origin(), tensor.name, base_path_.string());
  }

  // Last names where all modules of that name are adapted, else whole names.
  std::vector<std::string> targets() const {
    const auto last = [](const std::string& module) {
      return module.substr(module.rfind('.') + 1);
    };
    std::set<std::string> partly;
    for (const auto& [name, matrix] : matrices_) {
      if (!pairs_.contains(name)) partly.insert(last(matrix.module));
    }
    std::set<std::string> targets;
    for (const auto& [name, pair] : pairs_) {
      const std::string& module = matrices_.at(name).module;
      targets.insert(partly.contains(last(module)) ? module : last(module));
    }
    return {targets.begin(), targets.end()};
  }

  const ckpt::GgufFile& file_;
  const nn::ModelConfig& base_;
  const fs::path& base_path_;
  const nn::GgufForm& form_;
  std::map<std::string, Matrix> matrices_;
  std::map<std::string, Pair> pairs_;  // by the tensor that they adapt
};

}  // namespace

bool is_gguf_adapter(const fs::path& file) {
  return ckpt::GgufFile(file).text("general.type", "") == "adapter";
}

void import_adapter_gguf(const fs::path& file, const fs::path& base, const fs::path& out,
                         Dtype dtype) {
  const ckpt::GgufFile source(file);
  const std::string config_path = (base / "config.json").string();
  const nn::ModelConfig config = nn::parse_config(read_file(config_path), config_path);
  const AdapterReader reader(source, config, base);
  NewDirectory directory(out, "--out");
  write_file(directory.temporary() / kAdapterConfigFile,
             adapter_config_json(reader.config(fs::absolute(base).string()), config));
  ckpt::write_safetensors(directory.temporary() / kAdapterWeightsFile, reader.sources(dtype),
                          {{"format", "pt"}});
  directory.commit();
}

}  // namespace atl::model_dir
