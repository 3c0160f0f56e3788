#include "atoll/compress/codec.h"

#include <algorithm>
#include <bit>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/compress/arithmetic.h"

namespace atl::compress {

static_assert(std::endian::native == std::endian::little,
              "blocks are written as they lie in memory");

std::size_t Codec::max_bytes(std::int64_t n) const {
  ATOLL_CHECK(n >= 0, "{} elements", n);
  const auto elements = static_cast<std::size_t>(n);
  const std::size_t block = block_elements();
  return elements / block * block_bytes(block) + block_bytes(elements % block);
}

// fn(first element, elements, first byte) for each block.
template <typename Fn>
void Codec::for_blocks(std::size_t n, Fn fn) const {
  const std::size_t block = block_elements();
  const std::size_t bytes = block_bytes(block);
  std::size_t byte = 0;
  for (std::size_t begin = 0; begin < n; begin += block, byte += bytes) {
    fn(begin, std::min(block, n - begin), byte);
  }
}

void Codec::encode(std::span<const float> x, std::span<float> error,
                   std::vector<std::byte>& out) const {
  ATOLL_CHECK(error.empty() || error.size() == x.size(), "an error of {} for {} elements",
              error.size(), x.size());
  out.resize(max_bytes(static_cast<std::int64_t>(x.size())));
  if (error.empty()) return encode(x, std::span<std::byte>(out));
  const float decay = wants_error() ? feedback() : 1;
  std::vector<float> said(block_elements());
  for_blocks(x.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    const std::span<float> residual = error.subspan(begin, count);
    add_decayed(decay, x.subspan(begin, count), residual);
    encode_block(residual, out.data() + byte);
    decode_block(out.data() + byte, std::span(said).first(count));
    subtract(std::span(said).first(count), residual);
  });
}

void Codec::encode(std::span<const float> x, std::span<std::byte> out) const {
  ATOLL_CHECK(out.size() == max_bytes(static_cast<std::int64_t>(x.size())), "{} bytes of {}",
              out.size(), x.size());
  for_blocks(x.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    encode_block(x.subspan(begin, count), out.data() + byte);
  });
}

void Codec::require_size(std::size_t bytes, std::size_t n) const {
  const std::size_t right = max_bytes(static_cast<std::int64_t>(n));
  if (bytes == right) return;
  throw damaged_error("{} bytes cannot be {} elements of codec {}, which are {} bytes", bytes, n,
                      name(), right);
}

void Codec::decode(std::span<const std::byte> bytes, std::span<float> out) const {
  require_size(bytes.size(), out.size());
  for_blocks(out.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    decode_block(bytes.data() + byte, out.subspan(begin, count));
  });
}

void Codec::decode_add(std::span<const std::byte> bytes, float weight, std::span<float> sum) const {
  require_size(bytes.size(), sum.size());
  // A block stays in the first cache, so that the values never go to memory.
  std::vector<float> values(block_elements());
  for_blocks(sum.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    decode_block(bytes.data() + byte, std::span(values).first(count));
    add_weighted(weight, std::span(values).first(count), sum.subspan(begin, count));
  });
}

}  // namespace atl::compress
