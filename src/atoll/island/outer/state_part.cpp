#include "atoll/island/outer/state_part.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/hash.h"

namespace atl::island {

namespace {

StateHash hash_of_chunk(std::uint64_t number, std::span<const std::byte> chunk) {
  const Hash128 content = hash_bytes(chunk.data(), chunk.size());
  const std::array<std::uint64_t, 3> words = {content.high, content.low, number};
  const Hash128 mixed = hash_bytes(words.data(), sizeof(words));
  return {mixed.high, mixed.low};
}

}  // namespace

std::size_t state_chunk_bytes(std::uint64_t bytes) {
  constexpr std::size_t kEnough = 32;
  std::size_t size = std::size_t{64} << 10;
  while (size > (std::size_t{16} << 10) && size * kEnough > bytes) size /= 2;
  return size;
}

StateHash operator+(const StateHash& a, const StateHash& b) {
  return {a.high + b.high, a.low + b.low};
}

StateHash hash_of(std::span<const std::byte> sent) {
  const std::size_t chunk_bytes = state_chunk_bytes(sent.size());
  StateHash sum;
  for (std::size_t at = 0, number = 0; at < sent.size(); at += chunk_bytes, ++number) {
    const std::size_t count = std::min(chunk_bytes, sent.size() - at);
    sum = sum + hash_of_chunk(number, sent.subspan(at, count));
  }
  return sum;
}

StateHash hash_of(std::span<const float> values) {
  return hash_of(std::as_bytes(values));
}

StatePart::StatePart(std::int64_t elements, parallel::ElementRange own, int vectors)
    : elements_(elements),
      own_(own),
      vectors_(vectors),
      chunk_bytes_(state_chunk_bytes(bytes_of(elements))) {
  const std::int64_t block = block_elements(elements, vectors);
  const auto is_edge = [&](std::int64_t at) { return at % block == 0 || at == elements; };
  ATOLL_CHECK(own.begin >= 0 && own.begin <= own.end && own.end <= elements && is_edge(own.begin) &&
                  is_edge(own.end),
              "elements {} to {} of {} in blocks of {}", own.begin, own.end, elements, block);
}

std::int64_t StatePart::block_elements(std::int64_t elements, int vectors) {
  const auto bytes = static_cast<std::uint64_t>(elements * vectors) * sizeof(float);
  return static_cast<std::int64_t>(state_chunk_bytes(bytes) / sizeof(float));
}

std::uint64_t StatePart::end_chunk() const {
  if (own_.size() == 0) return first_chunk();
  return (bytes_of(own_.end) + chunk_bytes_ - 1) / chunk_bytes_;
}

// fn(place in memory, floats, bytes before it) for what lies together of the bytes from `offset`
// on: parts of a vector's part of a block.
template <typename Fn>
void StatePart::for_runs(std::uint64_t offset, std::size_t bytes, Fn fn) const {
  const std::int64_t block = static_cast<std::int64_t>(chunk_bytes_ / sizeof(float));
  std::int64_t at = static_cast<std::int64_t>(offset / sizeof(float));
  const std::int64_t end = at + static_cast<std::int64_t>(bytes / sizeof(float));
  ATOLL_CHECK(at >= own_.begin * vectors_ && end <= own_.end * vectors_,
              "floats {} to {} of a state whose part here is {} to {}", at, end,
              own_.begin * vectors_, own_.end * vectors_);
  for (std::size_t done = 0; at < end;) {
    const std::int64_t first = at / (block * vectors_) * block;  // element of the block
    const std::int64_t length = std::min(block, elements_ - first);
    const std::int64_t vector = (at - first * vectors_) / length;
    const std::int64_t in = (at - first * vectors_) % length;
    const std::int64_t count = std::min(length - in, end - at);
    fn(static_cast<std::size_t>(vector * own_.size() + first + in - own_.begin),
       static_cast<std::size_t>(count), done);
    done += static_cast<std::size_t>(count) * sizeof(float);
    at += count;
  }
}

void StatePart::read(std::span<const float> values, std::uint64_t offset,
                     std::span<std::byte> out) const {
  for_runs(offset, out.size(), [&](std::size_t place, std::size_t count, std::size_t done) {
    std::memcpy(out.data() + done, values.data() + place, count * sizeof(float));
  });
}

void StatePart::write(std::span<float> values, std::uint64_t offset,
                      std::span<const std::byte> data) const {
  for_runs(offset, data.size(), [&](std::size_t place, std::size_t count, std::size_t done) {
    std::memcpy(values.data() + place, data.data() + done, count * sizeof(float));
  });
}

StateHash StatePart::hash(std::span<const float> values) const {
  ATOLL_CHECK_EQ(values.size(), size());
  std::vector<std::byte> chunk(chunk_bytes_);
  StateHash sum;
  for (std::uint64_t number = first_chunk(); number < end_chunk(); ++number) {
    const std::uint64_t offset = number * chunk_bytes_;
    const auto count = static_cast<std::size_t>(
        std::min<std::uint64_t>(chunk_bytes_, bytes_of(own_.end) - offset));
    const std::span<std::byte> part(chunk.data(), count);
    read(values, offset, part);
    sum = sum + hash_of_chunk(number, part);
  }
  return sum;
}

}  // namespace atl::island
