// Bytes that no encoder wrote.

#include <gtest/gtest.h>

#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/testing.h"

namespace atl::compress {
namespace {

using test::codec_values;
using test::kCodecSettings;

// Decodes into the middle of a larger vector. True when they were taken; then, for codecs with
// scales, every value is finite. Elements beside the middle must not change.
bool decodes(const Codec& codec, std::span<const std::byte> bytes, std::size_t n) {
  constexpr std::size_t kMargin = 64;
  std::vector<float> room(n + 2 * kMargin, -7);
  const std::span<float> out = std::span(room).subspan(kMargin, n);
  bool is_taken = true;
  try {
    codec.decode(bytes, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged) << error.what();
    EXPECT_NE(std::string(error.what()).find("codec"), std::string::npos) << error.what();
    is_taken = false;
  }
  for (std::size_t i = 0; i < kMargin; ++i) {
    EXPECT_EQ(room[i], -7);
    EXPECT_EQ(room[kMargin + n + i], -7);
  }
  const bool takes_all = codec.name() == "f32" || codec.name() == "bf16";
  for (std::size_t i = 0; is_taken && !takes_all && i < n; ++i) {
    EXPECT_LE(std::abs(out[i]), 0x1p127F) << codec.name();
  }
  return is_taken;
}

TEST(DamagedCodecBytes, EveryPrefixIsRefused) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    const std::size_t n = 700;
    std::vector<std::byte> bytes = test::encode(*codec, codec_values(n, 1));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_FALSE(decodes(*codec, std::span(bytes).first(size), n)) << name << " " << size;
    }
    bytes.push_back({});
    EXPECT_FALSE(decodes(*codec, bytes, n)) << name;
    EXPECT_FALSE(decodes(*codec, bytes, 0)) << name;
  }
}

TEST(DamagedCodecBytes, EveryFlippedBitIsRefusedOrStaysInRange) {
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    const std::size_t n = 300;
    const std::vector<std::byte> bytes = test::encode(*codec, codec_values(n, 2));
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::vector<std::byte> flipped = bytes;
      flipped[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
      decodes(*codec, flipped, n);
    }
  }
}

TEST(DamagedCodecBytes, GarbageIsRefusedOrStaysInRange) {
  const RngStream stream(3, RngPurpose::kSynthetic);
  std::uint64_t next = 0;
  for (const std::string& name : kCodecSettings) {
    const auto codec = make_codec(name);
    for (int i = 0; i < 300; ++i) {
      const std::size_t n = stream.word(next++) % 600;
      std::vector<std::byte> bytes(codec->max_bytes(static_cast<std::int64_t>(n)));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(stream.word(next++));
      decodes(*codec, bytes, n);
    }
  }
}

TEST(DamagedCodecBytes, WhatCannotBeIsRefused) {
  const auto refused = [](const char* name, std::size_t n, std::size_t at, std::uint8_t byte) {
    const auto codec = make_codec(name);
    std::vector<std::byte> bytes = test::encode(*codec, codec_values(n, 4));
    ASSERT_TRUE(decodes(*codec, bytes, n)) << name;
    bytes[at] = static_cast<std::byte>(byte);
    EXPECT_FALSE(decodes(*codec, bytes, n)) << name << " " << at;
  };
  refused("int8", 300, 3, 0xff);        // a negative scale, or not a number
  refused("int8", 300, 260 + 3, 0x7f);  // above the limit
  refused("int4", 300, 3, 0xff);        // a negative scale, or not a number
  refused("int4", 300, 3, 0x7f);        // above the limit
  refused("int4", 300, 4 + 5, 0x08);    // a code that is never written
  refused("e3m0", 300, 0, 26);          // exponents that are never written
  refused("e3m0", 300, 0, 254);
  refused("e3m0", 128, 1 + 7, 0x7f);      // 63 bits that are no 16 digits
  refused("e3m0", 7, 1, 0xf0);            // a sixteenth symbol
  refused("topk:4/16", 16, 1, 0x80);      // a negative magnitude
  refused("topk:4/16", 16, 3, 0x7f);      // one above the limit
  refused("topk:4/16", 16, 4, 0xff);      // an index beyond the chunk
  refused("topk:16/16", 16, 4, 0x01);     // the same index twice
  refused("sign_prune:50", 16, 0, 0xff);  // more kept than can be
  refused("sign_prune:50", 2, 0, 0x04);   // of elements that are not there
  refused("sign_prune:50", 16, 3, 0x7f);  // a value above the limit
}

}  // namespace
}  // namespace atl::compress
