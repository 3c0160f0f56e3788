#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "atoll/data/parquet/encodings.h"

namespace atl::data {

namespace {

[[noreturn]] void fail_short() {
  throw std::runtime_error("a page ends within its values");
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) fail_short();
    const auto here = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{here & 127U} << shift;
    if ((here & 128U) == 0) return value;
  }
  throw std::runtime_error("a number in a page has more than 64 bits");
}

std::uint64_t take_zigzag(std::string_view& bytes) {
  const std::uint64_t value = take_varint(bytes);
  return (value >> 1) ^ (~(value & 1) + 1);
}

// `width` bits, at most 64, from a bit on; what the bytes do not have is 0.
std::uint64_t bits_at(std::string_view bytes, std::size_t bit, int width) {
  if (width == 0) return 0;
  std::uint64_t value = 0;
  const std::size_t at = bit / 8;
  const auto shift = static_cast<int>(bit % 8);
  const std::size_t size = std::min<std::size_t>(sizeof(value), bytes.size() - at);
  std::memcpy(&value, bytes.data() + at, size);
  value >>= shift;
  if (shift + width > 64 && at + 8 < bytes.size()) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[at + 8])} << (64 - shift);
  }
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

struct DeltaHeader {
  std::uint64_t block = 0;
  std::uint64_t mini_blocks = 0;
  std::uint64_t total = 0;
  std::uint64_t first = 0;
};

DeltaHeader take_header(std::string_view& bytes) {
  DeltaHeader header;
  header.block = take_varint(bytes);
  header.mini_blocks = take_varint(bytes);
  header.total = take_varint(bytes);
  header.first = take_zigzag(bytes);
  constexpr std::uint64_t kMaxBlock = std::uint64_t{1} << 24;
  if (header.block == 0 || header.block > kMaxBlock || header.mini_blocks == 0 ||
      header.block % header.mini_blocks != 0 || header.block / header.mini_blocks % 8 != 0) {
    throw std::runtime_error("a page of DELTA_BINARY_PACKED has blocks of an odd size");
  }
  return header;
}

int width_of(char byte) {
  const int width = static_cast<unsigned char>(byte);
  if (width > 64)
    throw std::runtime_error("a page of DELTA_BINARY_PACKED has numbers of more than 64 bits");
  return width;
}

}  // namespace

void RleReader::begin_run() {
  if (bits_ == 0) {
    repeats_ = ~std::uint64_t{0};
    repeated_ = 0;
    return;
  }
  const std::uint64_t head = take_varint(bytes_);
  if ((head & 1) != 0) {
    const auto bits = static_cast<std::uint64_t>(bits_);
    constexpr std::uint64_t kMaxGroups = std::uint64_t{1} << 56;
    if (head >> 1 > kMaxGroups) fail_short();
    packed_ = (head >> 1) * 8;
    // Some writers leave out the padding of the last group.
    packed_ = std::min<std::uint64_t>(packed_, bytes_.size() * 8 / bits);
    if (packed_ == 0 && (head >> 1) > 0) fail_short();
    buffered_ = 0;
    buffer_ = 0;
    return;
  }
  repeats_ = head >> 1;
  const auto size = static_cast<std::size_t>((bits_ + 7) / 8);
  if (bytes_.size() < size) fail_short();
  repeated_ = 0;
  std::memcpy(&repeated_, bytes_.data(), size);
  bytes_.remove_prefix(size);
}

std::uint32_t RleReader::next_packed() {
  while (packed_ == 0) {
    begin_run();
    if (repeats_ > 0) return next();
  }
  while (buffered_ < bits_) {
    if (bytes_.empty()) fail_short();
    buffer_ |= std::uint64_t{static_cast<unsigned char>(bytes_.front())} << buffered_;
    bytes_.remove_prefix(1);
    buffered_ += 8;
  }
  const auto value = static_cast<std::uint32_t>(buffer_ & ((std::uint64_t{1} << bits_) - 1));
  buffer_ >>= bits_;
  buffered_ -= bits_;
  --packed_;
  return value;
}

DeltaReader::DeltaReader(std::string_view bytes) : bytes_(bytes) {
  const DeltaHeader header = take_header(bytes_);
  block_ = header.block;
  mini_blocks_ = header.mini_blocks;
  total_ = header.total;
  last_ = header.first;
}

void DeltaReader::begin_block() {
  min_delta_ = take_zigzag(bytes_);
  if (bytes_.size() < mini_blocks_) fail_short();
  widths_ = bytes_.substr(0, mini_blocks_);
  bytes_.remove_prefix(mini_blocks_);
}

std::int64_t DeltaReader::next() {
  if (read_ >= total_) fail_short();
  if (read_++ == 0) return static_cast<std::int64_t>(last_);
  if (left_in_mini_ == 0) {
    // The bytes of the mini-block before, whose values are whole bytes together.
    bytes_.remove_prefix(std::min(bit_ / 8, bytes_.size()));
    if (widths_.empty()) begin_block();
    width_ = width_of(widths_.front());
    widths_.remove_prefix(1);
    left_in_mini_ = block_ / mini_blocks_;
    bit_ = 0;
  }
  if ((bit_ + static_cast<std::size_t>(width_) + 7) / 8 > bytes_.size()) fail_short();
  const std::uint64_t delta = bits_at(bytes_, bit_, width_);
  bit_ += static_cast<std::size_t>(width_);
  --left_in_mini_;
  last_ += min_delta_ + delta;  // wraps, as in the writers
  return static_cast<std::int64_t>(last_);
}

std::size_t DeltaReader::encoded_bytes(std::string_view bytes) {
  const std::size_t all = bytes.size();
  const DeltaHeader header = take_header(bytes);
  const std::uint64_t mini = header.block / header.mini_blocks;
  for (std::uint64_t read = 1; read < header.total;) {
    take_zigzag(bytes);
    if (bytes.size() < header.mini_blocks) fail_short();
    const std::string_view widths = bytes.substr(0, header.mini_blocks);
    bytes.remove_prefix(header.mini_blocks);
    for (const char width : widths) {
      if (read >= header.total) break;  // no bytes stand for mini-blocks behind the last value
      const std::uint64_t size = mini * static_cast<std::uint64_t>(width_of(width)) / 8;
      if (size > bytes.size()) fail_short();
      bytes.remove_prefix(size);
      read += mini;
    }
  }
  return all - bytes.size();
}

}  // namespace atl::data
