#include "atoll/ops/bf16_arithmetic.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/ops/cpu/matmul_bf16.h"
#include "atoll/ops/cpu/matmul_widened.h"

namespace atl::ops {

namespace {

constexpr double kWorthIt = 1.2;
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

double measure_speedup() {
  if (cpu_features().find("avx512_bf16") == std::string::npos || !cpu::library_has_bf16()) return 0;
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
  double library = std::numeric_limits<double>::infinity(), widened = library;
  for (int i = 0; i <= kRepeats; ++i) {
    const double one = seconds_of(cpu::multiply_bf16, run, args);
    const double other = seconds_of(cpu::matmul_widened, run, args);
    if (i == 0) continue;  // makes primitives
    library = std::min(library, one);
    widened = std::min(widened, other);
  }
  return widened / library;
}

// -1: not set.
std::atomic<int>& chosen() {
  static std::atomic<int> arithmetic{-1};
  return arithmetic;
}

}  // namespace

double bf16_library_speedup() {
  static const double speedup = measure_speedup();
  return speedup;
}

Bf16Arithmetic bf16_arithmetic() {
  const int set = chosen().load(std::memory_order_relaxed);
  if (set >= 0) return static_cast<Bf16Arithmetic>(set);
  return bf16_library_speedup() >= kWorthIt ? Bf16Arithmetic::kLibrary : Bf16Arithmetic::kF32;
}

void set_bf16_arithmetic(Bf16Arithmetic arithmetic) {
  if (arithmetic == Bf16Arithmetic::kLibrary && !cpu::library_has_bf16()) {
    throw user_error(
        "device.bf16=library: oneDNN multiplies no bf16 on this CPU; set device.bf16=f32");
  }
  chosen() = static_cast<int>(arithmetic);
}

bool has_library_bf16() {
  return cpu::library_has_bf16();
}

void reset_bf16_arithmetic() {
  chosen() = -1;
}

std::string_view bf16_arithmetic_name(Bf16Arithmetic arithmetic) {
  return arithmetic == Bf16Arithmetic::kLibrary ? "library" : "f32";
}

}  // namespace atl::ops
