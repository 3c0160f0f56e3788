#include "atoll/train/bf16_choice.h"

#include "atoll/base/log.h"
#include "atoll/ops/bf16_arithmetic.h"

namespace atl::train {

namespace {

// What the settings, or the steps before, say that multiplies bf16 here, else what is faster.
ops::Bf16Arithmetic choose(const TrainConfig& config, const std::string& before) {
  if (config.device.bf16 != "auto" || before.empty()) return ops::bf16_arithmetic();
  if (before == ops::bf16_arithmetic_name(ops::Bf16Arithmetic::kF32)) {
    return ops::Bf16Arithmetic::kF32;
  }
  if (ops::has_library_bf16()) return ops::Bf16Arithmetic::kLibrary;
  log::warning(
      "the run has multiplied with bf16 instructions so far, which this CPU lacks: from "
      "here on its bits are others");
  return ops::Bf16Arithmetic::kF32;
}

// Says what was chosen, and why.
void announce(const TrainConfig& config, bool is_as_before) {
  const double speedup = is_as_before ? 0 : ops::bf16_library_speedup();
  log::info("bf16 products: {} (device.bf16={}; {})",
            ops::bf16_arithmetic_name(ops::bf16_arithmetic()), config.device.bf16,
            is_as_before  ? "as in the steps before"
            : speedup > 0 ? fmt::format("the library is {:.1f} times as fast as f32", speedup)
                          : "this CPU has no bf16 instructions");
}

}  // namespace

std::string agree_on_bf16(const TrainConfig& config, const Ranks& ranks, const std::string& before,
                          int decider, const std::string& known) {
  if (config.train.dtype != "bf16") return known;
  std::int64_t choice = -1;
  if (ranks.rank() == decider) choice = static_cast<std::int64_t>(choose(config, before));
  ranks.group().broadcast({&choice, {Dtype::kI64, {1}}}, decider);
  const auto arithmetic = static_cast<ops::Bf16Arithmetic>(choice);
  ranks.world().agree([&] { ops::set_bf16_arithmetic(arithmetic); });
  std::string name(ops::bf16_arithmetic_name(arithmetic));
  if (ranks.is_lead() && known != name) {
    announce(config, config.device.bf16 == "auto" && before == name);
  }
  return name;
}

}  // namespace atl::train
