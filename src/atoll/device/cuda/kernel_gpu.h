#pragma once

// device/cuda/kernel.h as nvcc has it: every name is an instruction or two.

#include <cuda_bf16.h>

#include <cstdint>

#define ATOLL_DEVICE __device__ __forceinline__
// Before the first declaration of a function that a host header defines, and that kernels call too.
#define ATOLL_HOST_AND_DEVICE __host__ __device__
// Before a loop whose count is a constant: arrays that it indexes then stay in registers.
#define ATOLL_UNROLL _Pragma("unroll")
// Before one whose copies would take too many registers.
#define ATOLL_NO_UNROLL _Pragma("unroll 1")

#include "atoll/device/cuda/fp8_bits.h"

namespace atl::cuda {

constexpr int kWarp = 32;

ATOLL_DEVICE int thread() {
  return static_cast<int>(threadIdx.x);
}
ATOLL_DEVICE int num_threads() {
  return static_cast<int>(blockDim.x);
}
ATOLL_DEVICE int lane() {
  return thread() % kWarp;
}
ATOLL_DEVICE int warp() {
  return thread() / kWarp;
}
ATOLL_DEVICE int block_x() {
  return static_cast<int>(blockIdx.x);
}
ATOLL_DEVICE int block_y() {
  return static_cast<int>(blockIdx.y);
}
ATOLL_DEVICE int num_blocks_x() {
  return static_cast<int>(gridDim.x);
}
ATOLL_DEVICE void sync_block() {
  __syncthreads();
}
ATOLL_DEVICE void sync_warp() {
  __syncwarp();
}

template <typename T>
ATOLL_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}
template <typename T>
ATOLL_DEVICE T shuffle(T value, int from) {
  return __shfl_sync(0xffffffffU, value, from);
}
ATOLL_DEVICE std::uint32_t ballot(bool value) {
  return __ballot_sync(0xffffffffU, value);
}
ATOLL_DEVICE bool any_lane(bool value) {
  return __any_sync(0xffffffffU, value) != 0;
}

/// N elements that are moved by one instruction of at most 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
  ATOLL_DEVICE T& operator[](int i) { return values[i]; }
  ATOLL_DEVICE const T& operator[](int i) const { return values[i]; }
};

/// Memory of the device, `size` elements.
template <typename T>
struct Global {
  using Element = std::remove_const_t<T>;
  T* data = nullptr;
  std::int64_t size = 0;

  ATOLL_DEVICE Element load(std::int64_t i) const { return data[i]; }
  ATOLL_DEVICE void store(std::int64_t i, Element value) const { data[i] = value; }
  template <int N>
  ATOLL_DEVICE Pack<Element, N> load(std::int64_t i) const {
    return *reinterpret_cast<const Pack<Element, N>*>(data + i);
  }
  template <int N>
  ATOLL_DEVICE void store(std::int64_t i, const Pack<Element, N>& pack) const {
    if constexpr (sizeof(Pack<Element, N>) == 16) {
      // In so many words: of a pack that was computed ptxas may make four stores of 4 bytes.
      const uint4 words = reinterpret_cast<const uint4&>(pack);
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(data + i), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
                   : "memory");
    } else {
      *reinterpret_cast<Pack<Element, N>*>(data + i) = pack;
    }
  }
};

/// Memory of the block.
template <typename T>
struct Shared {
  T* data = nullptr;

  ATOLL_DEVICE T load(int i) const { return data[i]; }
  ATOLL_DEVICE void store(int i, T value) const { data[i] = value; }
  template <int N>
  ATOLL_DEVICE Pack<T, N> load(int i) const {
    return *reinterpret_cast<const Pack<T, N>*>(data + i);
  }
  template <int N>
  ATOLL_DEVICE void store(int i, const Pack<T, N>& pack) const {
    *reinterpret_cast<Pack<T, N>*>(data + i) = pack;
  }
};

extern __shared__ __align__(16) std::uint8_t atoll_shared_memory[];

/// `count` elements from byte `offset` of the block's shared memory, a multiple of 16.
template <typename T>
ATOLL_DEVICE Shared<T> shared_memory(int offset, int) {
  return {reinterpret_cast<T*>(atoll_shared_memory + offset)};
}

/// Copies N elements, 4 or 16 bytes, or writes zeroes where `is_there` is false.
template <int N, typename T, typename From>
ATOLL_DEVICE void copy_async(const Shared<T>& to, int i, const Global<From>& from, std::int64_t j,
                             bool is_there = true) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  static_assert(kBytes == 16 || kBytes == 4, "an asynchronous copy moves 16 or 4 bytes");
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to.data + i));
  const int bytes = is_there ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from.data + j),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from.data + j),
                 "r"(bytes)
                 : "memory");
  }
}
ATOLL_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
ATOLL_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

template <typename T>
ATOLL_DEVICE void load_matrices(std::uint32_t (&m)[4], const Shared<T>& from, int i) {
  static_assert(sizeof(T) == 2, "matrices of 16-bit elements");
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from.data + i));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at)
               : "memory");
}
template <typename T>
ATOLL_DEVICE void load_matrices_transposed(std::uint32_t (&m)[4], const Shared<T>& from, int i) {
  static_assert(sizeof(T) == 2, "matrices of 16-bit elements");
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from.data + i));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(at)
               : "memory");
}

ATOLL_DEVICE void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                               std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// What is computed from `word` later is computed then, and not kept in registers until then.
ATOLL_DEVICE void compute_again(std::uint32_t& word) {
  asm volatile("" : "+r"(word));
}

ATOLL_DEVICE std::uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

ATOLL_DEVICE std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// GPUs of compute capability 8.9 run what is compiled for 8.0.
ATOLL_DEVICE std::uint32_t pack_e4m3(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return e4m3_bits(low) | e4m3_bits(high) << 8;
#else
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}
ATOLL_DEVICE std::uint32_t pack_e5m2(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return e5m2_bits(low) | e5m2_bits(high) << 8;
#else
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#endif
}

/// The larger one, or NaN where one is.
ATOLL_DEVICE float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

ATOLL_DEVICE std::uint32_t permute_bytes(std::uint32_t x, std::uint32_t y, int selector) {
  return __byte_perm(x, y, static_cast<unsigned>(selector));
}

ATOLL_DEVICE float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATOLL_DEVICE std::uint32_t add_atomic(const Global<std::uint32_t>& at, std::int64_t i,
                                      std::uint32_t value) {
  return atomicAdd(at.data + i, value);
}
ATOLL_DEVICE std::uint32_t min_atomic(const Global<std::uint32_t>& at, std::int64_t i,
                                      std::uint32_t value) {
  return atomicMin(at.data + i, value);
}

/// How many blocks a multiprocessor shall have room for in registers: a kernel's kMinBlocks. Not
/// said, 0, is not the same as 1, for which ptxas takes more registers than it does by itself.
template <typename Kernel>
constexpr int min_blocks() {
  if constexpr (requires { Kernel::kMinBlocks; })
    return Kernel::kMinBlocks;
  else
    return 0;
}

/// A kernel of the GPU: each thread calls the struct of operands.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kMaxThreads, min_blocks<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
  kernel();
}

}  // namespace atl::cuda
