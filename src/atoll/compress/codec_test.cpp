#include "atoll/compress/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/compress/testing.h"

namespace atl::compress {
namespace {

using test::codec_values;
using test::kCodecSettings;
using test::kCodecSizes;
using testing::HasSubstr;

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

std::string message_of(const std::function<void()>& fn, ErrorKind kind) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Codec, NamesAreThoseOfSettings) {
  for (const std::string& name : kCodecSettings) EXPECT_EQ(make_codec(name)->name(), name);
  for (const char* name : codec_names()) {
    EXPECT_TRUE(make_codec(name)->name().starts_with(name)) << name;
  }
  EXPECT_EQ(make_codec("topk")->name(), "topk:64/4096");
  EXPECT_EQ(make_codec("sign_prune")->name(), "sign_prune:50");
}

TEST(Codec, WrongSettingsSayWhatIsRight) {
  const auto message = [](const std::string& name) {
    return message_of([&] { make_codec(name); }, ErrorKind::kUser);
  };
  EXPECT_THAT(message("int5"), HasSubstr("f32, bf16, int8, int4, e3m0, topk, sign_prune"));
  EXPECT_THAT(message(""), HasSubstr("f32, bf16"));
  EXPECT_THAT(message("f32:1"), HasSubstr("no parameters"));
  EXPECT_THAT(message("topk:"), HasSubstr("must be parameters"));
  for (const char* name : {"topk:64", "topk:/", "topk:0/64", "topk:65/64", "topk:4/8192",
                           "topk:4/15", "topk:4/64x", "topk:-4/64", "topk:99999999999/64"}) {
    EXPECT_THAT(message(name), HasSubstr("as in topk:64/4096")) << name;
  }
  for (const char* name : {"sign_prune:0", "sign_prune:100", "sign_prune:5%"}) {
    EXPECT_THAT(message(name), HasSubstr("as in sign_prune:50")) << name;
  }
}

TEST(Codec, BytesAreExact) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    EXPECT_EQ(codec->max_bytes(0), 0U) << name;
    for (const std::size_t n : kCodecSizes) {
      EXPECT_EQ(test::encode(*codec, codec_values(n, 1)).size(),
                codec->max_bytes(static_cast<std::int64_t>(n)))
          << name << " " << n;
    }
  }
  constexpr std::int64_t kMillion = 1 << 20;
  const auto bytes = [](const char* name) { return make_codec(name)->max_bytes(kMillion); };
  EXPECT_EQ(bytes("f32"), std::size_t{4} * kMillion);
  EXPECT_EQ(bytes("bf16"), std::size_t{2} * kMillion);
  EXPECT_EQ(bytes("int8"), std::size_t{kMillion} + kMillion / 256 * 4);
  EXPECT_EQ(bytes("int4"), std::size_t{kMillion} / 2 + kMillion / 256 * 4);
  EXPECT_EQ(bytes("e3m0"), std::size_t{kMillion} / 512 * 253);
  EXPECT_EQ(bytes("topk"), std::size_t{kMillion} / 4096 * (4 + 96 + 16));
  EXPECT_EQ(bytes("sign_prune:75"), std::size_t{kMillion} / 256 * (32 + 64 * 2));
}

TEST(Codec, FourBitsAreLessThanAnEighthOfF32) {
  for (const std::int64_t n :
       {std::int64_t{1000}, std::int64_t{3'000'001}, std::int64_t{1} << 33}) {
    EXPECT_LT(make_codec("e3m0")->max_bytes(n) * 8, make_codec("f32")->max_bytes(n)) << n;
  }
}

TEST(Codec, F32IsExactWhateverTheBits) {
  std::vector<float> x = codec_values(5000, 2);
  x[7] = std::bit_cast<float>(0x7fc12345U);
  x[4999] = -std::numeric_limits<float>::infinity();
  const auto codec = make_codec("f32");
  EXPECT_EQ(bits_of(test::decode(*codec, test::encode(*codec, x), x.size())), bits_of(x));
}

TEST(Codec, Bf16IsTheNearestAndKeepsNaN) {
  std::vector<float> x = codec_values(5000, 3);
  x[1] = 1.00390625F;  // half-way: to the even one below
  x[2] = 1.01171875F;  // half-way: to the even one above
  x[4097] = std::bit_cast<float>(0x7f800001U);
  const auto codec = make_codec("bf16");
  const std::vector<float> y = test::decode(*codec, test::encode(*codec, x), x.size());
  EXPECT_EQ(y[1], 1.0F);
  EXPECT_EQ(y[2], 1.015625F);
  EXPECT_TRUE(std::isnan(y[4097]));
  // Of 8 bits of precision, half of the last is 2^-8 of the value at most.
  for (std::size_t i = 0; i < 4097; ++i) {
    EXPECT_LE(std::abs(y[i] - x[i]), std::abs(x[i]) * 0x1p-8F) << i;
  }
}

