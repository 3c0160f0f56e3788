#include "atoll/serve/rounded_store.h"

#include <algorithm>
#include <array>

#include "atoll/base/error.h"
#include "atoll/device/device.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/parallel/store/store_single.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"

namespace atl::serve {

namespace {

bool is_rounded(const nn::Param& param) {
  return param.as_bf16 || param.as_int8;
}

// What `value` is, of a parameter that is not int8.
Spec stored_spec(const nn::Param& param) {
  return param.as_bf16 ? Spec{Dtype::kBf16, param.spec.shape} : param.spec;
}

// Positions are added to, not multiplied with; of the other matrices every row is read whole. A
// router is small, and what it rounds would send tokens to other experts.
bool is_matrix(const nn::Param& param) {
  return param.spec.shape.rank() == 2 && !param.is_position && !param.is_router;
}

void to_f32(const ops::Int8Matrix& from, Tensor to) {
  const std::int64_t rows = to.dim(0);
  const std::int64_t columns = to.dim(1);
  const std::int64_t groups = (columns + ops::kInt8Group - 1) / ops::kInt8Group;
  const HostRead values_read(from.values), scales_read(from.scales);
  const auto* values = reinterpret_cast<const std::int8_t*>(values_read.bytes().data());
  const float* scales = scales_read.elements<float>().data();
  write_on_host<float>(to, [&](std::span<float> out) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t at = row * columns + column;
        out[static_cast<std::size_t>(at)] =
            static_cast<float>(values[at]) * scales[row * groups + column / ops::kInt8Group];
      }
    }
  });
}

// Each factor is of kInt8Group columns of the whole matrix.
void refuse_cut_groups(const nn::Param& param) {
  if (!param.cut) return;
  for (const nn::Slice& slice : param.cut->slices) {
    if (slice.column_begin % ops::kInt8Group == 0) continue;
    throw user_error(
        "--weights=int8 rounds {} in groups of {} columns, and parallel.tp = {} cuts it at column "
        "{}; take --weights=bf16, or share the model with parallel.pp",
        nn::whole_param(param).name, ops::kInt8Group, param.cut->neighbours, slice.column_begin);
  }
}

enum class Room { kWhole, kValues, kScales };

// Rounds weights on the host, whatever device keeps them: a GPU is sent what it keeps, and needs no
// memory for a whole matrix in f32.
class RoundingHost {
 public:
  explicit RoundingHost(Device& device)
      : opened_(device.kind() == DeviceKind::kCpu
                    ? nullptr
                    : open_device({.threads = device.threads().num_threads()})),
        device_(opened_ ? *opened_ : device),
        stream_(device_.open_stream()) {}

  // Memory of the host, until the next call for this room.
  Tensor room(Room which, const Spec& spec) {
    Buffer& buffer = rooms_.at(static_cast<std::size_t>(which));
    if (buffer.bytes() < spec.bytes()) buffer = Buffer(device_, spec.bytes());
    return tensor_in(buffer, spec);
  }
  // The tensor itself where the host can reach it, else room for its elements.
  Tensor seen(Room which, const Tensor& tensor) {
    return is_on_host(tensor) ? tensor : room(which, tensor.spec());
  }
  // f32 to bf16, or back, of a tensor of the host.
  void round(const Tensor& from, const Tensor& to) {
    const Tensor here = seen(Room::kValues, to);
    Run run = {.stream = stream_.get()};
    ops::convert(run, from, here);
    copy_now(here, to);
  }
  // To int8, of the parameter of this name.
  void round(const std::string& name, const Tensor& from, const ops::Int8Matrix& to) {
    const ops::Int8Matrix here = {seen(Room::kValues, to.values), seen(Room::kScales, to.scales)};
    Run run = {.stream = stream_.get()};
    try {
      ops::round_to_int8(run, from, here);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
    }
    copy_now(here.values, to.values);
    copy_now(here.scales, to.scales);
  }

 private:
  std::unique_ptr<Device> opened_;  // null: the weights are in host memory
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::array<Buffer, 3> rooms_;
};

}  // namespace

