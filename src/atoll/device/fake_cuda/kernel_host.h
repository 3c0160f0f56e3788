#pragma once

// device/cuda/kernel.h for a host's compiler: what kernels call, with all of it checked.

#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "atoll/device/fake_cuda/block.h"

#define ATOLL_DEVICE inline
#define ATOLL_HOST_AND_DEVICE inline
#define ATOLL_UNROLL
#define ATOLL_NO_UNROLL

#include "atoll/device/cuda/fp8_bits.h"

namespace atl::cuda {

using fake_cuda::Block;
using fake_cuda::kWarp;
using fake_cuda::Where;

inline int thread() {
  return Block::current().thread();
}
inline int num_threads() {
  return static_cast<int>(Block::current().shape().threads);
}
inline int lane() {
  return thread() % kWarp;
}
inline int warp() {
  return thread() / kWarp;
}
inline int block_x() {
  return static_cast<int>(Block::current().x());
}
inline int block_y() {
  return static_cast<int>(Block::current().y());
}
inline int num_blocks_x() {
  return static_cast<int>(Block::current().shape().blocks_x);
}
inline void sync_block(Where where = Where::current()) {
  Block::current().meet_block(where);
}
inline void sync_warp(Where where = Where::current()) {
  Block& block = Block::current();
  block.meet_warp("sync_warp", "", 0, where);
  block.order_warp();
}

/// What `lane` brought to the warp's last meeting.
template <typename T>
T posted_by(int lane) {
  T value;
  std::memcpy(static_cast<void*>(&value), Block::current().posted(lane), sizeof value);
  return value;
}
template <typename T>
T shuffle_xor(T value, int mask, Where where = Where::current()) {
  Block::current().meet_warp("shuffle_xor", &value, sizeof value, where);
  return posted_by<T>((lane() ^ mask) % kWarp);
}
template <typename T>
T shuffle(T value, int from, Where where = Where::current()) {
  Block::current().meet_warp("shuffle", &value, sizeof value, where);
  return posted_by<T>(from % kWarp);
}
inline std::uint32_t ballot(bool value, Where where = Where::current()) {
  Block::current().meet_warp("ballot", &value, sizeof value, where);
  std::uint32_t bits = 0;
  for (int i = 0; i < kWarp; ++i) bits |= (posted_by<bool>(i) ? 1U : 0U) << i;
  return bits;
}
inline bool any_lane(bool value, Where where = Where::current()) {
  return ballot(value, where) != 0;
}

/// N elements that are moved by one instruction of at most 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
  T& operator[](int i) { return values[i]; }
  const T& operator[](int i) const { return values[i]; }
};

/// Memory of the device, `size` elements; an access outside is an error, as is one of N elements
/// that are not aligned to their bytes.
template <typename T>
struct Global {
  using Element = std::remove_const_t<T>;
  T* data = nullptr;
  std::int64_t size = 0;

  T* at(std::int64_t i, int count, Where where) const {
    if (i < 0 || i + count > size ||
        reinterpret_cast<std::uintptr_t>(data + i) %
                (static_cast<std::size_t>(count) * sizeof(T)) !=
            0) [[unlikely]] {
      Block::current().fail_access(i, count, size, "the device's memory", where);
    }
    return data + i;
  }
  Element load(std::int64_t i, Where where = Where::current()) const {
    const T* from = at(i, 1, where);
    Block::current().note_read(from, sizeof(T), where);
    return *from;
  }
  void store(std::int64_t i, Element value, Where where = Where::current()) const {
    T* to = at(i, 1, where);
    Block::current().note_write(to, sizeof(T), where);
    *to = value;
  }
  template <int N>
  Pack<Element, N> load(std::int64_t i, Where where = Where::current()) const {
    const T* from = at(i, N, where);
    Block::current().note_read(from, N * sizeof(T), where);
    Pack<Element, N> pack;
    std::memcpy(static_cast<void*>(&pack), from, sizeof pack);
    return pack;
  }
  template <int N>
  void store(std::int64_t i, const Pack<Element, N>& pack, Where where = Where::current()) const {
    T* to = at(i, N, where);
    Block::current().note_write(to, N * sizeof(T), where);
    std::memcpy(static_cast<void*>(to), &pack, sizeof pack);
  }
};

