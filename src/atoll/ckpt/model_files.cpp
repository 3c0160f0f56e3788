#include "atoll/ckpt/model_files.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/ckpt/hf/further_blocks.h"
#include "atoll/ckpt/hf/stacked_experts.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/nn/models/model_tensors.h"
#include "atoll/tensor/host_access.h"

namespace atl::ckpt {

namespace {

// The rows of `tensor` that `part` names: (rows, in), or (rows) for a vector.
Tensor rows_of(const nn::FileTensor& part, const Tensor& tensor) {
  return tensor.rows(part.row_begin, part.row_begin + part.rows);
}

Spec file_spec(const nn::FileTensor& part, const Tensor& tensor, Dtype dtype) {
  const Shape shape = rows_of(part, tensor).shape();
  if (!part.transposed) return {dtype, shape};
  return {dtype, {shape.dim(1), shape.dim(0)}};
}

// (rows, in) to (in, rows) of elements of `kSize` bytes; `stride` and `to_stride` elements lie
// between the beginnings of their rows.
template <std::size_t kSize>
void transpose(const std::byte* from, std::int64_t rows, std::int64_t in, std::int64_t stride,
               std::byte* to, std::int64_t to_stride) {
  constexpr auto kStep = static_cast<std::int64_t>(kSize);
  constexpr std::int64_t kTile = 16;  // of f32 a cache line: each is read, and written, once
  for (std::int64_t row = 0; row < rows; row += kTile) {
    const std::int64_t last = std::min(row + kTile, rows);
    for (std::int64_t column = 0; column < in; column += kTile) {
      for (std::int64_t i = column; i < std::min(column + kTile, in); ++i) {
        for (std::int64_t r = row; r < last; ++r) {
          std::memcpy(to + (i * to_stride + r) * kStep, from + (r * stride + i) * kStep, kSize);
        }
      }
    }
  }
}

void transpose(Dtype dtype, const std::byte* from, std::int64_t rows, std::int64_t in,
               std::int64_t stride, std::byte* to, std::int64_t to_stride) {
  switch (dtype_size(dtype)) {
    case 2:
      return transpose<2>(from, rows, in, stride, to, to_stride);
    case 4:
      return transpose<4>(from, rows, in, stride, to, to_stride);
    case 8:
      return transpose<8>(from, rows, in, stride, to, to_stride);
    default:
      ATOLL_CHECK(false, "parameters are floats, not {}", dtype_name(dtype));
  }
}

// Gives elements to the sink in another dtype, a piece at a time.
void write_as(Dtype from, std::span<const std::byte> in, Dtype to, const std::string& name,
              const ByteSink& sink) {
  if (from == to) {
    if (!in.empty()) sink(in.data(), in.size());
    return;
  }
  constexpr std::size_t kPiece = 4096;
  std::array<float, kPiece> values;
  std::array<std::byte, kPiece * sizeof(double)> bytes;
  const std::size_t count = in.size() / dtype_size(from);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::span<float> piece(values.data(), std::min(kPiece, count - begin));
    convert_to_f32(from, in.subspan(begin * dtype_size(from), piece.size() * dtype_size(from)),
                   piece);
    check_fits(piece, to, name);
    const std::span<std::byte> out(bytes.data(), piece.size() * dtype_size(to));
    convert_from_f32(piece, to, out);
    sink(out.data(), out.size());
  }
}

// (rows, in) in memory to (in, rows) in the sink, a band of file rows at a time: a band's strided
// reads then use every byte of the cache lines they touch.
void write_transposed(const Tensor& tensor, Dtype to, const std::string& name,
                      const ByteSink& sink) {
  constexpr std::int64_t kBand = 16;
  const std::int64_t rows = tensor.dim(0);
  const std::int64_t in = tensor.dim(1);
  const std::size_t size = dtype_size(tensor.dtype());
  const HostRead read(tensor);
  std::vector<std::byte> band(static_cast<std::size_t>(kBand * rows) * size);
  for (std::int64_t begin = 0; begin < in; begin += kBand) {
    const std::int64_t width = std::min(kBand, in - begin);
    transpose(tensor.dtype(), read.bytes().data() + static_cast<std::size_t>(begin) * size, rows,
              width, in, band.data(), rows);
    const std::size_t bytes = static_cast<std::size_t>(width * rows) * size;
    write_as(tensor.dtype(), std::span(band).first(bytes), to, name, sink);
  }
}

// (in, width) in the file, of dtype `from`, to `out`, (width, in) of dtype `to`.
void read_transposed(const SafetensorsFile& file, const std::string& name, Dtype from, Dtype to,
                     std::int64_t width, std::int64_t in, std::byte* out) {
  const std::span<const std::byte> bytes = file.bytes(name);
  // Straight from the mapped file where nothing is to be converted.
  if (from == to) return transpose(to, bytes.data(), in, width, width, out, in);
  constexpr std::int64_t kBand = 16;
  std::vector<std::byte> band(static_cast<std::size_t>(kBand * width) * dtype_size(to));
  for (std::int64_t begin = 0; begin < in; begin += kBand) {
    const std::int64_t height = std::min(kBand, in - begin);
    const auto count = static_cast<std::size_t>(height * width);
    const auto at = static_cast<std::size_t>(begin * width) * dtype_size(from);
    convert_floats(from, bytes.subspan(at, count * dtype_size(from)), to,
                   std::span(band).first(count * dtype_size(to)), name);
    transpose(to, band.data(), height, width, width,
              out + static_cast<std::size_t>(begin) * dtype_size(to), in);
  }
}

void read_part(const SafetensorsFile& file, const std::string& name, const nn::FileTensor& part,
               const Tensor& tensor) {
  const Tensor rows = rows_of(part, tensor);
  if (!file.contains(name)) {
    // A name that no file has is an error of read_floats.
    if (const auto stacked = stacked_expert(name)) return read_stacked(file, *stacked, rows);
  }
  if (!part.transposed) {
    file.read_floats(name, rows);
    return;
  }
  const Dtype to = rows.dtype();
  const Dtype from = file.check_floats(name, file_spec(part, tensor, to).shape);
  write_on_host<std::byte>(rows, [&](std::span<std::byte> out) {
    read_transposed(file, name, from, to, rows.dim(0), rows.dim(1), out.data());
  });
}

// Quantised weights are (out, in), also those that transformers has as (in, out).
void check_stored(const HfDirectory& directory, const std::string& name, const StoredMatrix& stored,
                  const nn::FileTensor& part, std::int64_t in) {
  const Shape shape = {part.rows, in};
  if (stored.shape == shape) return;
  throw user_error("{}: \"{}\" has shape {}, and the model needs {}", directory.path().string(),
                   name, stored.shape.to_string(), shape.to_string());
}

void read_widened(const HfDirectory& directory, const std::string& name, const StoredMatrix& stored,
                  const nn::FileTensor& part, const Tensor& tensor) {
  const Tensor rows = rows_of(part, tensor);
  check_stored(directory, name, stored, part, rows.dim(1));
  if (rows.dtype() == Dtype::kF32) {
    return write_on_host<float>(rows, [&](std::span<float> out) { widen_stored(stored, out); });
  }
  std::vector<float> wide(static_cast<std::size_t>(rows.num_elements()));
  widen_stored(stored, wide);
  check_fits(wide, rows.dtype(), name);
  write_on_host<std::byte>(
      rows, [&](std::span<std::byte> out) { convert_from_f32(wide, rows.dtype(), out); });
}

// "transformer.wte.weight" -> "wte.weight": what a base model without its head writes.
std::string without_first_part(const std::string& name) {
  return name.substr(name.find('.') + 1);
}

bool same_values(const HfDirectory& directory, const std::string& a, const std::string& b) {
  if (directory.spec(a) != directory.spec(b)) return false;
  const auto left = directory.file_of(a).bytes(a);
  const auto right = directory.file_of(b).bytes(b);
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

}  // namespace

bool is_buffer(std::string_view name) {
  for (const std::string_view end : {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                     ".attention.masked_bias", "rotary_emb.inv_freq"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

std::vector<TensorSource> file_sources(std::span<const ParamTensor> params, std::string_view prefix,
                                       const FileDtypes& dtypes) {
  std::vector<TensorSource> sources;
  for (const ParamTensor& held : params) {
    // Ranks that have some of the experts, and files of optimizer state, keep them one by one.
    const bool is_whole = prefix.empty() && held.param->cut == nullptr;
    if (is_whole && !held.param->files.empty()) {
      const auto chosen = dtypes.find(held.param->files.front().name);
      const Dtype dtype = chosen == dtypes.end() ? held.tensor.dtype() : chosen->second;
      if (auto stack = stacked_source(*held.param, held.tensor, dtype)) {
        sources.push_back(std::move(*stack));
        continue;
      }
    }
    for (const nn::FileTensor& part : held.param->files) {
      const Tensor rows = rows_of(part, held.tensor);
      const auto chosen = dtypes.find(part.name);
      const Dtype dtype = chosen == dtypes.end() ? rows.dtype() : chosen->second;
      const std::string name = std::string(prefix) + part.name;
      sources.push_back({name, file_spec(part, held.tensor, dtype),
                         [rows, dtype, name, transposed = part.transposed](const ByteSink& sink) {
                           if (transposed) {
                             write_transposed(rows, dtype, name, sink);
                           } else {
                             const HostRead read(rows);
                             write_as(rows.dtype(), read.bytes(), dtype, name, sink);
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

void read_param(const SafetensorsSet& files, const ParamTensor& param, std::string_view prefix) {
  for (const nn::FileTensor& part : param.param->files) {
    const std::string name = std::string(prefix) + part.name;
    const auto stacked = stacked_expert(name);
    const bool is_in_stack = !files.contains(name) && stacked;
    read_part(files.file_of(is_in_stack ? stacked->tensor : name), name, part, param.tensor);
  }
}

DirectoryParams::DirectoryParams(const HfDirectory& directory,
                                 std::span<const nn::Param* const> params)
    : directory_(directory), quantised_(directory) {
  const FileDtypes source = widened_dtypes(directory);
  for (const nn::Param* param : params) {
    for (const nn::FileTensor& part : nn::whole_param(*param).files) use(part, source);
  }
  refuse_others(params.empty() ? "" : params.front()->files.front().name);
}

void DirectoryParams::use(const nn::FileTensor& part, const FileDtypes& source) {
  const std::string name = name_of(part);
  if (const StoredMatrix* stored = quantised_.find(name)) {
    used_.insert(stored->tensors.begin(), stored->tensors.end());
  } else {
    directory_.file_of(holder_of(name));  // it is there
    used_.insert(holder_of(name));
  }
  const auto dtype = source.find(quantised_.find(name) != nullptr ? name : holder_of(name));
  if (dtype != source.end()) dtypes_[part.name] = dtype->second;
}

bool DirectoryParams::contains(const std::string& name) const {
  return directory_.contains(holder_of(name)) || quantised_.find(name) != nullptr;
}

std::string DirectoryParams::holder_of(const std::string& name) const {
  const auto stacked = stacked_expert(name);
  return !directory_.contains(name) && stacked ? stacked->tensor : name;
}

std::string DirectoryParams::name_of(const nn::FileTensor& part) const {
  const std::string base = without_first_part(part.name);
  return !contains(part.name) && contains(base) ? base : part.name;
}

void DirectoryParams::refuse_others(const std::string& embedding) const {
  const FurtherBlocks further(directory_);
  for (const std::string& name : directory_.tensor_names()) {
    if (used_.contains(name) || is_buffer(name) || further.has(name)) continue;
    if (nn::is_head_weight(name)) {
      const std::string found =
          used_.contains(embedding) ? embedding : without_first_part(embedding);
      if (same_values(directory_, name, found)) continue;
      throw user_error(
          "{}: config.json ties the head to the embedding, but {} differs from {}; set "
          "\"tie_word_embeddings\": false",
          directory_.path().string(), name, found);
    }
    throw user_error(
        "{}: no parameter of this model is called {}; config.json and the weights do "
        "not belong together",
        directory_.path().string(), name);
  }
}

void DirectoryParams::read(const ParamTensor& param) const {
  for (const nn::FileTensor& part : param.param->files) {
    const std::string name = name_of(part);
    if (const StoredMatrix* stored = quantised_.find(name)) {
      read_widened(directory_, name, *stored, part, param.tensor);
    } else {
      read_part(directory_.file_of(holder_of(name)), name, part, param.tensor);
    }
  }
}

void DirectoryParams::read_packed(const nn::Param& param) const {
  ATOLL_CHECK_EQ(param.packed.parts.size(), param.files.size());
  for (std::size_t i = 0; i < param.files.size(); ++i) {
    const nn::FileTensor& part = param.files[i];
    const std::string name = name_of(part);
    const StoredMatrix* quantised = quantised_.find(name);
    const StoredMatrix stored = quantised != nullptr ? *quantised : stored_floats(directory_, name);
    check_stored(directory_, name, stored, part, param.spec.shape.dim(1));
    ATOLL_CHECK_EQ(param.packed.parts[i].format->bytes(), stored.format->bytes());
    stored.fill(param.packed.data_of(param.packed.parts[i]));
  }
}

FileDtypes read_params(const HfDirectory& directory, std::span<const ParamTensor> params) {
  std::vector<const nn::Param*> all;
  for (const ParamTensor& held : params) all.push_back(held.param);
  const DirectoryParams found(directory, all);
  for (const ParamTensor& held : params) found.read(held);
  return found.dtypes();
}

}  // namespace atl::ckpt
