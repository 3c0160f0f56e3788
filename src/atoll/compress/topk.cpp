#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"
#include "atoll/compress/magnitude.h"
#include "atoll/compress/parameters.h"
#include "atoll/compress/select.h"
#include "atoll/simd/bf16.h"

namespace atl::compress {

namespace {

constexpr std::size_t kMaxChunk = 4096;  // what an index of 12 bits can tell apart
constexpr float kErrorDecay = 0.95F;
constexpr std::uint32_t kNegative = 1;
constexpr std::uint32_t kLarge = 2;

/// Bits one after the other, from the lowest of the first byte on.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}
  void put(std::uint32_t value, int bits) {
    waiting_ |= value << num_waiting_;
    for (num_waiting_ += bits; num_waiting_ >= 8; num_waiting_ -= 8, waiting_ >>= 8) {
      *out_++ = static_cast<std::byte>(waiting_);
    }
  }
  /// What is left of the last byte is zero. Returns where the next begins.
  std::byte* finish() {
    if (num_waiting_ > 0) *out_++ = static_cast<std::byte>(waiting_);
    return out_;
  }

 private:
  std::byte* out_;
  std::uint32_t waiting_ = 0;
  int num_waiting_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* bytes) : bytes_(bytes) {}
  std::uint32_t get(int bits) {
    for (; num_waiting_ < bits; num_waiting_ += 8) {
      waiting_ |= std::to_integer<std::uint32_t>(*bytes_++) << num_waiting_;
    }
    const std::uint32_t value = waiting_ & ((1U << bits) - 1);
    waiting_ >>= bits;
    num_waiting_ -= bits;
    return value;
  }

 private:
  const std::byte* bytes_;
  std::uint32_t waiting_ = 0;
  int num_waiting_ = 0;
};

/// The four values of a chunk: plus and minus each of these.
struct Magnitudes {
  Bf16 small;
  Bf16 large;
  double edge = 0;  ///< values of at least this are large ones
};

// Four bins over six standard deviations end at -1.5, 0 and 1.5 of them; a bin's value is the mean
// of what is in it. The paper's bins are about the mean of the values; ours are about zero, as the
// mean of a pseudo-gradient's largest values is nothing but noise, and the same on both sides, so
// that two numbers tell all four.
Magnitudes quantise(std::span<const float> x, std::span<const std::uint16_t> indices) {
  double squares = 0;
  for (const std::uint16_t i : indices) squares += static_cast<double>(x[i]) * x[i];
  Magnitudes result;
  result.edge = 1.5 * std::sqrt(squares / static_cast<double>(indices.size()));
  double sums[2] = {0, 0};
  double counts[2] = {0, 0};
  for (const std::uint16_t i : indices) {
    const double magnitude = std::abs(static_cast<double>(x[i]));
    const std::size_t bin = magnitude >= result.edge ? 1 : 0;
    sums[bin] += magnitude;
    ++counts[bin];
  }
  const auto mean = [&](std::size_t bin) {
    return to_bf16(counts[bin] == 0 ? 0 : static_cast<float>(sums[bin] / counts[bin]));
  };
  result.small = mean(0);
  result.large = mean(1);
  return result;
}

// A chunk: the two magnitudes as bf16; the indices, ascending, of 12 bits each; for each a bit that
// is 1 where it is negative and one that is 1 where it is large. k of a chunk, of the last and
// shorter one as large a part, rounded up.
class TopK final : public Codec {
 public:
  TopK(int k, int chunk)
      : k_(static_cast<std::size_t>(k)), chunk_(static_cast<std::size_t>(chunk)) {}

  std::string name() const override { return fmt::format("topk:{}/{}", k_, chunk_); }
  std::size_t block_elements() const override { return chunk_; }

 protected:
  float feedback() const override { return kErrorDecay; }

  std::size_t block_bytes(std::size_t n) const override {
    const std::size_t k = kept(n);
    return n == 0 ? 0 : 2 * sizeof(Bf16) + (12 * k + 7) / 8 + (2 * k + 7) / 8;
  }

  void encode_block(std::span<const float> x, std::byte* out) const override {
    require_encodable("topk", x);
    std::int32_t keys[kMaxChunk];
    for (std::size_t i = 0; i < x.size(); ++i) keys[i] = magnitude_bits(x[i]);
    std::uint64_t bitmap[kMaxChunk / 64];
    select_largest({keys, x.size()}, kept(x.size()), bitmap);
    std::uint16_t room[kMaxChunk];
    std::size_t count = 0;
    for_each_bit(bitmap, (x.size() + 63) / 64,
                 [&](std::size_t i) { room[count++] = static_cast<std::uint16_t>(i); });
    const std::span<const std::uint16_t> indices(room, count);
    const Magnitudes magnitudes = quantise(x, indices);
    std::memcpy(out, &magnitudes.small, sizeof(Bf16));
    std::memcpy(out + sizeof(Bf16), &magnitudes.large, sizeof(Bf16));
    BitWriter index_bits(out + 2 * sizeof(Bf16));
    for (const std::uint16_t i : indices) index_bits.put(i, 12);
    BitWriter codes(index_bits.finish());
    for (const std::uint16_t i : indices) {
      const double magnitude = std::abs(static_cast<double>(x[i]));
      const std::uint32_t sign = std::signbit(x[i]) ? kNegative : 0;
      codes.put(sign | (magnitude >= magnitudes.edge ? kLarge : 0), 2);
    }
    codes.finish();
  }

  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    const float small = read_magnitude(bytes);
    const float large = read_magnitude(bytes + sizeof(Bf16));
    const float values[4] = {small, -small, large, -large};
    const std::size_t k = kept(out.size());
    bytes += 2 * sizeof(Bf16);
    BitReader index_bits(bytes);
    BitReader codes(bytes + (12 * k + 7) / 8);
    std::fill(out.begin(), out.end(), 0.0F);
    std::size_t next = 0;  // the least that the next index may be
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t index = index_bits.get(12);
      if (index < next || index >= out.size()) {
        throw damaged_error("codec {}: index {} of a chunk of {} elements, after {}", name(), index,
                            out.size(), next);
      }
      out[index] = values[codes.get(2)];
      next = index + 1;
    }
  }

 private:
  std::size_t kept(std::size_t n) const { return (k_ * n + chunk_ - 1) / chunk_; }

  float read_magnitude(const std::byte* bytes) const {
    Bf16 magnitude;
    std::memcpy(static_cast<void*>(&magnitude), bytes, sizeof(magnitude));
    if (magnitude.bits <= kLimitBits >> 16) return to_f32(magnitude);
    throw damaged_error("codec {}: a chunk has the magnitude {}", name(), to_f32(magnitude));
  }

  std::size_t k_;
  std::size_t chunk_;
};

}  // namespace

std::unique_ptr<Codec> make_topk(std::string_view parameters) {
  if (parameters.empty()) return std::make_unique<TopK>(64, 4096);
  const std::size_t slash = std::min(parameters.find('/'), parameters.size());
  const auto chunk = slash == parameters.size()
                         ? std::nullopt
                         : whole_number(parameters.substr(slash + 1), 16, kMaxChunk);
  const auto k = whole_number(parameters.substr(0, slash), 1, chunk.value_or(1));
  if (!chunk || !k) {
    throw user_error(
        "codec 'topk:{}': give topk:K/CHUNK with a CHUNK from 16 to {} and a K from 1 to CHUNK, as "
        "in topk:64/4096",
        parameters, kMaxChunk);
  }
  return std::make_unique<TopK>(*k, *chunk);
}

}  // namespace atl::compress