/// Memory of the block; races and accesses outside are errors.
template <typename T>
struct Shared {
  T* data = nullptr;
  int size = 0;

  T* at(int i, int count, Where where) const {
    if (i < 0 || i + count > size ||
        reinterpret_cast<std::uintptr_t>(data + i) %
                (static_cast<std::size_t>(count) * sizeof(T)) !=
            0) [[unlikely]] {
      Block::current().fail_access(i, count, size, "shared memory", where);
    }
    return data + i;
  }
  T load(int i, Where where = Where::current()) const { return load<1>(i, where)[0]; }
  void store(int i, T value, Where where = Where::current()) const {
    store<1>(i, Pack<T, 1>{{value}}, where);
  }
  template <int N>
  Pack<T, N> load(int i, Where where = Where::current()) const {
    const T* from = at(i, N, where);
    Block::current().note_shared_read(from, N * sizeof(T), where);
    Pack<T, N> pack;
    std::memcpy(static_cast<void*>(&pack), from, sizeof pack);
    return pack;
  }
  template <int N>
  void store(int i, const Pack<T, N>& pack, Where where = Where::current()) const {
    T* to = at(i, N, where);
    Block::current().note_shared_write(to, N * sizeof(T), where);
    std::memcpy(static_cast<void*>(to), &pack, sizeof pack);
  }
};

/// `count` elements from byte `offset` of the block's shared memory, a multiple of 16.
template <typename T>
Shared<T> shared_memory(int offset, int count, Where where = Where::current()) {
  return {reinterpret_cast<T*>(
              Block::current().shared(offset, static_cast<std::size_t>(count) * sizeof(T), where)),
          count};
}

/// Copies N elements, 4 or 16 bytes, or writes zeroes where `is_there` is false.
template <int N, typename T, typename From>
void copy_async(const Shared<T>& to, int i, const Global<From>& from, std::int64_t j,
                bool is_there = true, Where where = Where::current()) {
  constexpr std::size_t kBytes = N * sizeof(T);
  static_assert(kBytes == 16 || kBytes == 4, "an asynchronous copy moves 16 or 4 bytes");
  const From* source = is_there ? from.at(j, N, where) : nullptr;
  if (is_there) Block::current().note_read(source, kBytes, where);
  Block::current().copy_later(to.at(i, N, where), source, kBytes, where);
}
inline void commit_copies() {
  Block::current().commit_copies();
}
template <int N>
void wait_copies(Where where = Where::current()) {
  Block::current().wait_copies(N, where);
}

/// Brings the row of 8 elements from index i on to a meeting of the warp.
template <typename T>
void post_row(const char* kind, const Shared<T>& from, int i, Where where) {
  static_assert(sizeof(T) == 2, "matrices of 16-bit elements");
  const T* row = from.at(i, 8, where);
  Block::current().note_shared_read(row, 16, where);
  std::byte own[16];
  std::memcpy(own, row, sizeof own);
  Block::current().meet_warp(kind, own, sizeof own, where);
}
template <typename T>
void load_matrices(std::uint32_t (&m)[4], const Shared<T>& from, int i,
                   Where where = Where::current()) {
  post_row("load_matrices", from, i, where);
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::memcpy(&m[matrix], Block::current().posted(8 * matrix + lane() / 4) + lane() % 4 * 4, 4);
  }
}
template <typename T>
void load_matrices_transposed(std::uint32_t (&m)[4], const Shared<T>& from, int i,
                              Where where = Where::current()) {
  post_row("load_matrices_transposed", from, i, where);
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t pair[2];
    for (int e = 0; e < 2; ++e) {
      const std::byte* row = Block::current().posted(8 * matrix + lane() % 4 * 2 + e);
      std::memcpy(&pair[e], row + lane() / 4 * 2, 2);
    }
    m[matrix] = pair[0] | (std::uint32_t{pair[1]} << 16);
  }
}

