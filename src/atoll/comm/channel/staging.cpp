#include "atoll/comm/channel/staging.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/comm/collectives/call_check.h"
#include "atoll/device/device.h"

namespace atl::comm {

namespace {

constexpr std::size_t kData = 0, kResult = 1, kPieces = 2;  // places in Staging::memory_

bool is_on_gpu(const Tensor& tensor) {
  return tensor.defined() && tensor.device() != nullptr &&
         tensor.device()->kind() != DeviceKind::kCpu;
}

void copy(const Tensor& from, const Tensor& to, Device& device) {
  if (from.bytes() > 0) device.copy_now(to.raw(), from.raw(), from.bytes());
}

// What a call writes on the GPU is in `host`.
void copy_back(const Tensor& host, const Tensor& tensor) {
  if (is_on_gpu(tensor)) copy(host, tensor, *tensor.device());
}

bool is_in_place(Op op) {
  return op == Op::kAllReduce || op == Op::kAllGather || op == Op::kBroadcast;
}

bool reads_data(const Collective& call) {
  return call.op != Op::kBroadcast || call.self == call.root;
}

}  // namespace

bool needs_staging(const Collective& call) {
  if (call.size() == 1 && is_in_place(call.op)) return false;
  const auto piece_is = [](const Piece& piece) { return is_on_gpu(piece.tensor); };
  return is_on_gpu(call.data) || is_on_gpu(call.result) ||
         std::any_of(call.sends.begin(), call.sends.end(), piece_is) ||
         std::any_of(call.receives.begin(), call.receives.end(), piece_is);
}

Tensor Staging::in_host_memory(std::size_t number, const Tensor& tensor, bool is_read) {
  if (!is_on_gpu(tensor)) return tensor;
  if (memory_.size() <= number) memory_.resize(number + 1);
  Room& room = memory_[number];
  if (room.bytes < tensor.bytes()) {
    room.data.reset();  // the old goes before the new is taken
    room.data.reset(new std::byte[tensor.bytes()]);
    room.bytes = tensor.bytes();
  }
  const Tensor host(room.data.get(), tensor.spec());
  if (is_read) copy(tensor, host, *tensor.device());
  return host;
}

const Collective& Staging::bring(const Collective& call) {
  staged_ = call;
  staged_.data = in_host_memory(kData, call.data, reads_data(call));
  staged_.result = in_host_memory(kResult, call.result, call.accumulate);
  std::size_t number = kPieces;
  for (Piece& piece : staged_.sends) piece.tensor = in_host_memory(number++, piece.tensor, true);
  for (Piece& piece : staged_.receives) {
    piece.tensor = in_host_memory(number++, piece.tensor, false);
  }
  return staged_;
}

void Staging::take_back(const Collective& call) {
  if (is_in_place(call.op)) copy_back(staged_.data, call.data);
  copy_back(staged_.result, call.result);
  for (std::size_t i = 0; i < call.receives.size(); ++i) {
    copy_back(staged_.receives[i].tensor, call.receives[i].tensor);
  }
}

const Collective& StagedExchange::begin(const Collective& call) {
  ATOLL_CHECK(call.op == Op::kExchange, "{}", call.to_string());
  const Collective& staged = staging_.bring(call);
  call_ = call;
  in_use_ = true;
  is_taken_back_ = false;
  return staged;
}

void StagedExchange::take_back() {
  if (is_taken_back_) return;
  staging_.take_back(call_);
  is_taken_back_ = true;
}

}  // namespace atl::comm
