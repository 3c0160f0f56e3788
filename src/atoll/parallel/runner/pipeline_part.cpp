#include "atoll/parallel/runner/pipeline_part.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"
#include "atoll/parallel/schedule/stage_costs.h"
#include "atoll/parallel/schedule/stage_cut.h"

namespace atl::parallel {

namespace {

// What a layer trains.
class Trained final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    if (!param.frozen) all.push_back(&param);
  }
  std::vector<nn::Param*> all;
};

// What a head shares with the embedding: a tied table, or of a frozen one rows that are trained by
// themselves. Null: nothing that is trained.
nn::Param* trained_at_both_ends(const nn::Model& model) {
  Trained first;
  Trained last;
  model.stages.front()->visit(first);
  model.stages.back()->visit(last);
  for (nn::Param* param : first.all) {
    if (std::find(last.all.begin(), last.all.end(), param) != last.all.end()) return param;
  }
  return nullptr;
}

}  // namespace

PipelinePart::PipelinePart(nn::Model& model, const PipelineOptions& options, std::int64_t context)
    : options_(options) {
  const PipelineSchedule& schedule = find_schedule(options.schedule);
  if (options_.chunks == 0) options_.chunks = schedule.min_chunks;
  check_schedule(schedule, options.num_ranks, options_.chunks, model.stages.size(),
                 options.micro_batches);
  const std::vector<PassCosts> costs = stage_costs(model, context);
  const auto chunks = static_cast<std::size_t>(options.num_ranks * options_.chunks);
  pipeline_ = {options.num_ranks, options.micro_batches, balanced_bounds(costs, chunks),
               schedule.folded};
  lists_ = actions_of_ranks(schedule, pipeline_);
  bubble_ = simulate_pipeline(pipeline_, lists_, costs).bubble();
  // A frozen table has no gradient, so the two ranks have nothing to sum.
  nn::Param* shared = trained_at_both_ends(model);
  is_tied_ = shared != nullptr && head_rank() != 0;
  if (is_tied_ && (options.rank == 0 || options.rank == head_rank())) tied_ = shared;
  keep_stages(model, pipeline_, options.rank);
}

bool PipelinePart::counts(const nn::Param& param) const {
  if (tied_ == nullptr || options_.rank == 0) return true;
  return &nn::whole_param(param) != &nn::whole_param(*tied_);
}

void PipelinePart::attach(ParamStore& store) {
  if (tied_ != nullptr) store.finish_late({tied_}, [this] { sum_tied(); });
}

void PipelinePart::connect(comm::Group& group, comm::Group* ends) {
  ATOLL_CHECK(group.size() == options_.num_ranks && group.rank() == options_.rank,
              "connected to rank {} of {}", group.rank(), group.size());
  ATOLL_CHECK((ends != nullptr) == (tied_ != nullptr), "the ends of the pipeline");
  group_ = &group;
  ends_ = ends;
  parts_.clear();
}

void PipelinePart::count_blocks(const FlatLayout& layout) {
  params_.clear();
  std::size_t i = 0;
  for (const optim::ParamRange& range : layout.ranges()) {
    while (i + 1 < layout.trained().size() && layout.offset(i + 1) <= range.begin) ++i;
    const nn::Param& param = *layout.trained()[i];
    const std::size_t blocks = norm_blocks(std::span(&range, 1)).size();
    params_.insert(params_.end(), blocks, counts(param) ? param.number : -1);
  }
  const int size = group_->size();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size));
  counts[static_cast<std::size_t>(group_->rank())] =
      std::ssize(params_) - std::count(params_.begin(), params_.end(), -1);
  group_->all_gather({counts.data(), {Dtype::kI64, {size}}}, group_->even_parts(size));
  parts_ = {0};
  for (const std::int64_t count : counts) parts_.push_back(parts_.back() + 2 * count);
}

// Runs before the data-parallel ranks, which have different micro-batches, sum this gradient.
void PipelinePart::sum_tied() {
  ATOLL_CHECK(ends_ != nullptr, "not connected");
  ends_->all_reduce(tied_->grad.reshaped({tied_->grad.num_elements()}));
}

double PipelinePart::grad_norm(Run& run, ParamStore& store) {
  if (parts_.empty()) count_blocks(store.layout());
  const std::vector<double> squares = store.squares_of_blocks(run);
  ATOLL_CHECK_EQ(squares.size(), params_.size());
  // Gathers (Param::number, squares) of the blocks of all ranks, and adds the squares in the order
  // of the whole model's parameters, as a single rank would.
  std::vector<double> all(static_cast<std::size_t>(parts_.back()));
  auto at = all.begin() + parts_[static_cast<std::size_t>(options_.rank)];
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (params_[i] < 0) continue;
    *at++ = static_cast<double>(params_[i]);
    *at++ = squares[i];
  }
  group_->all_gather({all.data(), {Dtype::kF64, {parts_.back()}}}, parts_);
  std::vector<std::pair<double, double>> ordered;
  for (std::size_t i = 0; i < all.size(); i += 2) ordered.emplace_back(all[i], all[i + 1]);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double sum = 0;
  for (const auto& [param, part] : ordered) sum += part;
  return store.norm_of(sum);
}

}  // namespace atl::parallel
