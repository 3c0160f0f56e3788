#include "atoll/ops/matmul/bf16_arithmetic.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/ops/matmul/cpu_amx.h"
#include "atoll/ops/matmul/cpu_bf16.h"
#include "atoll/ops/matmul/cpu_widened.h"
#include "atoll/simd/amx.h"

namespace atl::ops {

namespace {

constexpr double kWorthIt = 1.2;
constexpr std::array kAll = {Bf16Arithmetic::kF32, Bf16Arithmetic::kLibrary, Bf16Arithmetic::kAmx};
using Speedups = std::array<double, kAll.size()>;
constexpr std::array<std::string_view, kAll.size()> kNames = {"f32", "library", "amx"};
// In the order of Bf16Arithmetic.
constexpr std::array<Declined (*)(Run&, const MatmulArgs&), kAll.size()> kMultiply = {
    cpu::matmul_widened, cpu::multiply_bf16, cpu::serve_amx};

std::size_t index_of(Bf16Arithmetic arithmetic) {
  return static_cast<std::size_t>(arithmetic);
}

/// Whether it is here, by instructions for bf16.
bool is_worth_measuring(Bf16Arithmetic arithmetic) {
  if (arithmetic == Bf16Arithmetic::kAmx) return simd::has_amx();
  return arithmetic == Bf16Arithmetic::kLibrary &&
         cpu_features().find("avx512_bf16") != std::string::npos && cpu::library_has_bf16();
}
constexpr int kRepeats = 6;  // the best of them: noise only ever slows a call down

// Of a CPU, by the calling thread, which alone computes here: what else the machine does must not
// decide.
double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(Declined (*multiply)(Run&, const MatmulArgs&), Run& run, const MatmulArgs& args) {
  const double start = thread_seconds();
  multiply(run, args);
  return thread_seconds() - start;
}

Speedups measure_speedups() {
  Speedups speedups = {};
  if (std::ranges::none_of(kAll, is_worth_measuring)) return speedups;
  constexpr std::int64_t kRows = 256, kCols = 384, kTerms = 768;
  const auto device = open_device({.threads = 1});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  const Buffer a(*device, kRows * kTerms * sizeof(Bf16)), b(*device, kCols * kTerms * sizeof(Bf16));
  const Buffer c(*device, kRows * kCols * sizeof(Bf16));
  std::fill_n(static_cast<Bf16*>(a.data()), kRows * kTerms, to_bf16(1.0F));
  std::fill_n(static_cast<Bf16*>(b.data()), kCols * kTerms, to_bf16(0.5F));
  const MatmulArgs args = {{Transpose::kNT, kRows, kCols, kTerms},
                           Tensor(a.data(), {Dtype::kBf16, {kRows, kTerms}}),
                           Tensor(b.data(), {Dtype::kBf16, {kCols, kTerms}}),
                           Tensor(c.data(), {Dtype::kBf16, {kRows, kCols}}),
                           {},
                           false};
  Speedups best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int i = 0; i <= kRepeats; ++i) {
    for (const Bf16Arithmetic arithmetic : kAll) {
      if (arithmetic != Bf16Arithmetic::kF32 && !is_worth_measuring(arithmetic)) continue;
      const std::size_t at = index_of(arithmetic);
      const double seconds = seconds_of(kMultiply.at(at), run, args);
      if (i > 0) best.at(at) = std::min(best.at(at), seconds);  // the first one makes primitives
    }
  }
  for (std::size_t at = 1; at < kAll.size(); ++at) speedups.at(at) = best.front() / best.at(at);
  return speedups;
}

// -1: not set.
std::atomic<int>& chosen() {
  static std::atomic<int> arithmetic{-1};
  return arithmetic;
}

}  // namespace

double bf16_speedup(Bf16Arithmetic arithmetic) {
  static const Speedups speedups = measure_speedups();
  return speedups.at(index_of(arithmetic));
}

Bf16Arithmetic bf16_arithmetic() {
  const int set = chosen().load(std::memory_order_relaxed);
  if (set >= 0) return static_cast<Bf16Arithmetic>(set);
  Bf16Arithmetic fastest = Bf16Arithmetic::kF32;
  double speedup = 1;
  for (const Bf16Arithmetic arithmetic : kAll) {
    if (bf16_speedup(arithmetic) < kWorthIt * speedup) continue;
    fastest = arithmetic;
    speedup = bf16_speedup(arithmetic);
  }
  return fastest;
}

void set_bf16_arithmetic(Bf16Arithmetic arithmetic) {
  if (arithmetic == Bf16Arithmetic::kLibrary && !cpu::library_has_bf16()) {
    throw user_error(
        "device.bf16=library: oneDNN multiplies no bf16 on this CPU; set device.bf16=f32");
  }
  if (arithmetic == Bf16Arithmetic::kAmx && !simd::has_amx()) {
    throw user_error(
        "device.bf16=amx: this CPU has no AMX with bf16, or its system keeps it from programs; set "
        "device.bf16=auto");
  }
  chosen() = static_cast<int>(arithmetic);
}

bool has_bf16_arithmetic(Bf16Arithmetic arithmetic) {
  if (arithmetic == Bf16Arithmetic::kAmx) return simd::has_amx();
  return arithmetic == Bf16Arithmetic::kF32 || cpu::library_has_bf16();
}

void reset_bf16_arithmetic() {
  chosen() = -1;
}

std::string_view bf16_arithmetic_name(Bf16Arithmetic arithmetic) {
  return kNames.at(index_of(arithmetic));
}

Bf16Arithmetic bf16_arithmetic_named(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  ATOLL_CHECK(found != kNames.end(), "no arithmetic of bf16 is named {}", name);
  return kAll.at(static_cast<std::size_t>(found - kNames.begin()));
}

}  // namespace atl::ops
