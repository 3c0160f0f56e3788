// Random words in vector units, the same as RngStream's (base/rng.h), compiled once per instruction
// set: include this after hwy/highway.h in a file that foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_PHILOX_INL_H_
#undef ATOLL_OPS_CPU_PHILOX_INL_H_
#else
#define ATOLL_OPS_CPU_PHILOX_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes that hold one counter each; a call of PhiloxBlocks makes four words for every lane.
using U64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<U64>;

/// The low halves' product, in 64 bits; what is in the high halves does not matter.
HWY_INLINE V64 multiply_words(V64 a, V64 b) {
#if HWY_TARGET == HWY_SCALAR  // has no vector whose lanes could be seen as 32-bit halves
  const std::uint64_t low_half = 0xFFFFFFFFU;
  return hn::Set(U64(), (hn::GetLane(a) & low_half) * (hn::GetLane(b) & low_half));
#else
  const hn::Repartition<std::uint32_t, U64> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
#endif
}

/// Philox4x32-10 (base/rng.h) on as many counters as there are 64-bit lanes: blocks first_block,
/// first_block + 1, ... of the stream (key, salt), four words each, in order. A word lies in the
/// low half of a lane; the high halves hold rubbish until the end.
inline void PhiloxBlocks(const std::uint32_t* key, const std::uint32_t* salt,
                         std::uint64_t first_block, std::uint32_t* words) {
  const U64 d;
  const V64 low_half = hn::Set(d, 0xFFFFFFFFU);
  const V64 multiplier0 = hn::Set(d, 0xD2511F53U);
  const V64 multiplier1 = hn::Set(d, 0xCD9E8D57U);
  const V64 block = hn::Iota(d, first_block);
  V64 c0 = block;
  V64 c1 = hn::ShiftRight<32>(block);
  V64 c2 = hn::Set(d, salt[0]);
  V64 c3 = hn::Set(d, salt[1]);
  std::uint32_t key0 = key[0];
  std::uint32_t key1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const V64 p0 = multiply_words(c0, multiplier0);
    const V64 p1 = multiply_words(c2, multiplier1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, key0));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, key1));
    c1 = p1;
    c3 = p0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const V64 words01 = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
  const V64 words23 = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
  HWY_ALIGN std::uint64_t pairs[2 * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  hn::StoreInterleaved2(words01, words23, d, pairs);
  std::memcpy(words, pairs, 2 * hn::Lanes(d) * sizeof(std::uint64_t));
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_PHILOX_INL_H_
