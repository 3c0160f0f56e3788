// The codecs' bytes by the plainest loops that say what they are, against the codecs on every
// instruction set that this machine has.

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "atoll/compress/testing.h"
#include "atoll/simd/bf16.h"
#include "atoll/simd/instruction_sets.h"

namespace atl::compress {
namespace {

using test::codec_values;
using test::kCodecSettings;
using test::kCodecSizes;
using Bytes = std::vector<std::byte>;
using Values = std::span<const float>;

template <typename T>
void append(Bytes& bytes, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  for (std::size_t i = 0; i < sizeof(value); ++i) bytes.push_back(raw[i]);
}

float largest_of(Values x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

Bytes ref_f32(Values x) {
  Bytes bytes;
  for (const float value : x) append(bytes, value);
  return bytes;
}

Bytes ref_bf16(Values x) {
  Bytes bytes;
  for (const float value : x) append(bytes, to_bf16(value).bits);
  return bytes;
}

Bytes ref_int8(Values x) {
  Bytes bytes;
  const float largest = largest_of(x);
  const bool is_zero = largest < 0x1p-100F;
  append(bytes, is_zero ? 0.0F : largest / 127);
  for (const float value : x) {
    const float inverse = is_zero ? 0 : 127 / largest;
    append(bytes, static_cast<std::int8_t>(std::nearbyint(value * inverse)));
  }
  return bytes;
}

Bytes ref_int4(Values x) {
  Bytes bytes;
  const float largest = largest_of(x);
  const bool is_zero = largest < 0x1p-100F;
  append(bytes, is_zero ? 0.0F : largest / 7);
  const auto code_of = [&](std::size_t i) {
    const float inverse = is_zero ? 0 : 7 / largest;
    return i < x.size() ? 8 + static_cast<int>(std::nearbyint(x[i] * inverse)) : 8;
  };
  const std::size_t half = (x.size() + 1) / 2;
  for (std::size_t i = 0; i < half; ++i) {
    append(bytes, static_cast<std::uint8_t>(code_of(i) + 16 * code_of(half + i)));
  }
  return bytes;
}

// The digit of a value: 7 is zero, 8 to 14 the powers of two up to `top`, 6 to 0 the same below
// zero.
int digit_of(float value, float top) {
  int best = 7;
  for (int level = 1; level <= 7; ++level) {
    const float power = std::ldexp(top, level - 7);
    const float now = best == 7 ? 0 : std::ldexp(top, best - 14);
    const float magnitude = std::abs(value);
    if (std::abs(magnitude - power) <= std::abs(magnitude - now)) best = 7 + level;
  }
  return std::signbit(value) ? 14 - best : best;
}

Bytes ref_e3m0(Values x) {
  int exponent = 0;
  const float fraction = std::frexp(largest_of(x), &exponent);  // from 0.5 to below 1
  const int top = fraction >= 0.75F ? exponent : exponent - 1;
  const bool is_zero = largest_of(x) < 0x1p-100F;
  const float power = is_zero ? 0x1p126F : std::ldexp(1.0F, top);  // all are zeros beside that
  Bytes bytes;
  append(bytes, static_cast<std::uint8_t>(is_zero ? 0 : top + 127));
  std::size_t i = 0;
  for (; i + 128 <= x.size(); i += 128) {
    std::uint64_t words[8] = {};
    for (std::size_t word = 0; word < 8; ++word) {
      for (std::size_t digit = 16; digit-- > 0;) {
        const std::size_t element = digit % 4 * 32 + word * 4 + digit / 4;
        words[word] =
            words[word] * 15 + static_cast<std::uint64_t>(digit_of(x[i + element], power));
      }
    }
    for (std::size_t word = 0; word < 7; ++word) {
      append(bytes, words[word] + (words[7] >> (56 + word) << 63));
    }
    append(bytes, words[7]);
    bytes.pop_back();
  }
  for (; i < x.size(); i += 2) {
    const int high = i + 1 < x.size() ? digit_of(x[i + 1], power) : 0;
    append(bytes, static_cast<std::uint8_t>(digit_of(x[i], power) + 16 * high));
  }
  return bytes;
}

// Bits as a text of zeros and ones, the first first.
Bytes packed(const std::string& bits) {
  Bytes bytes((bits.size() + 7) / 8);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i] == '1') bytes[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
  }
  return bytes;
}

// The first `count` indices by `before`, ascending.
std::vector<std::size_t> first_by(std::size_t n, std::size_t count,
                                  const std::function<bool(std::size_t, std::size_t)>& before) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), before);
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

