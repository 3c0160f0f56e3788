// Stands in for ops/amx where there is none; nothing calls it.

#include "atoll/base/check.h"
#include "atoll/ops/cpu/amx_tiles.h"

namespace atl::ops::cpu {

namespace {

// simd::has_amx() is false here, so that nothing calls these.
[[noreturn]] void refuse() {
  ATOLL_CHECK(false, "tiles of AMX on another architecture");
}

}  // namespace

AmxScope::AmxScope() {
  refuse();
}
AmxScope::~AmxScope() = default;
void amx_multiply(const AmxProduct&) {
  refuse();
}
void amx_pack_right(AmxSource, std::int64_t, std::int64_t, std::int64_t, Bf16*) {
  refuse();
}
void amx_pack_right_transposed(AmxSource, std::int64_t, std::int64_t, std::int64_t, Bf16*) {
  refuse();
}
void amx_pack_left_transposed(AmxSource, std::int64_t, std::int64_t, std::int64_t, bool, Bf16*) {
  refuse();
}
void amx_pack_left(AmxSource, std::int64_t, std::int64_t, std::int64_t, bool, Bf16*) {
  refuse();
}
double amx_tile_loop(std::int64_t) {
  refuse();
}

}  // namespace atl::ops::cpu
