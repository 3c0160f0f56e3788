#include "atoll/comm/nccl/links.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/comm/collectives/ordered_reduce.h"
#include "atoll/comm/nccl/kernels.h"
#include "atoll/comm/peer_error.h"
#include "atoll/device/cuda/runtime.h"

namespace atl::comm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLookEvery{20};

void check(ncclResult_t status, const char* what) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  cuda::check_not_lost(what);
  throw PeerError(-1, fmt::format("NCCL: {}: {} (NCCL_DEBUG=INFO says more)", what,
                                  ncclGetErrorString(status)));
}

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return ncclFloat32;
    case Dtype::kF64:
      return ncclFloat64;
    case Dtype::kBf16:
      return ncclBfloat16;
    case Dtype::kI32:
      return ncclInt32;
    case Dtype::kI64:
      return ncclInt64;
    case Dtype::kF16:
    case Dtype::kU8:
      break;
  }
  ATOLL_CHECK(false, "a sum of {}", dtype_name(dtype));
}

class NcclLinks final : public GpuLinks {
 public:
  NcclLinks(Device& device, Transport& base, double timeout_s, GpuSums sums)
      : base_(base), timeout_s_(timeout_s), sums_(sums), stream_(device.open_stream()) {}
  ~NcclLinks() override {
    for (const auto& [members, comm] : comms_) ncclCommAbort(comm);
  }
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;

  Stream& stream() override { return *stream_; }
  void connect(std::span<const int> members, int self) override;
  void begin() override { cuda::order_after_all(*stream_); }
  void exchange(std::span<const int> members, int self, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming) override;
  bool has_own_sums() const override { return sums_ == GpuSums::kNccl; }
  void all_reduce(std::span<const int> members, const Tensor& data) override;
  void reduce_scatter(std::span<const int> members, int self, const Tensor& data,
                      std::span<const std::int64_t> parts, const Tensor& result) override;
  void finish() override;
  void abort() noexcept override { aborted_ = true; }

 private:
  ncclComm_t comm_of(std::span<const int> members) const;
  ncclUniqueId share_id(std::span<const int> members, int self);
  void wait_for_state(ncclComm_t comm, const char* what, Clock::time_point deadline);
  cudaStream_t native() const { return dynamic_cast<cuda::CudaStream&>(*stream_).native(); }
  Clock::time_point deadline() const {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
  }
  [[noreturn]] void give_up(const char* what);

  Transport& base_;
  double timeout_s_;
  GpuSums sums_;
  std::unique_ptr<Stream> stream_;
  std::map<std::vector<int>, ncclComm_t> comms_;  // by members
  std::atomic<bool> aborted_{false};
};

void NcclLinks::give_up(const char* what) {
  for (const auto& [members, comm] : comms_) ncclCommAbort(comm);  // its kernels end
  comms_.clear();
  if (aborted_) throw PeerError(-1, fmt::format("{}: another call of this rank has failed", what));
  throw PeerError(
      -1, fmt::format("{} is not done after {} s: a rank's GPU does not come", what, timeout_s_));
}

// The first of the members makes it; a message of the host brings it to the others.
ncclUniqueId NcclLinks::share_id(std::span<const int> members, int self) {
  ncclUniqueId id = {};
  if (self == 0) check(ncclGetUniqueId(&id), "making an id");
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::size_t member = 1; member < members.size() && self == 0; ++member) {
    outgoing.push_back({members[member], &id, sizeof id});
  }
  if (self != 0) incoming.push_back({members[0], &id, sizeof id});
  base_.exchange(outgoing, incoming);
  return id;
}

void NcclLinks::connect(std::span<const int> members, int self) {
  const ncclUniqueId id = share_id(members, self);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that a rank that does not come is noticed
  ncclComm_t comm = nullptr;
  const auto size = static_cast<int>(members.size());
  check(ncclCommInitRankConfig(&comm, size, id, self, &config), "making a communicator");
  comms_.emplace(std::vector<int>(members.begin(), members.end()), comm);
  wait_for_state(comm, "making a communicator", deadline());
}