TEST(Codec, Int8IsWithinHalfAStep) {
  for (const std::size_t n : kCodecSizes) {
    const std::vector<float> x = codec_values(n, 4);
    const auto codec = make_codec("int8");
    const std::vector<float> y = test::decode(*codec, test::encode(*codec, x), n);
    for (std::size_t begin = 0; begin < n; begin += 256) {
      const std::size_t end = std::min(begin + 256, n);
      const float largest = largest_of(std::span(x).subspan(begin, end - begin));
      // Half a step; and scale, inverse, x * inverse and code * scale are rounded once each, of at
      // most `largest`.
      const float bound = largest / 254 + 4 * 0x1p-24F * largest;
      for (std::size_t i = begin; i < end; ++i) ASSERT_LE(std::abs(y[i] - x[i]), bound) << i;
    }
  }
}

TEST(Codec, E3m0IsTheNearestOfItsPowersOfTwo) {
  for (const std::size_t n : kCodecSizes) {
    const std::vector<float> x = codec_values(n, 5);
    const auto codec = make_codec("e3m0");
    const std::vector<float> y = test::decode(*codec, test::encode(*codec, x), n);
    for (std::size_t begin = 0; begin < n; begin += 512) {
      const std::size_t end = std::min(begin + 512, n);
      const float largest = largest_of(std::span(x).subspan(begin, end - begin));
      for (std::size_t i = begin; i < end; ++i) {
        // A value between two powers is at most a third of itself from one of them. The top power
        // is at most 4/3 of the largest value, the lowest 1/64 of that; half of it may become zero.
        const float bound = std::max(std::abs(x[i]) / 3, largest / 96) * (1 + 0x1p-22F);
        ASSERT_LE(std::abs(y[i] - x[i]), bound) << i;
        int exponent = 0;
        ASSERT_TRUE(y[i] == 0 || std::abs(std::frexp(y[i], &exponent)) == 0.5F) << i;
      }
    }
  }
}

TEST(Codec, E3m0KeepsWhatItCanSay) {
  const auto codec = make_codec("e3m0");
  for (const std::size_t n : {std::size_t{15}, std::size_t{128}, std::size_t{640}}) {
    std::vector<float> x(n, 0.0F);
    for (std::size_t i = 0; i < n; ++i) {
      const int level = static_cast<int>(i % 15) - 7;
      if (level != 0)
        x[i] = std::copysign(std::ldexp(1.0F, std::abs(level) - 40), static_cast<float>(level));
    }
    EXPECT_EQ(test::decode(*codec, test::encode(*codec, x), n), x) << n;
  }
}

TEST(Codec, TopKKeepsTheLargestAtTheirBinsMeans) {
  const auto codec = make_codec("topk:4/16");
  //                      small: 1.25 in the mean          large: 8, above 1.5 * 4.14
  std::vector<float> x(16, 0.25F);
  x[3] = -1;
  x[9] = 1.5F;
  x[10] = -8;
  x[15] = 1.25F;
  std::vector<float> right(16, 0.0F);
  right[3] = right[9] = right[15] = 1.25F;
  right[3] = -1.25F;
  right[10] = -8;
  EXPECT_EQ(test::decode(*codec, test::encode(*codec, x), 16), right);
}

TEST(Codec, TopKOfEqualValuesTakesTheFirst) {
  const auto codec = make_codec("topk:2/16");
  std::vector<float> x(16, 3.0F);
  std::vector<float> right(16, 0.0F);
  right[0] = right[1] = 3;
  EXPECT_EQ(test::decode(*codec, test::encode(*codec, x), 16), right);
  x[5] = -4;
  right = std::vector<float>(16, 0.0F);
  right[0] = 3.5F;  // one bin: both are below 1.5 * 3.54
  right[5] = -3.5F;
  EXPECT_EQ(test::decode(*codec, test::encode(*codec, x), 16), right);
}

TEST(Codec, SignPruneLeavesOutTheOtherSignThenTheSmallest) {
  const std::vector<float> x = {-1, 8, 2, -3, 0.5F, 4, -0.25F, 1};
  const auto kept = [&](const char* name, std::vector<float> right) {
    const auto codec = make_codec(name);
    EXPECT_EQ(test::decode(*codec, test::encode(*codec, x), x.size()), right) << name;
    std::vector<float> negative = x;
    for (float& value : negative) value = -value;
    for (float& value : right) value = value == 0 ? 0 : -value;
    EXPECT_EQ(test::decode(*codec, test::encode(*codec, negative), x.size()), right) << name;
  };
  kept("sign_prune:25", {0, 8, 2, -3, 0.5F, 4, 0, 1});
  kept("sign_prune:50", {0, 8, 2, 0, 0, 4, 0, 1});
  kept("sign_prune:75", {0, 8, 0, 0, 0, 4, 0, 0});
}

