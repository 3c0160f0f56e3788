#include "atoll/ckpt/gguf/ggml_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

using Byte = std::uint8_t;

struct TypeRow {
  GgmlType type;
  GgmlLayout layout;
};
constexpr TypeRow kTypes[] = {
    {GgmlType::kF32, {"F32", 1, 4}},       {GgmlType::kF16, {"F16", 1, 2}},
    {GgmlType::kBf16, {"BF16", 1, 2}},     {GgmlType::kQ4_0, {"Q4_0", 32, 18}},
    {GgmlType::kQ4_1, {"Q4_1", 32, 20}},   {GgmlType::kQ5_0, {"Q5_0", 32, 22}},
    {GgmlType::kQ5_1, {"Q5_1", 32, 24}},   {GgmlType::kQ8_0, {"Q8_0", 32, 34}},
    {GgmlType::kQ2_K, {"Q2_K", 256, 84}},  {GgmlType::kQ3_K, {"Q3_K", 256, 110}},
    {GgmlType::kQ4_K, {"Q4_K", 256, 144}}, {GgmlType::kQ5_K, {"Q5_K", 256, 176}},
    {GgmlType::kQ6_K, {"Q6_K", 256, 210}}, {GgmlType::kMxfp4, {"MXFP4", 32, 17}},
};

float half_at(const Byte* p) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return f16_to_f32(bits);
}

// Blocks of 32, one scale and perhaps one minimum each.

void q4_0(const Byte* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[2 + j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((b[2 + j] >> 4) - 8) * d;
  }
}

void q4_1(const Byte* b, float* y) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(b[4 + j] & 15) * d + m;
    y[j + 16] = static_cast<float>(b[4 + j] >> 4) * d + m;
  }
}

// The fifth bits of all 32 stand in a word of their own.
int fifth_bit(std::uint32_t high, int element) {
  return static_cast<int>((high >> element) & 1) << 4;
}

void q5_0(const Byte* b, float* y) {
  const float d = half_at(b);
  std::uint32_t high = 0;
  std::memcpy(&high, b + 2, sizeof high);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(((b[6 + j] & 15) | fifth_bit(high, j)) - 16) * d;
    y[j + 16] = static_cast<float>(((b[6 + j] >> 4) | fifth_bit(high, j + 16)) - 16) * d;
  }
}

void q5_1(const Byte* b, float* y) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  std::uint32_t high = 0;
  std::memcpy(&high, b + 4, sizeof high);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b[8 + j] & 15) | fifth_bit(high, j)) * d + m;
    y[j + 16] = static_cast<float>((b[8 + j] >> 4) | fifth_bit(high, j + 16)) * d + m;
  }
}

void q8_0(const Byte* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<std::int8_t>(b[2 + j])) * d;
}

// The OCP's MXFP4: 4-bit floats and a power of two. Numbers here are twice theirs, and the power
// half of theirs, so that the former are integers.
void mxfp4(const Byte* b, float* y) {
  const float d = mxfp4_scale(b[0]);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(kMxfp4Numbers[b[1 + j] & 15]) * d;
    y[j + 16] = static_cast<float>(kMxfp4Numbers[b[1 + j] >> 4]) * d;
  }
}

// Superblocks of 256: sub-blocks with small integer scales, and one f16 scale for those.

void q2_k(const Byte* b, float* y) {
  const Byte* scales = b;
  const float d = half_at(b + 80);
  const float dmin = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const Byte scale = scales[i / 16];
    const Byte packed = b[16 + i / 128 * 32 + i % 32];
    const int q = (packed >> (i % 128 / 32 * 2)) & 3;
    y[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) -
           dmin * static_cast<float>(scale >> 4);
  }
}

