#include "atoll/ckpt/model_files.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "atoll/base/error.h"

namespace atl::ckpt {

namespace {

// The rows of `tensor` that `part` names: (rows, in), or (rows) for a vector.
Tensor rows_of(const nn::FileTensor& part, const Tensor& tensor) {
  return tensor.rows(part.row_begin, part.row_begin + part.rows);
}

Spec file_spec(const nn::FileTensor& part, const Tensor& tensor) {
  const Spec spec = rows_of(part, tensor).spec();
  if (!part.transposed) return spec;
  return {spec.dtype, {spec.shape.dim(1), spec.shape.dim(0)}};
}

// (rows, in) in memory to (in, rows) in the sink, a band of file rows at a time: a band's strided
// reads then use every byte of the cache lines they touch.
void write_transposed(const Tensor& tensor, const ByteSink& sink) {
  constexpr std::int64_t kBand = 16;
  const std::int64_t rows = tensor.dim(0);
  const std::int64_t in = tensor.dim(1);
  const float* data = tensor.data<float>();
  std::vector<float> band(static_cast<std::size_t>(kBand * rows));
  for (std::int64_t begin = 0; begin < in; begin += kBand) {
    const std::int64_t width = std::min(kBand, in - begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        band[static_cast<std::size_t>(i * rows + r)] = data[r * in + begin + i];
      }
    }
    sink(band.data(), static_cast<std::size_t>(width * rows) * sizeof(float));
  }
}

void transpose_into(const std::vector<float>& file, const Tensor& tensor) {
  const std::int64_t rows = tensor.dim(0);
  const std::int64_t in = tensor.dim(1);
  float* data = tensor.data<float>();
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t r = 0; r < rows; ++r) {
      data[r * in + i] = file[static_cast<std::size_t>(i * rows + r)];
    }
  }
}

void read_part(const SafetensorsFile& file, const std::string& name, const nn::FileTensor& part,
               const Tensor& tensor) {
  const Tensor rows = rows_of(part, tensor);
  if (!part.transposed) {
    file.read_f32(name, rows);
    return;
  }
  std::vector<float> transposed(static_cast<std::size_t>(rows.num_elements()));
  file.read_f32(name, Tensor(transposed.data(), file_spec(part, tensor)));
  transpose_into(transposed, rows);
}

// "transformer.wte.weight" -> "wte.weight": what a base model without its head writes.
std::string without_first_part(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

// Buffers that older versions of transformers wrote among the parameters.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

bool same_values(const HfDirectory& directory, const std::string& a, const std::string& b) {
  if (directory.spec(a) != directory.spec(b)) return false;
  const auto left = directory.file_of(a).bytes(a);
  const auto right = directory.file_of(b).bytes(b);
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

std::string embedding_name(std::span<const ParamTensor> params) {
  return params.empty() ? "" : params.front().param->files.front().name;
}

}  // namespace

std::vector<TensorSource> file_sources(std::span<const ParamTensor> params,
                                       std::string_view prefix) {
  std::vector<TensorSource> sources;
  for (const ParamTensor& held : params) {
    for (const nn::FileTensor& part : held.param->files) {
      const Tensor rows = rows_of(part, held.tensor);
      sources.push_back({std::string(prefix) + part.name, file_spec(part, held.tensor),
                         [rows, transposed = part.transposed](const ByteSink& sink) {
                           if (transposed) {
                             write_transposed(rows, sink);
                           } else {
                             sink(rows.raw(), rows.bytes());
                           }
                         }});
    }
  }
  return sources;
}

void read_params(const SafetensorsFile& file, std::span<const ParamTensor> params,
                 std::string_view prefix) {
  for (const ParamTensor& held : params) {
    for (const nn::FileTensor& part : held.param->files) {
      read_part(file, std::string(prefix) + part.name, part, held.tensor);
    }
  }
}

void read_params(const HfDirectory& directory, std::span<const ParamTensor> params) {
  std::set<std::string> used;
  for (const ParamTensor& held : params) {
    for (const nn::FileTensor& part : held.param->files) {
      std::string name = part.name;
      if (!directory.contains(name) && directory.contains(without_first_part(name))) {
        name = without_first_part(name);
      }
      read_part(directory.file_of(name), name, part, held.tensor);
      used.insert(name);
    }
  }
  for (const std::string& name : directory.tensor_names()) {
    if (used.contains(name) || is_buffer(name)) continue;
    if (name == "lm_head.weight") {
      const std::string table = embedding_name(params);
      const std::string found = used.contains(table) ? table : without_first_part(table);
      if (same_values(directory, name, found)) continue;
      throw user_error(
          "{}: config.json ties the head to the embedding, but lm_head.weight differs from {}; set "
          "\"tie_word_embeddings\": false",
          directory.path().string(), found);
    }
    throw user_error(
        "{}: no parameter of this model is called {}; config.json and the weights do "
        "not belong together",
        directory.path().string(), name);
  }
}

}  // namespace atl::ckpt
