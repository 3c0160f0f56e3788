// The GPU that the host plays has no cuDNN: what the library was told is done here, with ref.

#include <cstring>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/ops/attention/ref.h"
#include "atoll/ops/attention/sdpa.h"

namespace atl::ops::cuda {

namespace {

// Calls fn(place in the operand's memory, place in a dense (batch, rows, heads, elements)).
template <typename Fn>
void for_each_element(const SdpaTensor& tensor, Fn&& fn) {
  const auto& [batch, heads, rows, elements] = tensor.dims;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t d = 0; d < elements; ++d) {
          fn(b * tensor.strides[0] + h * tensor.strides[1] + t * tensor.strides[2] +
                 d * tensor.strides[3],
             ((b * rows + t) * heads + h) * elements + d);
        }
      }
    }
  }
}

// One operand as ref has it: in a row of its own, or in a part of the row of qkv.
struct Place {
  Tensor rows;                // (batch, length, width)
  std::int64_t begin = 0;     // of the operand in a row
  std::int64_t elements = 0;  // of the operand in a row
};

template <typename T>
void move(const SdpaTensor& tensor, void* memory, const Place& place) {
  auto* theirs = static_cast<T*>(memory);
  T* ours = place.rows.data<T>();
  const std::int64_t width = place.rows.dim(-1);
  for_each_element(tensor, [&](std::int64_t at, std::int64_t dense) {
    T& own = ours[dense / place.elements * width + place.begin + dense % place.elements];
    if (tensor.is_written) {
      theirs[at] = own;
    } else {
      own = theirs[at];
    }
  });
}

// Statistics of rows are (batch, heads, rows) here and there, so their dense order is another one.
void move_stats(const SdpaTensor& tensor, void* memory, const Tensor& lse) {
  auto* theirs = static_cast<float*>(memory);
  const std::int64_t heads = tensor.dims[1], rows = tensor.dims[2];
  for_each_element(tensor, [&](std::int64_t at, std::int64_t dense) {
    const std::int64_t h = dense % heads, row = dense / heads;
    float& own = lse.data<float>()[(row / rows * heads + h) * rows + row % rows];
    if (tensor.is_written) {
      theirs[at] = own;
    } else {
      own = theirs[at];
    }
  });
}

template <typename T>
struct Dense {
  Dense(Shape shape, T value)
      : values(static_cast<std::size_t>(shape.num_elements()), value), spec{dtype_of<T>(), shape} {}
  Tensor view() { return {values.data(), spec}; }

  std::vector<T> values;
  Spec spec;
};

// All operands of a call, dense.
class DenseOperands {
 public:
  explicit DenseOperands(const SdpaCall& call)
      : call_(call),
        heads_{call.heads, call.kv_heads, call.head_dim},
        qkv_({call.batch, call.length, heads_.qkv_width()}, Bf16{}),
        dqkv_(qkv_.spec.shape, Bf16{}),
        out_({call.batch, call.length, heads_.query_width()}, Bf16{}),
        dout_(out_.spec.shape, Bf16{}),
        lse_({call.batch, call.heads, call.length}, 0) {}

  // Those that the call reads, or those that it writes.
  void move_all(const SdpaAddresses& addresses, bool written) {
    for (const SdpaTensor& tensor : sdpa_tensors(call_)) {
      if (tensor.is_written != written) continue;
      void* memory = addresses[tensor.operand];
      ATOLL_CHECK(memory != nullptr, "cuDNN is given no {}", sdpa_name(tensor.operand));
      if (tensor.operand == SdpaOperand::kStats) {
        move_stats(tensor, memory, lse_.view());
      } else {
        move<Bf16>(tensor, memory, place_of(tensor.operand));
      }
    }
  }

  void compute(Run& run) {
    const double scale = call_.scale;
    if (!call_.is_backward) {
      return ref::attention_forward<Bf16>(run, heads_, scale, {}, qkv_.view(), out_.view(),
                                          lse_.view());
    }
    ref::attention_backward<Bf16>(run, heads_, scale, {}, qkv_.view(), out_.view(), lse_.view(),
                                  dout_.view(), dqkv_.view());
  }

 private:
  Place place_of(SdpaOperand operand) {
    const std::int64_t queries = heads_.query_width(), keys = heads_.kv_width();
    switch (operand) {
      case SdpaOperand::kQ:
        return {qkv_.view(), 0, queries};
      case SdpaOperand::kK:
        return {qkv_.view(), queries, keys};
      case SdpaOperand::kV:
        return {qkv_.view(), queries + keys, keys};
      case SdpaOperand::kOut:
        return {out_.view(), 0, queries};
      case SdpaOperand::kDout:
        return {dout_.view(), 0, queries};
      case SdpaOperand::kDq:
        return {dqkv_.view(), 0, queries};
      case SdpaOperand::kDk:
        return {dqkv_.view(), queries, keys};
      case SdpaOperand::kDv:
        return {dqkv_.view(), queries + keys, keys};
      case SdpaOperand::kStats:
        break;
    }
    ATOLL_CHECK(false, "{} lies in no row", sdpa_name(operand));
    return {};
  }

  SdpaCall call_;
  HeadLayout heads_;
  Dense<Bf16> qkv_, dqkv_, out_, dout_;
  Dense<float> lse_;
};

// ref asks for a Run of the host; this one uses the threads of the GPU that is played.
class HostOfThreads final : public Device {
 public:
  explicit HostOfThreads(ThreadPool& threads) : threads_(threads) {}
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "the host of a fake GPU"; }
  std::size_t total_memory() const override { return 0; }
  void* allocate(std::size_t /*bytes*/) override { return nullptr; }
  void deallocate(void* /*data*/, std::size_t /*bytes*/) noexcept override {}
  ThreadPool& threads() override { return threads_; }

 private:
  ThreadPool& threads_;
};

}  // namespace

void play_attend(ThreadPool& threads, const SdpaCall& call, const SdpaAddresses& addresses,
                 void* workspace) {
  constexpr int kPoison = 0xff;
  std::memset(workspace, kPoison, sdpa_workspace_bytes(call));
  DenseOperands operands(call);
  operands.move_all(addresses, /*written=*/false);
  HostOfThreads host(threads);
  Stream stream(host);
  Run run = {.stream = &stream};
  operands.compute(run);
  operands.move_all(addresses, /*written=*/true);
}

}  // namespace atl::ops::cuda
