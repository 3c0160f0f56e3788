#include "atoll/parallel/schedule/stage_costs.h"

#include <algorithm>
#include <limits>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

// The elements of a stage's matrices.
class Matrices final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (param.spec.shape.rank() != 2 || param.is_position) return;
    const double elements =
        static_cast<double>(param.spec.shape.num_elements()) * param.share_of_tokens;
    all += elements;
    if (!param.frozen) trained += elements;
    if (param.name.find("mlp.") != std::string::npos) mlp += elements;
  }
  double all = 0, trained = 0, mlp = 0;
};

PassCosts block_costs(const nn::Model& model, nn::Layer& block, std::int64_t layer,
                      std::int64_t context) {
  Matrices matrices;
  block.visit(matrices);
  const std::int64_t window = model.config.window(layer);
  const auto length = static_cast<double>(context);
  // As in nn::flops_per_token: twice the mean number of keys that a query sees.
  double keys = length;
  if (window > 0 && window < context) {
    const auto width = static_cast<double>(window);
    keys = 2 * width - width * width / length;
  }
  const double attention = 2 * keys * static_cast<double>(model.config.heads.query_width());
  PassCosts costs = {2 * matrices.all + attention, 2 * matrices.all + 2 * attention,
                     2 * matrices.trained};
  if (model.options.recompute == nn::RecomputeMode::kFull) costs.input += costs.forward;
  if (model.options.recompute == nn::RecomputeMode::kSelective) costs.input += 2 * matrices.mlp;
  return costs;
}

PassCosts head_costs(nn::Layer& head) {
  Matrices matrices;
  head.visit(matrices);
  return {4 * matrices.all + 2 * matrices.trained, 0, 0};
}

constexpr double kNoCut = std::numeric_limits<double>::infinity();

// The least that the most costly of `chunks` rows can cost. sums[i]: of the stages before i.
double least_maximum(const std::vector<double>& sums, std::size_t chunks) {
  std::vector<double> best(sums.size(), kNoCut);  // of the stages before i, in the rows so far
  best[0] = 0;
  for (std::size_t c = 0; c < chunks; ++c) {
    std::vector<double> next(sums.size(), kNoCut);
    for (std::size_t end = 1; end < sums.size(); ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        next[end] = std::min(next[end], std::max(best[begin], sums[end] - sums[begin]));
      }
    }
    best = next;
  }
  return best.back();
}

}  // namespace

std::vector<PassCosts> stage_costs(const nn::Model& model, std::int64_t context) {
  const auto width = static_cast<double>(model.config.hidden_size);
  std::vector<PassCosts> costs;
  std::int64_t layer = 0;
  for (std::size_t i = 0; i < model.stages.size(); ++i) {
    nn::Layer& stage = *model.stages[i];
    if (i + 1 == model.stages.size()) {
      costs.push_back(head_costs(stage));
    } else if (model.stage_names[i].starts_with("block")) {
      costs.push_back(block_costs(model, stage, layer++, context));
    } else {
      costs.push_back({width, width, width});
    }
  }
  ATOLL_CHECK_EQ(layer, model.config.num_layers);
  return costs;
}

std::vector<std::size_t> balanced_bounds(std::span<const double> costs, std::size_t chunks) {
  ATOLL_CHECK(chunks >= 1 && chunks <= costs.size(), "{} chunks of {} stages", chunks,
              costs.size());
  std::vector<double> sums = {0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  const double limit = least_maximum(sums, chunks);
  // Among the cuts whose rows are all within the limit, by dynamic programming over the last row.
  const std::size_t count = costs.size();
  std::vector<std::vector<double>> squares(chunks + 1, std::vector<double>(count + 1, kNoCut));
  std::vector<std::vector<std::size_t>> from(chunks + 1, std::vector<std::size_t>(count + 1, 0));
  squares[0][0] = 0;
  for (std::size_t c = 1; c <= chunks; ++c) {
    for (std::size_t end = c; end <= count; ++end) {
      for (std::size_t begin = c - 1; begin < end; ++begin) {
        const double row = sums[end] - sums[begin];
        if (row > limit) continue;
        const double sum = squares[c - 1][begin] + row * row;
        if (sum >= squares[c][end]) continue;
        squares[c][end] = sum;
        from[c][end] = begin;
      }
    }
  }
  std::vector<std::size_t> bounds(chunks + 1, count);
  for (std::size_t c = chunks; c > 0; --c) bounds[c - 1] = from[c][bounds[c]];
  return bounds;
}

std::vector<std::size_t> balanced_bounds(std::span<const PassCosts> costs, std::size_t chunks) {
  std::vector<double> sums;
  for (const PassCosts& cost : costs) sums.push_back(cost.forward + cost.input + cost.weight);
  return balanced_bounds(sums, chunks);
}

}  // namespace atl::parallel