TEST(Codec, CutBetweenBlocksGivesTheSameBytes) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    const std::size_t block = codec->block_elements();
    const std::vector<float> x = codec_values(3 * block + 5, 6);
    std::vector<std::byte> pieces;
    for (std::size_t begin = 0; begin < x.size(); begin += block) {
      const std::size_t end = std::min(begin + block, x.size());
      const std::vector<std::byte> piece = test::encode(*codec, {x.data() + begin, x.data() + end});
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(pieces, test::encode(*codec, x)) << name;
  }
}

TEST(Codec, DecodeAddIsDecodeThenMultiplyThenAdd) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    for (const std::size_t n : kCodecSizes) {
      const std::vector<std::byte> bytes = test::encode(*codec, codec_values(n, 7));
      const std::vector<float> values = test::decode(*codec, bytes, n);
      std::vector<float> sum = codec_values(n, 8);
      std::vector<float> right = sum;
      const float weight = 0.3F;
      for (std::size_t i = 0; i < n; ++i) {
        const float product = weight * values[i];
        right[i] += product;
      }
      codec->decode_add(bytes, weight, sum);
      EXPECT_EQ(bits_of(sum), bits_of(right)) << name << " " << n;
    }
  }
}

TEST(Codec, WhatIsNotSaidStaysInTheError) {
  constexpr std::size_t kN = 5000;
  constexpr int kRounds = 6;
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    const double decay = codec->wants_error() ? 0.95F : 1;
    std::vector<float> error(kN, 0.0F);
    std::vector<double> residual(kN, 0.0);  // decay * residual + x - said, in double
    std::vector<double> magnitude(kN, 0.0);
    std::vector<std::byte> bytes;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<float> x = codec_values(kN, 100 + static_cast<std::uint64_t>(round));
      codec->encode(x, error, bytes);
      const std::vector<float> said = test::decode(*codec, bytes, kN);
      for (std::size_t i = 0; i < kN; ++i) {
        residual[i] = decay * residual[i] + x[i] - said[i];
        magnitude[i] += std::abs(x[i]) + std::abs(said[i]) + std::abs(error[i]);
      }
    }
    // Three roundings a round, each of a number no larger than what was added up by then.
    for (std::size_t i = 0; i < kN; ++i) {
      ASSERT_NEAR(error[i], residual[i], 3 * kRounds * 0x1p-24 * magnitude[i]) << name << " " << i;
    }
  }
}

TEST(Codec, OnlyTopKWantsAnError) {
  for (const std::string& name : kCodecSettings) {
    EXPECT_EQ(make_codec(name)->wants_error(), name.starts_with("topk")) << name;
  }
}

TEST(Codec, NothingIsMadeOfNothing) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    for (const float zero : {0.0F, -0.0F, 1e-42F}) {
      const std::vector<float> x(5000, zero);
      const std::vector<float> y = test::decode(*codec, test::encode(*codec, x), x.size());
      if (name == "f32" || (name == "bf16" && zero == 0)) {
        EXPECT_EQ(bits_of(y), bits_of(x)) << name;
      } else {
        EXPECT_LE(largest_of(y), 0x1p-100F) << name;
      }
    }
  }
}

TEST(Codec, BlocksBelowTheSmallestScaleAreOfZeros) {
  for (const char* name : {"int8", "int4", "e3m0"}) {
    const auto codec = make_codec(name);
    const std::vector<float> x(700, 0x1.fffffep-101F);
    EXPECT_EQ(largest_of(test::decode(*codec, test::encode(*codec, x), x.size())), 0) << name;
  }
}

TEST(Codec, LargestAndSmallestScalesComeBack) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    for (const float scale : {0x1.fffffep125F, 0x1p-100F}) {
      std::vector<float> x = codec_values(3000, 9);
      const float largest = largest_of(x);
      for (float& value : x) value = value / largest * scale;
      const std::vector<float> y = test::decode(*codec, test::encode(*codec, x), x.size());
      EXPECT_TRUE(std::isfinite(largest_of(y))) << name;
      if (codec->wants_error()) {  // means of a bin
        EXPECT_GT(largest_of(y), 0) << name;
      } else {
        EXPECT_NEAR(largest_of(y) / scale, 1, 1.0 / 3 + 1e-6) << name;
      }
    }
  }
}

TEST(Codec, NotFiniteIsRefusedByThoseWithScales) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 0x1p126F,
                            -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {0, 255, 4999}) {
        std::vector<float> x = codec_values(5000, 10);
        x[at] = bad;
        std::vector<float> error(x.size(), 0.0F);
        std::vector<std::byte> bytes;
        if (name == "f32" || name == "bf16") {
          codec->encode(x, error, bytes);
          continue;
        }
        EXPECT_THAT(message_of([&] { codec->encode(x, error, bytes); }, ErrorKind::kNumeric),
                    HasSubstr("finite values below 2^126"))
            << name;
      }
    }
  }
}

}  // namespace
}  // namespace atl::compress