/// What a lane brings to a product of tensor cores: four elements of the sums, and parts of a and
/// b.
struct MmaFragments {
  float d[4];
  std::uint32_t a[4];
  std::uint32_t b[2];
};

/// Adds a product to the sums that the lanes have brought.
ATOLL_UNWATCHED inline void multiply_fragments(Block& block) {
  const fake_cuda::Unwatched books;
  const auto element = [](std::uint32_t pair, int i) {
    return std::bit_cast<float>(i == 0 ? pair << 16 : pair & 0xffff0000U);
  };
  float a[16][16], b[16][8];
  for (int holder = 0; holder < kWarp; ++holder) {
    MmaFragments held;
    std::memcpy(&held, block.posted(holder), sizeof held);
    const int group = holder / 4;
    const int k = holder % 4 * 2;
    for (int e = 0; e < 2; ++e) {
      a[group][k + e] = element(held.a[0], e);
      a[group + 8][k + e] = element(held.a[1], e);
      a[group][k + 8 + e] = element(held.a[2], e);
      a[group + 8][k + 8 + e] = element(held.a[3], e);
      b[k + e][group] = element(held.b[0], e);
      b[k + 8 + e][group] = element(held.b[1], e);
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sums[8];
    for (int pair = 0; pair < 4; ++pair) {
      std::memcpy(&sums[2 * pair], block.posted(row % 8 * 4 + pair) + row / 8 * 8, 8);
    }
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    }
    for (int pair = 0; pair < 4; ++pair) {
      std::memcpy(block.posted(row % 8 * 4 + pair) + row / 8 * 8, &sums[2 * pair], 8);
    }
  }
}

/// d += a b of a 16 x 16 by a 16 x 8 matrix of bf16, whose elements the lanes hold as the PTX
/// manual says of mma.m16n8k16. Products and sums are f32, in the order of k; a GPU's differ in
/// their last bits. The lane that comes last multiplies for all.
inline void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1, Where where = Where::current()) {
  const MmaFragments own = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  Block& block = Block::current();
  if (block.meet_warp("mma", &own, sizeof own, where)) multiply_fragments(block);
  std::memcpy(d, block.posted(lane()), sizeof d);
}

inline float max_or_nan(float a, float b) {
  return a != a || b != b ? a + b : a > b ? a : b;
}

/// Of interest to registers alone.
inline void compute_again(std::uint32_t&) {}

/// The bits of the nearest bf16, ties to even; NaN becomes 0x7fff.
inline std::uint16_t bf16_bits(float value) {
  if (value != value) return 0x7fff;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
/// Two in a word.
inline std::uint32_t pack_bf16(float low, float high) {
  return std::uint32_t{bf16_bits(low)} | (std::uint32_t{bf16_bits(high)} << 16);
}

inline std::uint32_t pack_e4m3(float low, float high) {
  return e4m3_bits(low) | e4m3_bits(high) << 8;
}
inline std::uint32_t pack_e5m2(float low, float high) {
  return e5m2_bits(low) | e5m2_bits(high) << 8;
}

inline std::uint32_t permute_bytes(std::uint32_t x, std::uint32_t y, int selector) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const int at = selector >> (4 * i) & 7;
    word |= ((at < 4 ? x >> (8 * at) : y >> (8 * (at - 4))) & 255U) << (8 * i);
  }
  return word;
}

/// 2^x. A GPU's differs in its last bits, and flushes what is not normal to 0.
inline float exp2_approximate(float x) {
  return std::exp2(x);
}

inline std::uint32_t add_atomic(const Global<std::uint32_t>& at, std::int64_t i,
                                std::uint32_t value, Where where = Where::current()) {
  return std::atomic_ref(*at.at(i, 1, where)).fetch_add(value, std::memory_order_relaxed);
}
inline std::uint32_t min_atomic(const Global<std::uint32_t>& at, std::int64_t i,
                                std::uint32_t value, Where where = Where::current()) {
  std::atomic_ref<std::uint32_t> word(*at.at(i, 1, where));
  std::uint32_t before = word.load(std::memory_order_relaxed);
  while (value < before && !word.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
  return before;
}

}  // namespace atl::cuda
