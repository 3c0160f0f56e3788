// GPTQ (Frantar et al. 2022) and AWQ (Lin et al. 2023): w = s (q - z) for groups of inputs, q of 4
// or 8 bits, s in 16. Files have them as (in, out), so that a GPU's kernels read columns; memory
// here has (out, in), as products read rows.

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/quantised/methods.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/tensor/arena.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::json;

struct AffineShape {
  std::string name;
  std::int64_t rows = 0, columns = 0;  // out, in
  std::int64_t bits = 4;
  std::int64_t groups = 0;
  Dtype dtype = Dtype::kF16;                // of the scales, which products are rounded to
  std::vector<std::int32_t> group_of = {};  // of each column

  std::size_t row_bytes() const { return static_cast<std::size_t>(columns * bits / 8); }
};

// [q: rows of columns, of 4 bits the first in the low ones][z: u8 (rows, groups)][s: 16 bits
// (rows, groups)]
class AffineFormat final : public ops::PackedFormat {
 public:
  explicit AffineFormat(AffineShape shape) : shape_(std::move(shape)) {}

  const AffineShape& shape() const { return shape_; }
  std::string_view name() const override { return shape_.name; }
  std::size_t zeros_at() const {
    return align_up(static_cast<std::size_t>(shape_.rows) * shape_.row_bytes());
  }
  std::size_t scales_at() const {
    return zeros_at() + align_up(static_cast<std::size_t>(shape_.rows * shape_.groups));
  }
  std::size_t bytes() const override {
    return scales_at() +
           static_cast<std::size_t>(shape_.rows * shape_.groups) * dtype_size(shape_.dtype);
  }

  // s (q - z) is exact in f32, and rounded once, as torch computes in 16 bits.
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    const bool is_narrow = shape_.bits == 4;
    std::vector<float> scales(static_cast<std::size_t>(shape_.groups));
    const auto* zeros = reinterpret_cast<const std::uint8_t*>(packed + zeros_at());
    const std::size_t scale_bytes = scales.size() * dtype_size(shape_.dtype);
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* codes = reinterpret_cast<const std::uint8_t*>(packed) +
                          static_cast<std::size_t>(row) * shape_.row_bytes();
      const std::uint8_t* zero = zeros + row * shape_.groups;
      convert_to_f32(
          shape_.dtype,
          {packed + scales_at() + static_cast<std::size_t>(row) * scale_bytes, scale_bytes},
          scales);
      for (std::int64_t i = 0; i < shape_.columns; ++i) {
        const int q = is_narrow ? (codes[i / 2] >> (4 * (i % 2))) & 15 : codes[i];
        const std::int32_t group = shape_.group_of[static_cast<std::size_t>(i)];
        const int difference = q - zero[group];
        *out++ = rounded_to(
            shape_.dtype, scales[static_cast<std::size_t>(group)] * static_cast<float>(difference));
      }
    }
  }

 private:
  AffineShape shape_;
};

std::uint32_t word_at(std::span<const std::byte> bytes, std::int64_t i) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + static_cast<std::size_t>(i) * sizeof(word), sizeof(word));
  return word;
}

// What the files of one weight hold. Words are of 32 bits.
struct AffineTensors {
  std::span<const std::byte> codes, zeros, scales;
  // Of GPTQ: words run down the inputs; of AWQ along the outputs, whose order within a word this
  // gives.
  bool down_inputs = true;
  std::array<int, 8> order = {0, 1, 2, 3, 4, 5, 6, 7};
  std::uint32_t add_to_zeros = 0;  // to each word, carries included
};

void pack(const AffineFormat& format, const AffineTensors& from, std::byte* to) {
  const AffineShape& shape = format.shape();
  const std::int64_t per_word = 32 / shape.bits;
  const std::uint32_t mask = (1U << shape.bits) - 1;
  auto* codes = reinterpret_cast<std::uint8_t*>(to);
  std::fill_n(codes, static_cast<std::size_t>(shape.rows) * shape.row_bytes(), std::uint8_t{0});
  const std::int64_t wide = from.down_inputs ? shape.rows : shape.rows / per_word;
  const auto bits_of = [&](std::int64_t row, std::int64_t column) {
    if (from.down_inputs) {
      const std::uint32_t word = word_at(from.codes, column / per_word * wide + row);
      return (word >> (shape.bits * (column % per_word))) & mask;
    }
    const int place = from.order[static_cast<std::size_t>(row % per_word)];
    return (word_at(from.codes, column * wide + row / per_word) >> (shape.bits * place)) & mask;
  };
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::uint8_t* out = codes + static_cast<std::size_t>(row) * shape.row_bytes();
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const std::uint32_t q = bits_of(row, column);
      if (shape.bits == 8) {
        out[column] = static_cast<std::uint8_t>(q);
      } else {
        out[column / 2] = static_cast<std::uint8_t>(out[column / 2] | q << (4 * (column % 2)));
      }
    }
  }
  auto* zeros = reinterpret_cast<std::uint8_t*>(to + format.zeros_at());
  std::byte* scales = to + format.scales_at();
  const std::size_t size = dtype_size(shape.dtype);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const int place = from.order[static_cast<std::size_t>(row % per_word)];
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      const std::uint32_t word =
          word_at(from.zeros, group * (shape.rows / per_word) + row / per_word) + from.add_to_zeros;
      const std::int64_t at = row * shape.groups + group;
      zeros[at] = static_cast<std::uint8_t>((word >> (shape.bits * place)) & mask);
      std::memcpy(scales + static_cast<std::size_t>(at) * size,
                  from.scales.data() + static_cast<std::size_t>(group * shape.rows + row) * size,
                  size);
    }
  }
}