// 16 scales of 6 bits: the low four bits in bytes 0 to 7, the high two in bytes 8 to 11.
int q3_k_scale(const Byte* scales, int i) {
  const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
  const int high = (scales[8 + i % 4] >> (i / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

void q3_k(const Byte* b, float* y) {
  const Byte* low = b + 32;
  const float d = half_at(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int two_bits = (low[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const int third_bit = (b[i % 32] >> (i / 32)) & 1;
    y[i] = d * static_cast<float>(q3_k_scale(b + 96, i / 16)) *
           static_cast<float>(two_bits - (third_bit == 0 ? 4 : 0));
  }
}

struct ScaleAndMin {
  float scale;
  float min;
};

// Eight scales and eight minima of 6 bits in 12 bytes; the last four of each lie split.
ScaleAndMin k4_scale(const Byte* scales, int i) {
  if (i < 4) {
    return {static_cast<float>(scales[i] & 63), static_cast<float>(scales[i + 4] & 63)};
  }
  return {static_cast<float>((scales[i + 4] & 15) | (scales[i - 4] >> 6) << 4),
          static_cast<float>((scales[i + 4] >> 4) | (scales[i] >> 6) << 4)};
}

void q4_k(const Byte* b, float* y) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  for (int i = 0; i < 256; ++i) {
    const auto [scale, min] = k4_scale(b + 4, i / 32);
    const Byte packed = b[16 + i / 64 * 32 + i % 32];
    const int q = i % 64 < 32 ? packed & 15 : packed >> 4;
    y[i] = d * scale * static_cast<float>(q) - dmin * min;
  }
}

void q5_k(const Byte* b, float* y) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  for (int i = 0; i < 256; ++i) {
    const auto [scale, min] = k4_scale(b + 4, i / 32);
    const Byte packed = b[48 + i / 64 * 32 + i % 32];
    const int high = (b[16 + i % 32] >> (i / 32)) & 1;
    const int q = (i % 64 < 32 ? packed & 15 : packed >> 4) + (high << 4);
    y[i] = d * scale * static_cast<float>(q) - dmin * min;
  }
}

void q6_k(const Byte* b, float* y) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int within = i % 128;
    const Byte packed = b[half * 64 + within % 64];
    const int low = within < 64 ? packed & 15 : packed >> 4;
    const int high = (b[128 + half * 32 + within % 32] >> (within / 32 * 2)) & 3;
    const auto scale = static_cast<std::int8_t>(b[192 + i / 16]);
    y[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

using BlockReader = void (*)(const Byte*, float*);

BlockReader block_reader(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return q4_0;
    case GgmlType::kQ4_1:
      return q4_1;
    case GgmlType::kQ5_0:
      return q5_0;
    case GgmlType::kQ5_1:
      return q5_1;
    case GgmlType::kQ8_0:
      return q8_0;
    case GgmlType::kMxfp4:
      return mxfp4;
    case GgmlType::kQ2_K:
      return q2_k;
    case GgmlType::kQ3_K:
      return q3_k;
    case GgmlType::kQ4_K:
      return q4_k;
    case GgmlType::kQ5_K:
      return q5_k;
    case GgmlType::kQ6_K:
      return q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

float mxfp4_scale(std::uint8_t exponent) {
  return std::ldexp(1.0F, exponent - 128);  // subnormal below 2, and exact
}

std::optional<GgmlType> ggml_type(std::uint32_t number) {
  for (const TypeRow& row : kTypes) {
    if (static_cast<std::uint32_t>(row.type) == number) return row.type;
  }
  return {};
}

std::optional<Dtype> plain_dtype(GgmlType type) {
  if (type == GgmlType::kF32) return Dtype::kF32;
  if (type == GgmlType::kF16) return Dtype::kF16;
  if (type == GgmlType::kBf16) return Dtype::kBf16;
  return {};
}

GgmlLayout ggml_layout(GgmlType type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TypeRow& row) { return row.type == type; });
  ATOLL_CHECK(found != std::end(kTypes));
  return found->layout;
}

std::size_t ggml_row_bytes(GgmlType type, std::int64_t width) {
  const GgmlLayout layout = ggml_layout(type);
  ATOLL_CHECK_EQ(width % layout.block_elements, 0);
  return static_cast<std::size_t>(width / layout.block_elements) * layout.block_bytes;
}

void dequantize(GgmlType type, std::span<const std::byte> row, std::span<float> out) {
  ATOLL_CHECK_EQ(row.size(), ggml_row_bytes(type, static_cast<std::int64_t>(out.size())));
  if (const auto dtype = plain_dtype(type)) {
    convert_to_f32(*dtype, row, out);
    return;
  }
  const GgmlLayout layout = ggml_layout(type);
  const BlockReader read = block_reader(type);
  const auto* block = reinterpret_cast<const Byte*>(row.data());
  const auto step = static_cast<std::size_t>(layout.block_elements);
  for (std::size_t i = 0; i < out.size(); i += step, block += layout.block_bytes) {
    read(block, out.data() + i);
  }
}

}  // namespace atl::ckpt
