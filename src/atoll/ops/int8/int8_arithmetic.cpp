#include "atoll/ops/int8/int8_arithmetic.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/simd/amx.h"

namespace atl::ops {

namespace {

// In the order of Int8Arithmetic.
constexpr std::array<std::string_view, 5> kNames = {"f32", "vector", "vnni", "amx", "auto"};

std::atomic<Int8Arithmetic>& chosen() {
  static std::atomic<Int8Arithmetic> arithmetic{Int8Arithmetic::kF32};
  return arithmetic;
}

}  // namespace

Int8Arithmetic int8_arithmetic(std::int64_t rows) {
  constexpr std::int64_t kFewRows = 4;
  const Int8Arithmetic set = chosen().load(std::memory_order_relaxed);
  if (set != Int8Arithmetic::kAuto) return set;
  if (rows > kFewRows && simd::has_amx()) return Int8Arithmetic::kAmx;
  return simd::has_vnni() ? Int8Arithmetic::kVnni : Int8Arithmetic::kVector;
}

void set_int8_arithmetic(Int8Arithmetic arithmetic) {
  if (!has_int8_arithmetic(arithmetic)) {
    throw user_error(
        "--int8={}: this CPU has no {}, or its system keeps it from programs; take "
        "--int8=auto",
        int8_arithmetic_name(arithmetic),
        arithmetic == Int8Arithmetic::kAmx ? "AMX with int8" : "AVX-512 with VNNI");
  }
  chosen() = arithmetic;
}

bool has_int8_arithmetic(Int8Arithmetic arithmetic) {
  if (arithmetic == Int8Arithmetic::kAmx) return simd::has_amx();
  return arithmetic != Int8Arithmetic::kVnni || simd::has_vnni();
}

std::string_view int8_arithmetic_name(Int8Arithmetic arithmetic) {
  return kNames.at(static_cast<std::size_t>(arithmetic));
}

Int8Arithmetic int8_arithmetic_named(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  ATOLL_CHECK(found != kNames.end(), "no arithmetic of int8 is named {}", name);
  return static_cast<Int8Arithmetic>(found - kNames.begin());
}

}  // namespace atl::ops
