// DeepSeek V3's weights (DeepSeek-AI 2024, "DeepSeek-V3", section 3.3): "x.weight" in 8 bits, E4M3
// (Micikevicius et al. 2022), and "x.weight_scale_inv", f32 or, in Qwen3's files, bf16, with a
// number for each block of 128 rows and 128 columns that its elements are multiplied with.

#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/ckpt/quantised/methods.h"
#include "atoll/ckpt/safetensors/convert.h"
#include "atoll/tensor/arena.h"

namespace atl::ckpt {

namespace {

constexpr std::string_view kScale = "_scale_inv";
constexpr std::int64_t kBlock = 128;

std::int64_t blocks_of(std::int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

// A sign, four bits of exponent with a bias of 7, three of mantissa; no infinities, and NaN where
// all but the sign are 1.
std::array<float, 256> make_numbers() {
  std::array<float, 256> numbers = {};
  for (unsigned code = 0; code < 256; ++code) {
    const int exponent = static_cast<int>(code >> 3 & 15U);
    const auto mantissa = static_cast<float>(code & 7U) / 8;
    float number =
        exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1 + mantissa, exponent - 7);
    if ((code & 127U) == 127U) number = std::nanf("");
    numbers[code] = code < 128 ? number : -number;
  }
  return numbers;
}

// [codes: u8 (rows, columns)][scales: f32 (blocks of rows, blocks of columns)]
class Fp8BlocksFormat final : public ops::PackedFormat {
 public:
  Fp8BlocksFormat(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  std::string_view name() const override { return "fp8"; }
  std::size_t scales_at() const { return align_up(static_cast<std::size_t>(rows_ * columns_)); }
  std::size_t bytes() const override {
    return scales_at() +
           static_cast<std::size_t>(blocks_of(rows_) * blocks_of(columns_)) * sizeof(float);
  }
  // Rounded to bf16, as DeepSeek's own program to widen checkpoints does.
  void widen(const std::byte* packed, std::int64_t begin, std::int64_t end,
             float* out) const override {
    static const std::array<float, 256> kNumbers = make_numbers();
    const auto* scales = reinterpret_cast<const float*>(packed + scales_at());
    for (std::int64_t row = begin; row < end; ++row) {
      const float* of_row = scales + row / kBlock * blocks_of(columns_);
      const std::byte* codes = packed + static_cast<std::size_t>(row * columns_);
      for (std::int64_t i = 0; i < columns_; ++i) {
        const float number = kNumbers[std::to_integer<std::size_t>(codes[i])];
        *out++ = rounded_to(Dtype::kBf16, number * of_row[i / kBlock]);
      }
    }
  }

 private:
  std::int64_t rows_, columns_;
};

Dtype scale_dtype(const QuantisedSource& source, const std::string& scale) {
  return source.directory.file_of(scale).find(scale).dtype == "BF16" ? Dtype::kBf16 : Dtype::kF32;
}

void check_config(const QuantisedSource& source) {
  const auto refuse = [&](const char* field, const std::string& value) {
    throw user_error(
        "{}: \"quantization_config\" says \"fp8\" with \"{}\" {}, and atoll reads DeepSeek V3's: "
        "\"e4m3\" in blocks of 128 x 128; give the model that was quantised, or dequantise it: "
        "transformers' FineGrainedFP8Config(dequantize=True) and save_pretrained()",
        source.origin, field, value);
  };
  const nlohmann::json blocks = source.config.value("weight_block_size", nlohmann::json());
  if (blocks != nlohmann::json::array({kBlock, kBlock})) {
    refuse("weight_block_size", blocks.dump());
  }
  const nlohmann::json format = source.config.value("fmt", nlohmann::json("e4m3"));
  if (format != "e4m3") refuse("fmt", format.dump());
}

}  // namespace

StoredMatrices read_fp8_blocks(const QuantisedSource& source) {
  check_config(source);
  StoredMatrices found;
  for (const std::string& scale : source.directory.tensor_names()) {
    if (!scale.ends_with(".weight" + std::string(kScale))) continue;
    const std::string name = scale.substr(0, scale.size() - kScale.size());
    const Shape shape = matrix_shape(source, name, name);
    const std::int64_t rows = shape.dim(0), columns = shape.dim(1);
    check_shape(source, name, rows, columns);
    const auto codes = typed_part(source, name, name, "F8_E4M3", std::array{rows, columns});
    const Dtype kind = scale_dtype(source, scale);
    const auto scales = typed_part(source, name, scale, kind == Dtype::kBf16 ? "BF16" : "F32",
                                   std::array{blocks_of(rows), blocks_of(columns)});
    const auto format = std::make_shared<Fp8BlocksFormat>(rows, columns);
    const auto fill = [codes, scales, kind, format](std::byte* to) {
      std::memcpy(to, codes.data(), codes.size());
      auto* wide = reinterpret_cast<float*>(to + format->scales_at());
      convert_to_f32(kind, scales, {wide, scales.size() / dtype_size(kind)});
    };
    found.emplace(name, StoredMatrix{shape, Dtype::kBf16, format, {name, scale}, fill});
  }
  return found;
}

}  // namespace atl::ckpt
