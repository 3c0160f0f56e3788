#include "atoll/ops/int8/cpu_tiles.h"

#include "atoll/base/check.h"

namespace atl::ops::cpu {

namespace {

// simd::has_amx() and has_vnni() are false here, so nothing calls these.
[[noreturn]] void refuse() {
  ATOLL_CHECK(false, "integer products of x86-64 on another architecture");
}

}  // namespace

void int8_slab_amx(const RoundedRows&, const Int8Slab&) {
  refuse();
}
void int8_slab_vnni(const RoundedRows&, const Int8Slab&) {
  refuse();
}
void int8_pack_rows(const std::int8_t*, std::int64_t, std::int64_t, std::int8_t*) {
  refuse();
}

}  // namespace atl::ops::cpu
