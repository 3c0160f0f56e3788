#include "atoll/serve/int8_store.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/device/device.h"

namespace atl::serve {

Int8Store::Int8Store(Device& device, nn::Model& model)
    : ParamStore(model, /*training=*/false), stream_(device) {
  for (nn::Param* param : params()) {
    // Positions are added to, not multiplied with; of the other matrices every row is read whole.
    param->as_int8 = param->spec.shape.rank() == 2 && !param->is_position;
  }
}

void Int8Store::request(MemoryPlan& plan, const parallel::StageClock& /*clock*/) {
  for (const nn::Param* param : params()) {
    Requests requests;
    if (param->as_int8) {
      const Shape& shape = param->spec.shape;
      requests.int8 = plan.request_forever(param->name + " int8", "parameters",
                                           ops::int8_values_spec(shape).bytes());
      requests.scales = plan.request_forever(param->name + " factors", "parameters",
                                             ops::int8_scales_spec(shape).bytes());
    } else {
      requests.value = plan.request_forever(param->name, "parameters", param->spec.bytes());
    }
    requests_.push_back(requests);
  }
  request_fixed(plan);
}

void Int8Store::bind(const Arena& arena) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    nn::Param& param = *params()[i];
    if (param.as_int8) {
      param.int8.values = arena.tensor(requests_[i].int8, ops::int8_values_spec(param.spec.shape));
      param.int8.scales =
          arena.tensor(requests_[i].scales, ops::int8_scales_spec(param.spec.shape));
    } else {
      param.value = arena.tensor(requests_[i].value, param.spec);
    }
  }
  bind_fixed(arena);
}

void Int8Store::write_whole(
    const std::function<void(std::span<const parallel::WholeParam>)>& fill) {
  std::size_t largest = 0;
  for (const nn::Param* param : params()) {
    if (param->as_int8) largest = std::max(largest, param->spec.bytes());
  }
  const Buffer whole(stream_.device(), largest);
  Run run = {.stream = &stream_};
  errors_ = squares_ = 0;
  for (nn::Param* param : params()) {
    const Tensor tensor = param->as_int8 ? Tensor(whole.data(), param->spec) : param->value;
    const parallel::WholeParam one = {param, tensor};
    fill({&one, 1});
    if (!param->as_int8) continue;
    try {
      const ops::RoundingError error = ops::round_to_int8(run, tensor, param->int8);
      errors_ += error.error;
      squares_ += error.square;
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", param->name, error.what()));
    }
  }
}

void Int8Store::read_whole(
    const std::function<void(std::span<const parallel::WholeParam>)>& /*read*/) {
  ATOLL_CHECK(false, "weights that were rounded to int8 cannot be read back");
}

}  // namespace atl::serve