// "F16" or "BF16", which the scales of a weight are of.
std::string_view scale_dtype(const QuantisedSource& source, const std::string& name) {
  const SafetensorsFile& file = source.directory.file_of(name);
  const std::string& dtype = file.find(name).dtype;
  if (dtype == "F16") return "F16";
  if (dtype == "BF16") return "BF16";
  if (dtype == "F32") return "F32";
  throw damaged_error("{}: tensor \"{}\" is of {}, not of floats", file.path().string(), name,
                      dtype);
}

std::int64_t whole(const QuantisedSource& source, const char* key, std::int64_t fallback) {
  try {
    if (!source.config.contains(key) || source.config.at(key).is_null()) return fallback;
    return whole_number(source.config.at(key), -1, std::int64_t{1} << 31);
  } catch (const Json::exception& error) {
    throw damaged_error("{}: \"quantization_config\": \"{}\": {}", source.origin, key,
                        json_reason(error));
  }
}

std::string text(const QuantisedSource& source, const char* key, const std::string& fallback) {
  if (!source.config.contains(key) || source.config.at(key).is_null()) return fallback;
  if (source.config.at(key).is_string()) return source.config.at(key).get<std::string>();
  throw damaged_error("{}: \"quantization_config\": \"{}\" is {}, not a text", source.origin, key,
                      source.config.at(key).dump());
}

std::int64_t bits_of(const QuantisedSource& source, std::initializer_list<std::int64_t> known) {
  const std::int64_t bits = whole(source, "bits", 0);
  if (std::find(known.begin(), known.end(), bits) != known.end()) return bits;
  throw user_error(
      "{}: \"quantization_config\" has \"bits\" {}; atoll reads {} bits of this method; quantise "
      "the model with these, or take the model that was quantised",
      source.origin, bits, known.size() == 1 ? "4" : "4 or 8");
}

// Inputs that share a scale; -1 in the file means all.
std::int64_t group_size(const QuantisedSource& source, std::int64_t columns) {
  const std::int64_t size = whole(source, "group_size", -1);
  if (size == -1) return columns;
  if (size >= 1) return size;
  throw damaged_error("{}: \"quantization_config\" has \"group_size\" {}", source.origin, size);
}

struct AffineNames {
  std::string weight, codes, zeros, scales, order;
  explicit AffineNames(const std::string& module)
      : weight(module + ".weight"),
        codes(module + ".qweight"),
        zeros(module + ".qzeros"),
        scales(module + ".scales"),
        order(module + ".g_idx") {}
};

StoredMatrix stored_affine(const AffineNames& names, AffineShape shape, AffineTensors tensors) {
  StoredMatrix stored;
  stored.shape = {shape.rows, shape.columns};
  stored.dtype = shape.dtype;
  stored.tensors = {names.codes, names.zeros, names.scales};
  const auto format = std::make_shared<AffineFormat>(std::move(shape));
  stored.format = format;
  stored.fill = [layout = format.get(), tensors](std::byte* to) { pack(*layout, tensors, to); };
  return stored;
}

// The groups of inputs as g_idx says, or one after the other where there is none.
std::vector<std::int32_t> groups_of(const QuantisedSource& source, const AffineNames& names,
                                    std::int64_t columns, std::int64_t size, std::int64_t groups) {
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < columns; ++i) {
    group_of[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / size);
  }
  if (source.directory.contains(names.order)) {
    const std::int64_t shape[] = {columns};
    const auto given = typed_part(source, names.weight, names.order, "I32", shape);
    std::memcpy(group_of.data(), given.data(), given.size());
  }
  for (const std::int32_t group : group_of) {
    if (group >= 0 && group < groups) continue;
    throw damaged_error("{}: tensor \"{}\" has group {} of {}", source.directory.path().string(),
                        names.order, group, groups);
  }
  return group_of;
}

void check_multiple(const QuantisedSource& source, const AffineNames& names, std::int64_t rows,
                    std::int64_t columns, std::int64_t per_word) {
  check_shape(source, names.weight, rows, columns);
  if (rows % per_word == 0 && columns % 2 == 0) return;
  throw damaged_error("{}: {} has {} outputs, not a multiple of {}, of which a word has the zeros",
                      source.directory.path().string(), names.weight, rows, per_word);
}

