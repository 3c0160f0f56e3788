#include "atoll/ckpt/gguf/ggml_encode.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/ckpt/gguf/k_quants.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

using Byte = std::uint8_t;

// The largest magnitude of a row. Throws when it is not below `limit`.
float checked_largest(std::span<const float> x, float limit, GgmlType type,
                      std::string_view tensor) {
  float largest = 0;
  for (const float value : x) {
    // Written so that a NaN, which no comparison holds for, ends here too.
    if (!(std::abs(value) < limit)) {
      throw user_error("tensor \"{}\" holds {}, which {} cannot; choose f32", tensor, value,
                       ggml_layout(type).name);
    }
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

void encode_q8_0(std::span<const float> x, Byte* out, std::string_view tensor) {
  const float largest = checked_largest(x, 127.0F * 65520.0F, GgmlType::kQ8_0, tensor);
  const float scale = largest / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  const std::uint16_t bits = f32_to_f16(scale);
  std::memcpy(out, &bits, sizeof bits);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // 1 / scale overflows for a scale below f32's normal numbers; such blocks are zeros in f16.
    const float q = std::isfinite(inverse) ? std::round(x[i] * inverse) : 0;
    out[2 + i] = static_cast<Byte>(static_cast<std::int8_t>(std::clamp(q, -127.0F, 127.0F)));
  }
}

// The code whose number times `scale` is nearest; of two, the first.
Byte nearest_code(float x, float scale) {
  Byte best = 0;
  float least = std::abs(static_cast<float>(kMxfp4Numbers[0]) * scale - x);
  for (Byte code = 1; code < std::size(kMxfp4Numbers); ++code) {
    const float off = std::abs(static_cast<float>(kMxfp4Numbers[code]) * scale - x);
    if (off >= least) continue;
    least = off;
    best = code;
  }
  return best;
}

void encode_mxfp4(std::span<const float> x, Byte* out, std::string_view tensor) {
  const float largest =
      checked_largest(x, std::numeric_limits<float>::infinity(), GgmlType::kMxfp4, tensor);
  // So that the largest is 4 to 8 of the format's 6; 127 is the power's bias.
  const float exponent = largest > 0 ? std::floor(std::log2(largest)) - 2 + 127 : 0;
  out[0] = static_cast<Byte>(std::max(exponent, 0.0F));
  const float scale = mxfp4_scale(out[0]);
  const std::size_t half = x.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    out[1 + i] =
        static_cast<Byte>(nearest_code(x[i], scale) | nearest_code(x[i + half], scale) << 4);
  }
}

}  // namespace

bool can_encode(GgmlType type) {
  return plain_dtype(type).has_value() || type == GgmlType::kQ8_0 || type == GgmlType::kMxfp4 ||
         is_k_type(type);
}

void encode(GgmlType type, std::span<const float> row, std::span<std::byte> out,
            std::string_view tensor, std::span<const float> importance) {
  ATOLL_CHECK(can_encode(type), "{} is only read", ggml_layout(type).name);
  ATOLL_CHECK_EQ(out.size(), ggml_row_bytes(type, static_cast<std::int64_t>(row.size())));
  ATOLL_CHECK(importance.empty() || importance.size() == row.size(), "{}", importance.size());
  if (const auto dtype = plain_dtype(type)) {
    check_fits(row, *dtype, tensor);
    convert_from_f32(row, *dtype, out);
    return;
  }
  const GgmlLayout layout = ggml_layout(type);
  const auto step = static_cast<std::size_t>(layout.block_elements);
  auto* block = reinterpret_cast<Byte*>(out.data());
  for (std::size_t i = 0; i < row.size(); i += step, block += layout.block_bytes) {
    const std::span<const float> x = row.subspan(i, step);
    if (type == GgmlType::kQ8_0) {
      encode_q8_0(x, block, tensor);
      continue;
    }
    if (type == GgmlType::kMxfp4) {
      encode_mxfp4(x, block, tensor);
      continue;
    }
    // A minimum is at most the largest magnitude, and half a step of 2 / 15 of that; 63 units hold
    // twice this bound.
    checked_largest(x, 31.0F * 65504.0F, type, tensor);
    encode_k_block(type, x, importance.empty() ? importance : importance.subspan(i, step), block);
  }
}

}  // namespace atl::ckpt