void NcclLinks::wait_for_state(ncclComm_t comm, const char* what, Clock::time_point deadline) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &state), what);
    if (state == ncclSuccess) return;
    check(state, what);
    if (aborted_ || Clock::now() >= deadline) give_up(what);
    std::this_thread::sleep_for(kLookEvery);
  }
}

ncclComm_t NcclLinks::comm_of(std::span<const int> members) const {
  const auto found = comms_.find(std::vector<int>(members.begin(), members.end()));
  ATOLL_CHECK(found != comms_.end(), "{} ranks have no communicator", members.size());
  return found->second;
}

void NcclLinks::exchange(std::span<const int> members, int /*self*/,
                         std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  const ncclComm_t comm = comm_of(members);
  check(ncclGroupStart(), "beginning a group of messages");
  for (const Outgoing& message : outgoing) {
    check(ncclSend(message.data, message.bytes, ncclUint8, message.to, comm, native()), "sending");
  }
  for (const Incoming& message : incoming) {
    check(ncclRecv(message.data, message.bytes, ncclUint8, message.from, comm, native()),
          "receiving");
  }
  check(ncclGroupEnd(), "ending a group of messages");
  wait_for_state(comm, "starting messages", deadline());
}

void NcclLinks::all_reduce(std::span<const int> members, const Tensor& data) {
  if (data.bytes() == 0) return;
  const ncclComm_t comm = comm_of(members);
  check(ncclAllReduce(data.raw(), data.raw(), static_cast<std::size_t>(data.num_elements()),
                      nccl_type(data.dtype()), ncclSum, comm, native()),
        "beginning a sum");
  wait_for_state(comm, "starting a sum", deadline());
}

// Parts of one size are what ncclReduceScatter takes; of others each is a sum of its own, all at
// once. Both may write where they read.
void NcclLinks::reduce_scatter(std::span<const int> members, int self, const Tensor& data,
                               std::span<const std::int64_t> parts, const Tensor& result) {
  if (data.bytes() == 0) return;
  const ncclComm_t comm = comm_of(members);
  const ncclDataType_t type = nccl_type(data.dtype());
  const auto size_of = [&](std::size_t r) {
    return static_cast<std::size_t>(parts[r + 1] - parts[r]);
  };
  bool are_even = true;
  for (std::size_t r = 1; r < members.size(); ++r) are_even = are_even && size_of(r) == size_of(0);
  if (are_even) {
    check(ncclReduceScatter(data.raw(), result.raw(), size_of(0), type, ncclSum, comm, native()),
          "beginning a sum");
  } else {
    check(ncclGroupStart(), "beginning a group of sums");
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (size_of(r) == 0) continue;
      const auto* part = static_cast<const std::byte*>(data.raw()) +
                         static_cast<std::size_t>(parts[r]) * dtype_size(data.dtype());
      // What a rank that is not the root gives as the place of the result is not used.
      void* to = static_cast<int>(r) == self ? result.raw() : nullptr;
      check(ncclReduce(part, to, size_of(r), type, ncclSum, static_cast<int>(r), comm, native()),
            "beginning a sum");
    }
    check(ncclGroupEnd(), "ending a group of sums");
  }
  wait_for_state(comm, "starting a sum", deadline());
}

void NcclLinks::finish() {
  const Clock::time_point end = deadline();
  for (;;) {
    const cudaError_t status = cudaStreamQuery(native());
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) cuda::check(status, "waiting for messages between GPUs");
    for (const auto& [members, comm] : comms_) {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(comm, &state), "asking for a communicator");
      check(state, "moving messages between GPUs");
    }
    if (aborted_ || Clock::now() >= end) give_up("a collective between GPUs");
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace

bool has_nccl() {
  return true;
}

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "asking for its version");
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

MakeGpuLinks nccl_links(Device& device, double timeout_s, GpuSums sums) {
  return [&device, timeout_s, sums](Transport& base) {
    return std::make_unique<NcclLinks>(device, base, timeout_s, sums);
  };
}

const void* ordered_reduce_kernel(Dtype dtype) {
  constexpr Dtype kOrder[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kI32, Dtype::kI64};
  for (std::size_t i = 0; i < std::size(kOrder); ++i) {
    if (kOrder[i] == dtype) return kOrderedReduceKernels[i];
  }
  return nullptr;
}

}  // namespace atl::comm
