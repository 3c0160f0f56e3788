#include "atoll/train/model/bf16_choice.h"

#include "atoll/base/log.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"

namespace atl::train {

namespace {

// What the settings, or the steps before, say that multiplies bf16 here, else what is faster.
ops::Bf16Arithmetic choose(const TrainConfig& config, const std::string& before) {
  if (config.device.bf16 != "auto" || before.empty()) return ops::bf16_arithmetic();
  const ops::Bf16Arithmetic as_before = ops::bf16_arithmetic_named(before);
  if (ops::has_bf16_arithmetic(as_before)) return as_before;
  log::warning(
      "the run has multiplied with bf16 instructions so far ({}), which this CPU lacks: from "
      "here on its bits are others",
      before);
  return ops::bf16_arithmetic();
}

// How fast the others are to f32.
std::string speeds() {
  std::string text;
  for (const auto arithmetic : {ops::Bf16Arithmetic::kLibrary, ops::Bf16Arithmetic::kAmx}) {
    const double speedup = ops::bf16_speedup(arithmetic);
    if (speedup == 0) continue;
    text += fmt::format("{}{} is {:.1f} times as fast as f32", text.empty() ? "" : ", ",
                        ops::bf16_arithmetic_name(arithmetic), speedup);
  }
  return text.empty() ? "this CPU has no bf16 instructions" : text;
}

// Says what was chosen, and why.
void announce(const TrainConfig& config, bool is_as_before) {
  log::info("bf16 products: {} (device.bf16={}; {})",
            ops::bf16_arithmetic_name(ops::bf16_arithmetic()), config.device.bf16,
            is_as_before ? "as in the steps before" : speeds());
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
