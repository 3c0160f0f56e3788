#include "atoll/data/columns/block_codec.h"

#include <fmt/format.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

#include "atoll/data/bytes/compression.h"

namespace atl::data {

namespace {

constexpr std::size_t kMaxBlock = std::numeric_limits<int>::max();

// How many times its size a block can become at most: a copy of 64 bytes takes 3 in Snappy, a byte
// of LZ4 adds 255 to a length, and deflate has a limit of 1032. zstd has hardly any.
std::size_t max_ratio(BlockCodec codec) {
  switch (codec) {
    case BlockCodec::kNone:
      return 1;
    case BlockCodec::kSnappy:
      return 32;
    case BlockCodec::kLz4:
    case BlockCodec::kLz4Hadoop:
    case BlockCodec::kLz4Frame:
      return 256;
    case BlockCodec::kGzip:
      return 1040;
    case BlockCodec::kZstd:
      return std::size_t{1} << 15;  // four bytes may be a block of 128 KiB
  }
  return 1;
}

void expect_size(std::size_t got, std::size_t wanted) {
  if (got == wanted) return;
  throw std::runtime_error(
      fmt::format("a compressed block becomes {} bytes, and should become {}", got, wanted));
}

void inflate_block(std::string_view block, char* out, std::size_t size) {
  constexpr int kGzipOrZlib = 32;
  z_stream stream = {};
  if (inflateInit2(&stream, MAX_WBITS + kGzipOrZlib) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
  stream.avail_in = static_cast<uInt>(block.size());
  stream.next_out = reinterpret_cast<Bytef*>(out);
  stream.avail_out = static_cast<uInt>(size);
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t left = stream.avail_out;
  inflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("a block of gzip is damaged");
  expect_size(size - left, size);
}

bool is_lz4(std::string_view block, char* out, std::size_t size) {
  return LZ4_decompress_safe(block.data(), out, static_cast<int>(block.size()),
                             static_cast<int>(size)) == static_cast<int>(size);
}

std::size_t big_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (const char byte : bytes.substr(0, 4))
    value = (value << 8) | static_cast<unsigned char>(byte);
  return value;
}

bool is_lz4_hadoop(std::string_view block, char* out, std::size_t size) {
  constexpr std::size_t kSizes = 8;
  while (block.size() > kSizes) {
    const std::size_t becomes = big_endian(block);
    const std::size_t takes = big_endian(block.substr(4));
    block.remove_prefix(kSizes);
    if (becomes > size || takes > block.size()) return false;
    if (!is_lz4(block.substr(0, takes), out, becomes)) return false;
    out += becomes;
    size -= becomes;
    block.remove_prefix(takes);
  }
  return block.empty() && size == 0;
}

void decode_frames(std::string_view block, char* out, std::size_t size) {
  const std::unique_ptr<Decoder> decoder = make_decoder(Compression::kLz4);
  std::size_t at = 0;
  char more = 0;  // where bytes go that should not be there
  for (bool has_ended = false; !has_ended;) {
    const std::span<char> room = at < size ? std::span(out + at, size - at) : std::span(&more, 1);
    const DecodeStep step = decoder->step(std::span(block.data(), block.size()), room);
    if (at >= size && step.produced > 0) expect_size(size + 1, size);
    if (at < size) at += step.produced;
    block.remove_prefix(step.consumed);
    has_ended = step.ended;
    if (!has_ended && step.consumed == 0 && step.produced == 0) break;
  }
  expect_size(at, size);
}

}  // namespace

void decompress_block(BlockCodec codec, std::string_view block, std::size_t size,
                      std::vector<char>& out) {
  constexpr std::size_t kSlack = 4096;
  if (block.size() > kMaxBlock || size > kMaxBlock ||
      size / max_ratio(codec) > block.size() + kSlack) {
    throw std::runtime_error(
        fmt::format("a compressed block of {} bytes says that it becomes {}", block.size(), size));
  }
  if (codec == BlockCodec::kZstd) {
    const unsigned long long stated = ZSTD_getFrameContentSize(block.data(), block.size());
    if (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != ZSTD_CONTENTSIZE_ERROR) {
      expect_size(stated, size);
    }
  }
  // Of an empty block too: decoders want a place.
  if (out.size() < size || out.empty()) out.resize(std::max<std::size_t>(size, 1));
  switch (codec) {
    case BlockCodec::kNone:
      expect_size(block.size(), size);
      std::copy(block.begin(), block.end(), out.begin());
      return;
    case BlockCodec::kSnappy: {
      std::size_t becomes = 0;
      if (snappy_uncompressed_length(block.data(), block.size(), &becomes) != SNAPPY_OK) {
        throw std::runtime_error("a block of Snappy is damaged");
      }
      expect_size(becomes, size);
      if (snappy_uncompress(block.data(), block.size(), out.data(), &becomes) != SNAPPY_OK) {
        throw std::runtime_error("a block of Snappy is damaged");
      }
      return;
    }
    case BlockCodec::kGzip:
      return inflate_block(block, out.data(), size);
    case BlockCodec::kZstd: {
      const std::size_t got = ZSTD_decompress(out.data(), size, block.data(), block.size());
      if (ZSTD_isError(got) != 0U) {
        throw std::runtime_error(
            fmt::format("a block of zstd is damaged: {}", ZSTD_getErrorName(got)));
      }
      return expect_size(got, size);
    }
    case BlockCodec::kLz4Hadoop:
      if (is_lz4_hadoop(block, out.data(), size)) return;
      [[fallthrough]];
    case BlockCodec::kLz4:
      if (!is_lz4(block, out.data(), size)) throw std::runtime_error("a block of LZ4 is damaged");
      return;
    case BlockCodec::kLz4Frame:
      return decode_frames(block, out.data(), size);
  }
}

}  // namespace atl::data
