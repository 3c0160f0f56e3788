#include "atoll/ckpt/gguf/k_quants.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/ckpt/gguf/k_fit.h"

namespace atl::ckpt {

namespace {

using Byte = std::uint8_t;

void put_half(Byte* to, std::uint16_t bits) {
  std::memcpy(to, &bits, sizeof bits);
}

// Eight scales and eight minima of 6 bits in 12 bytes: those of the first four sub-blocks in the
// low bits of bytes 0 to 7; the others' low four bits in bytes 8 to 11, their high two above the
// first ones.
void put_scales(const AffineFit& fit, Byte* to) {
  for (std::size_t i = 0; i < 4; ++i) {
    const Byte scale = fit.scales[i + 4];
    const Byte min = fit.mins[i + 4];
    to[i] = static_cast<Byte>(fit.scales[i] | (scale >> 4) << 6);
    to[i + 4] = static_cast<Byte>(fit.mins[i] | (min >> 4) << 6);
    to[i + 8] = static_cast<Byte>((scale & 15) | (min & 15) << 4);
  }
}

// The low four bits of 64 codes in 32 bytes, four times.
void put_low_bits(const AffineFit& fit, Byte* to) {
  for (std::size_t i = 0; i < kSuperBlock / 2; ++i) {
    const std::size_t at = i / 32 * 64 + i % 32;
    to[i] = static_cast<Byte>((fit.codes[at] & 15) | (fit.codes[at + 32] & 15) << 4);
  }
}

void write_q4_k(SuperBlock x, SuperBlock weights, Byte* to) {
  const AffineFit fit = fit_affine(x, weights, 15);
  put_half(to, fit.scale);
  put_half(to + 2, fit.min);
  put_scales(fit, to + 4);
  put_low_bits(fit, to + 16);
}

void write_q5_k(SuperBlock x, SuperBlock weights, Byte* to) {
  const AffineFit fit = fit_affine(x, weights, 31);
  put_half(to, fit.scale);
  put_half(to + 2, fit.min);
  put_scales(fit, to + 4);
  std::fill_n(to + 16, 32, Byte{0});
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    to[16 + i % 32] = static_cast<Byte>(to[16 + i % 32] | (fit.codes[i] >> 4) << (i / 32));
  }
  put_low_bits(fit, to + 48);
}

// Codes from -4 to 3: two bits in bytes 32 to 95, the third, inverted sign, in bytes 0 to 31;
// scales from -32 to 31 in 12 bytes.
void write_q3_k(SuperBlock x, SuperBlock weights, Byte* to) {
  const SymmetricFit fit = fit_symmetric(x, weights, -4, -32);
  std::fill_n(to, 110, Byte{0});
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const int code = fit.codes[i] + 4;
    Byte& high = to[i % 32];
    Byte& low = to[32 + i / 128 * 32 + i % 32];
    high = static_cast<Byte>(high | (code >> 2) << (i / 32));
    low = static_cast<Byte>(low | (code & 3) << (i % 128 / 32 * 2));
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const int scale = fit.scales[i] + 32;
    Byte& low = to[96 + i % 8];
    Byte& high = to[104 + i % 4];
    low = static_cast<Byte>(low | (scale & 15) << (i / 8 * 4));
    high = static_cast<Byte>(high | (scale >> 4) << (i / 4 * 2));
  }
  put_half(to + 108, fit.scale);
}

// Codes from -32 to 31: four bits in bytes 0 to 127, two in bytes 128 to 191; scales of 8 bits.
void write_q6_k(SuperBlock x, SuperBlock weights, Byte* to) {
  const SymmetricFit fit = fit_symmetric(x, weights, -32, -128);
  std::fill_n(to, 192, Byte{0});
  for (std::size_t i = 0; i < kSuperBlock; ++i) {
    const int code = fit.codes[i] + 32;
    const std::size_t half = i / 128;
    const std::size_t within = i % 128;
    Byte& low = to[half * 64 + within % 64];
    Byte& high = to[128 + half * 32 + within % 32];
    low = static_cast<Byte>(low | (code & 15) << (within / 64 * 4));
    high = static_cast<Byte>(high | (code >> 4) << (within / 32 * 2));
  }
  std::memcpy(to + 192, fit.scales.data(), fit.scales.size());
  put_half(to + 208, fit.scale);
}

using BlockWriter = void (*)(SuperBlock, SuperBlock, Byte*);

BlockWriter block_writer(GgmlType type) {
  switch (type) {
    case GgmlType::kQ3_K:
      return write_q3_k;
    case GgmlType::kQ4_K:
      return write_q4_k;
    case GgmlType::kQ5_K:
      return write_q5_k;
    case GgmlType::kQ6_K:
      return write_q6_k;
    default:
      return nullptr;
  }
}

using Weights = std::array<float, kSuperBlock>;

// Their sum is about 1, so that no sum of products leaves f32's range.
Weights weights_of(std::span<const float> x, std::span<const float> importance) {
  Weights weights;
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    total += importance.empty() ? double{x[i]} * x[i] : double{importance[i]};
  }
  if (!(total > 0)) {
    weights.fill(1.0F / kSuperBlock);
    return weights;
  }
  const double floor = importance.empty() ? 1.0 / kSuperBlock : 0.01 / kSuperBlock;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double own = importance.empty() ? double{x[i]} * x[i] : double{importance[i]};
    weights[i] = static_cast<float>(own / total + floor);
  }
  return weights;
}

}  // namespace

bool is_k_type(GgmlType type) {
  return block_writer(type) != nullptr;
}

void encode_k_block(GgmlType type, std::span<const float> x, std::span<const float> importance,
                    std::uint8_t* out) {
  ATOLL_CHECK(is_k_type(type), "{}", ggml_layout(type).name);
  ATOLL_CHECK_EQ(x.size(), std::size_t{kSuperBlock});
  ATOLL_CHECK(importance.empty() || importance.size() == x.size(), "{}", importance.size());
  const Weights weights = weights_of(x, importance);
  block_writer(type)(x.first<kSuperBlock>(), SuperBlock(weights), out);
}

}  // namespace atl::ckpt
