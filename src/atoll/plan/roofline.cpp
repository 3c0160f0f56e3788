#include "atoll/plan/roofline.h"

#include <fmt/format.h>

#include <string_view>

#include "atoll/nn/models/family.h"

namespace atl::plan {

namespace {

// In all blocks of a model, and behind them.
std::int64_t calls_of(std::string_view op, const nn::ModelConfig& model) {
  const nn::ExpertShape& experts = model.experts;
  std::int64_t sparse = 0;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (experts.has_experts(layer)) ++sparse;
  }
  const auto starts = [&](std::string_view with) { return op.starts_with(with); };
  if (starts("head/")) return 1;
  if (starts("rms_norm/") || starts("layer_norm/")) {
    return nn::find_family(model.family, "a plan").block_norms * model.num_layers + 1;
  }
  if (starts("expert_up/") || starts("expert_down/")) return sparse * experts.num_experts;
  if (starts("router/") || starts("expert_")) return sparse;
  const bool is_mlp = starts("mlp_") || starts("swiglu/") || starts("geglu/") || starts("gelu/");
  return is_mlp ? model.num_layers - sparse : model.num_layers;
}

}  // namespace

std::vector<RooflineRow> roofline(const Figures& figures, const nn::ModelConfig& model,
                                  const OpSizes& sizes) {
  std::vector<RooflineRow> rows;
  for (const OpCase& op : training_op_cases(model, sizes)) {
    const std::int64_t calls = calls_of(op.name, model);
    if (calls == 0) continue;
    const auto times = static_cast<double>(calls);
    rows.push_back({op.name, calls, times * op.amount, op.bound == OpCase::Bound::kArithmetic,
                    times * seconds_of(figures, op)});
  }
  return rows;
}

std::string roofline_table(const std::vector<RooflineRow>& rows) {
  double sum = 0;
  for (const RooflineRow& row : rows) sum += row.seconds;
  std::string text =
      fmt::format("  {:<30} {:>6} {:>14} {:>10} {:>6}\n", "op", "calls", "amount", "ms", "share");
  for (const RooflineRow& row : rows) {
    const std::string amount = row.is_arithmetic ? fmt::format("{:.1f} GFLOP", row.amount / 1e9)
                                                 : fmt::format("{:.1f} MB", row.amount / 1e6);
    text += fmt::format("  {:<30} {:>6} {:>14} {:>10.3f} {:>5.1f}%\n", row.name, row.calls, amount,
                        1e3 * row.seconds, 100 * row.seconds / sum);
  }
  text += fmt::format("  {:<30} {:>6} {:>14} {:>10.3f}\n", "in all", "", "", 1e3 * sum);
  return text;
}

}  // namespace atl::plan