StoredMatrix gptq(const QuantisedSource& source, const std::string& module) {
  const AffineNames names(module);
  const std::int64_t bits = bits_of(source, {4, 8});
  const std::int64_t per_word = 32 / bits;
  const Shape words = matrix_shape(source, names.weight, names.codes);
  const std::int64_t columns = words.dim(0) * per_word;
  const std::int64_t rows = words.dim(1);
  check_multiple(source, names, rows, columns, per_word);
  const std::int64_t groups = matrix_shape(source, names.weight, names.scales).dim(0);
  const std::string_view dtype = scale_dtype(source, names.scales);
  AffineTensors tensors;
  const std::int64_t code_shape[] = {words.dim(0), rows};
  const std::int64_t zero_shape[] = {groups, rows / per_word};
  const std::int64_t scale_shape[] = {groups, rows};
  tensors.codes = typed_part(source, names.weight, names.codes, "I32", code_shape);
  tensors.zeros = typed_part(source, names.weight, names.zeros, "I32", zero_shape);
  tensors.scales = typed_part(source, names.weight, names.scales, dtype, scale_shape);
  // Version 1 has zeros less one; its readers add one to each, in whole words.
  if (text(source, "checkpoint_format", "gptq") != "gptq_v2") {
    tensors.add_to_zeros = bits == 4 ? 0x11111111U : 0x01010101U;
  }
  AffineShape shape = {.name = fmt::format("gptq {} bits", bits),
                       .rows = rows,
                       .columns = columns,
                       .bits = bits,
                       .groups = groups,
                       .dtype = *dtype_from_safetensors(dtype)};
  shape.group_of = groups_of(source, names, columns, group_size(source, columns), groups);
  StoredMatrix stored = stored_affine(names, std::move(shape), tensors);
  if (source.directory.contains(names.order)) stored.tensors.push_back(names.order);
  return stored;
}

StoredMatrix awq(const QuantisedSource& source, const std::string& module) {
  constexpr std::int64_t kPerWord = 8;
  const AffineNames names(module);
  const Shape words = matrix_shape(source, names.weight, names.codes);
  const std::int64_t columns = words.dim(0);
  const std::int64_t rows = words.dim(1) * kPerWord;
  check_multiple(source, names, rows, columns, kPerWord);
  const std::int64_t size = group_size(source, columns);
  const std::int64_t groups = (columns + size - 1) / size;
  const std::string_view dtype = scale_dtype(source, names.scales);
  AffineTensors tensors;
  const std::int64_t code_shape[] = {columns, words.dim(1)};
  const std::int64_t zero_shape[] = {groups, words.dim(1)};
  const std::int64_t scale_shape[] = {groups, rows};
  tensors.codes = typed_part(source, names.weight, names.codes, "I32", code_shape);
  tensors.zeros = typed_part(source, names.weight, names.zeros, "I32", zero_shape);
  tensors.scales = typed_part(source, names.weight, names.scales, dtype, scale_shape);
  tensors.down_inputs = false;
  tensors.order = {0, 4, 1, 5, 2, 6, 3, 7};  // as its kernels unpack a word
  AffineShape shape = {.name = "awq",
                       .rows = rows,
                       .columns = columns,
                       .bits = 4,
                       .groups = groups,
                       .dtype = *dtype_from_safetensors(dtype)};
  for (std::int64_t i = 0; i < columns; ++i) {
    shape.group_of.push_back(static_cast<std::int32_t>(i / size));
  }
  return stored_affine(names, std::move(shape), tensors);
}

template <typename Read>
StoredMatrices each_module(const QuantisedSource& source, Read&& read) {
  StoredMatrices found;
  constexpr std::string_view kCodes = ".qweight";
  for (const std::string& name : source.directory.tensor_names()) {
    if (!name.ends_with(kCodes)) continue;
    const std::string module = name.substr(0, name.size() - kCodes.size());
    found.emplace(module + ".weight", read(source, module));
  }
  return found;
}

}  // namespace

StoredMatrices read_gptq(const QuantisedSource& source) {
  const std::string format = text(source, "checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    throw user_error(
        "{}: \"quantization_config\" has \"checkpoint_format\" \"{}\"; atoll reads gptq and "
        "gptq_v2: save the model again in one of these with GPTQModel",
        source.origin, format);
  }
  return each_module(source, gptq);
}

StoredMatrices read_awq(const QuantisedSource& source) {
  const std::string version = text(source, "version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    throw user_error(
        "{}: \"quantization_config\" has \"version\" \"{}\"; atoll reads the gemm version of AWQ: "
        "save the model again in it with AutoAWQ",
        source.origin, version);
  }
  bits_of(source, {4});
  return each_module(source, awq);
}

}  // namespace atl::ckpt
