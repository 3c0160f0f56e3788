#pragma once

// How the outer state of a fragment lies where it is sent and hashed, whole or in the parts that
// the ranks of an island have of it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/island/protocol/protocol.h"
#include "atoll/parallel/layout/element_range.h"

namespace atl::island {

/// Chunks that state of so many bytes is moved and hashed in: 32 or more of 16 KiB at least, 64 KiB
/// at most. Up to 16 are on their way side by side, and on the slowest link each must come before a
/// transfer counts as stalled.
std::size_t state_chunk_bytes(std::uint64_t bytes);

/// The hash of a state is the sum of its chunks' hashes, each mixed with the chunk's number. So
/// ranks hash what they have, and their sum says nothing of who had what.
StateHash operator+(const StateHash& a, const StateHash& b);
/// The hash of a whole state as it is sent.
StateHash hash_of(std::span<const std::byte> sent);
/// Of floats as they are sent.
StateHash hash_of(std::span<const float> values);

/// A rank's part of a fragment's outer state: `vectors` vectors, the anchor and the outer
/// optimizer's, of the elements `own`. In memory they lie one after the other. As it is sent, the
/// whole state is cut into blocks of as many elements as a chunk has, and a block has its part of
/// each vector. So a part is a run of chunks, whoever has the rest.
class StatePart {
 public:
  /// `elements`: of the whole fragment. `own` begins and ends at multiples of block_elements(), or
  /// at the fragment's end.
  StatePart(std::int64_t elements, parallel::ElementRange own, int vectors);
  /// All of it.
  StatePart(std::int64_t elements, int vectors) : StatePart(elements, {0, elements}, vectors) {}

  std::int64_t elements() const { return elements_; }
  const parallel::ElementRange& own() const { return own_; }
  bool is_whole() const { return own_.size() == elements_; }
  int vectors() const { return vectors_; }
  /// Floats in memory.
  std::size_t size() const { return static_cast<std::size_t>(own_.size() * vectors_); }
  /// Bytes of the whole state, and of a chunk of it.
  std::uint64_t bytes() const { return bytes_of(elements_); }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  /// The own chunks are [first_chunk(), end_chunk()).
  std::uint64_t first_chunk() const { return bytes_of(own_.begin) / chunk_bytes_; }
  std::uint64_t end_chunk() const;

  /// Fills `out` with the bytes from `offset` of the whole state on, which are own ones.
  void read(std::span<const float> values, std::uint64_t offset, std::span<std::byte> out) const;
  /// The other way.
  void write(std::span<float> values, std::uint64_t offset, std::span<const std::byte> data) const;
  /// What the own chunks add to the state's hash.
  StateHash hash(std::span<const float> values) const;

  /// Elements of a block, of a fragment of so many elements and vectors.
  static std::int64_t block_elements(std::int64_t elements, int vectors);

 private:
  std::uint64_t bytes_of(std::int64_t elements) const {
    return static_cast<std::uint64_t>(elements * vectors_) * sizeof(float);
  }
  template <typename Fn>
  void for_runs(std::uint64_t offset, std::size_t bytes, Fn fn) const;

  std::int64_t elements_;
  parallel::ElementRange own_;
  int vectors_;
  std::size_t chunk_bytes_;
};

}  // namespace atl::island
