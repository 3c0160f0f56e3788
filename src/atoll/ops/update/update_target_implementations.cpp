#include "atoll/ops/update/update_target.h"

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

void check_update(const char* op, const UpdateTarget& target,
                  std::initializer_list<Tensor> others) {
  const Dtype dtype = target.values.dtype();
  ATOLL_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kF64 || dtype == Dtype::kBf16,
              "{}: parameters of {}", op, target.values.spec().to_string());
  check_size(op, dtype, target.size(), {target.values});
  check_size(op, target.compute(), target.size(), others);
  if (!target.master.defined()) return;
  ATOLL_CHECK(dtype == Dtype::kBf16, "{}: {} has no use for masters", op,
              target.values.spec().to_string());
  check_size(op, Dtype::kF32, target.size(), {target.master});
}

void widen(Run& run, Tensor values, Tensor master) {
  check_size("widen", Dtype::kBf16, values.num_elements(), {values});
  check_size("widen", Dtype::kF32, values.num_elements(), {master});
  if (run.stream->device().kind() != DeviceKind::kCpu) return convert(run, values, master);
  constexpr std::int64_t kGrain = 1 << 16;
  const Bf16* from = values.data<Bf16>();
  float* to = master.data<float>();
  run.threads().run_chunked(values.num_elements(), kGrain,
                            [&](std::int64_t begin, std::int64_t end) {
                              for (std::int64_t i = begin; i < end; ++i) to[i] = to_f32(from[i]);
                            });
}

}  // namespace atl::ops