Bytes ref_topk(Values x, std::size_t k, std::size_t chunk) {
  const std::size_t count = (k * x.size() + chunk - 1) / chunk;
  const std::vector<std::size_t> kept =
      first_by(x.size(), count,
               [&](std::size_t a, std::size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
  double squares = 0;
  for (const std::size_t i : kept) squares += static_cast<double>(x[i]) * x[i];
  const double edge = 1.5 * std::sqrt(squares / static_cast<double>(count));
  double sums[2] = {};
  int counts[2] = {};
  std::string indices;
  std::string codes;
  for (const std::size_t i : kept) {
    const int is_large = std::abs(x[i]) >= edge ? 1 : 0;
    sums[is_large] += std::abs(x[i]);
    ++counts[is_large];
    for (int bit = 0; bit < 12; ++bit) indices += (i >> bit & 1) != 0 ? '1' : '0';
    codes += std::signbit(x[i]) ? '1' : '0';
    codes += is_large != 0 ? '1' : '0';
  }
  Bytes bytes;
  for (int bin = 0; bin < 2; ++bin) {
    append(bytes, to_bf16(static_cast<float>(sums[bin] / std::max(1, counts[bin]))).bits);
  }
  for (const Bytes& part : {packed(indices), packed(codes)}) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

Bytes ref_sign_prune(Values x, std::size_t percent) {
  // The codec adds sixteen columns in f32: a sum that is clear in double is the same.
  double sum = 0;
  for (const float value : x) sum += value;
  const float elected = sum < 0 ? -1 : 1;
  const std::vector<std::size_t> kept =
      first_by(x.size(), x.size() - x.size() * percent / 100, [&](std::size_t a, std::size_t b) {
        const bool a_is_elected = std::copysign(1.0F, x[a]) == elected;
        const bool b_is_elected = std::copysign(1.0F, x[b]) == elected;
        if (a_is_elected != b_is_elected) return a_is_elected;
        return std::abs(x[a]) > std::abs(x[b]);
      });
  std::string bitmap(x.size(), '0');
  for (const std::size_t i : kept) bitmap[i] = '1';
  Bytes bytes = packed(bitmap);
  for (const std::size_t i : kept) append(bytes, to_bf16(x[i]).bits);
  return bytes;
}

const std::map<std::string, std::function<Bytes(Values)>> kReferences = {
    {"f32", ref_f32},
    {"bf16", ref_bf16},
    {"int8", ref_int8},
    {"int4", ref_int4},
    {"e3m0", ref_e3m0},
    {"topk:64/4096", [](Values x) { return ref_topk(x, 64, 4096); }},
    {"topk:5/100", [](Values x) { return ref_topk(x, 5, 100); }},
    {"topk:512/512", [](Values x) { return ref_topk(x, 512, 512); }},
    {"sign_prune:25", [](Values x) { return ref_sign_prune(x, 25); }},
    {"sign_prune:50", [](Values x) { return ref_sign_prune(x, 50); }},
    {"sign_prune:75", [](Values x) { return ref_sign_prune(x, 75); }},
};

// Calls fn with each instruction set in turn that the kernels are compiled for and this CPU has.
void on_every_target(const std::function<void()>& fn) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    simd::choose_kernels();
    fn();
  }
  hwy::SetSupportedTargetsForTest(0);
  simd::choose_kernels();
}

// Values with the edges of rounding among them: halves of int8's steps; halves between e3m0's
// powers, and the numbers next to these.
std::vector<float> edgy_values(std::size_t n) {
  std::vector<float> x = codec_values(n, 11);
  for (std::size_t i = 0; i < n; ++i) {
    const float half = std::ldexp(1.5F, -static_cast<int>(i / 3 % 9));
    if (i % 3 == 0) x[i] = static_cast<float>(i % 250) / 2 / 127;
    if (i % 6 == 1) x[i] = half;
    if (i % 6 == 4) x[i] = std::nextafter(half, i % 4 == 0 ? 0.0F : -2.0F);
  }
  return x;
}

TEST(CodecReference, EveryCodecIsItsReferenceOnEveryInstructionSet) {
  on_every_target([] {
    for (const std::string& name : kCodecSettings) {
      const auto codec = make_codec(name);
      const std::size_t block = codec->block_elements();
      for (const std::size_t n : kCodecSizes) {
        for (const std::vector<float>& x : {codec_values(n, 12), edgy_values(n)}) {
          Bytes right;
          for (std::size_t begin = 0; begin < n; begin += block) {
            const Bytes part =
                kReferences.at(name)(Values(x).subspan(begin, std::min(block, n - begin)));
            right.insert(right.end(), part.begin(), part.end());
          }
          ASSERT_EQ(test::encode(*codec, x), right) << name << " " << n;
        }
      }
    }
  });
}

TEST(CodecReference, ValuesAndErrorsAreTheSameOnEveryInstructionSet) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    const std::vector<float> x = codec_values(9000, 13);
    const Bytes bytes = test::encode(*codec, x);
    const std::vector<float> right = test::decode(*codec, bytes, x.size());
    std::vector<float> right_sum = x;
    codec->decode_add(bytes, 0.7F, right_sum);
    Bytes right_again;
    std::vector<float> right_error = codec_values(x.size(), 14);
    codec->encode(x, right_error, right_again);
    on_every_target([&] {
      Bytes again;
      std::vector<float> error = codec_values(x.size(), 14);
      codec->encode(x, error, again);
      EXPECT_EQ(again, right_again) << name;
      EXPECT_EQ(error, right_error) << name;
      const std::vector<float> values = test::decode(*codec, bytes, x.size());
      EXPECT_EQ(std::memcmp(values.data(), right.data(), x.size() * sizeof(float)), 0) << name;
      std::vector<float> sum = x;
      codec->decode_add(bytes, 0.7F, sum);
      EXPECT_EQ(std::memcmp(sum.data(), right_sum.data(), x.size() * sizeof(float)), 0) << name;
    });
  }
}

}  // namespace
}  // namespace atl::compress