Weights parse_weights(std::string_view name) {
  if (name == "f32") return Weights::kF32;
  if (name == "bf16") return Weights::kBf16;
  if (name == "int8") return Weights::kInt8;
  if (name == "stored") return Weights::kStored;
  throw user_error("weights are kept as f32, bf16, int8 or stored, not as \"{}\"", name);
}

RoundedStore::RoundedStore(Device& device, nn::Model& model, Weights weights)
    : ParamStore(model, /*training=*/false), stream_(device.open_stream()) {
  ATOLL_CHECK(weights == Weights::kBf16 || weights == Weights::kInt8, "weights are not rounded");
  for (nn::Param* param : params()) {
    (weights == Weights::kBf16 ? param->as_bf16 : param->as_int8) = is_matrix(*param);
    if (param->as_int8) refuse_cut_groups(*param);
  }
}

void RoundedStore::request(MemoryPlan& plan, const parallel::Schedule& /*schedule*/) {
  for (const nn::Param* param : params()) {
    Requests requests;
    if (param->as_int8) {
      const Shape& shape = param->spec.shape;
      requests.int8 = plan.request_forever(param->name + " int8", "parameters",
                                           ops::int8_values_spec(shape).bytes());
      requests.scales = plan.request_forever(param->name + " factors", "parameters",
                                             ops::int8_scales_spec(shape).bytes());
    } else {
      requests.value = plan.request_forever(param->name, "parameters", stored_spec(*param).bytes());
    }
    requests_.push_back(requests);
  }
  request_fixed(plan);
}

void RoundedStore::bind(const Arena& arena) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    nn::Param& param = *params()[i];
    if (param.as_int8) {
      param.int8.values = arena.tensor(requests_[i].int8, ops::int8_values_spec(param.spec.shape));
      param.int8.scales =
          arena.tensor(requests_[i].scales, ops::int8_scales_spec(param.spec.shape));
    } else {
      param.value = arena.tensor(requests_[i].value, stored_spec(param));
    }
  }
  bind_fixed(arena);
}

void RoundedStore::fill(const parallel::FillParam& fill) {
  RoundingHost host(stream_->device());
  for (nn::Param* param : params()) {
    if (!is_rounded(*param)) {
      parallel::fill_whole(*param, param->value, fill);
      continue;
    }
    const Tensor whole = host.room(Room::kWhole, param->spec);
    parallel::fill_whole(*param, whole, fill);
    if (param->as_int8) {
      host.round(param->name, whole, param->int8);
    } else {
      host.round(whole, param->value);
    }
  }
}

std::unique_ptr<parallel::ParamStore> open_store(Device& device, nn::Model& model, Weights weights,
                                                 const KeepStored& keep) {
  if (weights == Weights::kStored) {
    ATOLL_CHECK(keep, "which weights are stored?");
    if (device.kind() != DeviceKind::kCpu) {
      throw user_error(
          "--weights=stored multiplies on a CPU alone so far; take --device=cpu, or "
          "--weights=bf16 or int8 on a GPU");
    }
    keep(model);
  }
  if (weights == Weights::kF32 || weights == Weights::kStored) {
    return std::make_unique<parallel::SingleStore>(model, /*training=*/false);
  }
  return std::make_unique<RoundedStore>(device, model, weights);
}

void round_in_place(Device& device, parallel::ParamStore& store, Weights weights) {
  if (weights == Weights::kF32 || weights == Weights::kStored) return;
  RoundingHost host(device);
  for (const nn::Param* param : store.params()) {
    if (!is_matrix(*param)) continue;
    const Tensor whole = host.seen(Room::kWhole, param->value);
    copy_now(param->value, whole);
    const Shape& shape = param->spec.shape;
    if (weights == Weights::kBf16) {
      const Tensor rounded = host.room(Room::kValues, {Dtype::kBf16, shape});
      host.round(whole, rounded);
      host.round(rounded, whole);
    } else {
      refuse_cut_groups(*param);
      const ops::Int8Matrix rounded = {host.room(Room::kValues, ops::int8_values_spec(shape)),
                                       host.room(Room::kScales, ops::int8_scales_spec(shape))};
      host.round(param->name, whole, rounded);
      to_f32(rounded, whole);
    }
    copy_now(whole, param->value);
  }
}

}  // namespace atl::serve
