#include "atoll/plan/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/train/model/options.h"
#include "atoll/train/ranks/sharing.h"

namespace atl::plan {

namespace {

// Of two layouts within this, the simpler comes first.
constexpr double kSame = 1.01;

/// A layout that a run takes.
struct Candidate {
  Layout layout;
  double least = 0;  // seconds of a step
  double bytes = 0;  // roughly, to try small ones first
};

class Search {
 public:
  explicit Search(const Question& question)
      : question_(question), variants_(question.recipe, question.overrides) {}

  Ranking run() {
    check_but_for_layout(question_.recipe, question_.overrides);
    const train::TrainConfig config = variants_.config();
    const Given given = given_in(variants_.settings());
    wanted_ = layout_of(config, question_.ranks);
    batch_size_ = config.train.batch_size;
    num_experts_ = train::state_options(variants_.with({}), question_.vocab_size, -1)
                       .model.experts.num_experts;
    ranking_ = consider(all_layouts(config, given, question_.ranks, num_experts_), question_.rows);
    if (ranking_.rows.empty()) throw nothing_works(config);
    ranking_.parameters = count_parameters(ranking_.rows.front().layout);
    return std::move(ranking_);
  }

 private:
  Ranking consider(const std::vector<Layout>& layouts, std::size_t rows) {
    Ranking ranking;
    ranking.all = layouts.size();
    std::vector<Candidate> candidates;
    for (const Layout& layout : layouts) {
      std::string why = refusal_of(layout);
      if (why.empty()) {
        candidates.push_back({layout, least(layout), rough_bytes(layout)});
      } else {
        ranking.refused.push_back({layout, std::move(why)});
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.least < b.least; });
    simulate(candidates, rows, ranking);
    if (!ranking.rows.empty() || candidates.empty()) return ranking;
    // None of the fastest fits: those that take least may.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
    ranking.refused.erase(ranking.refused.end() - static_cast<std::ptrdiff_t>(too_large_),
                          ranking.refused.end());
    ranking.slower = 0;
    simulate(candidates, rows, ranking);
    return ranking;
  }

  // Best first by what no wait can lengthen, until no layout that is left can be among the rows.
  void simulate(const std::vector<Candidate>& candidates, std::size_t rows, Ranking& ranking) {
    std::size_t planned = 0;
    std::size_t next = 0;
    too_large_ = 0;
    for (; next < candidates.size() && planned < question_.most_planned; ++next) {
      const Candidate& at = candidates[next];
      if (ranking.rows.size() >= rows &&
          at.least > ranking.rows[rows - 1].estimate.step_seconds * kSame) {
        break;
      }
      const Estimate estimate = this->estimate(at.layout);
      if (ranking.rows.size() >= rows &&
          estimate.step_seconds > ranking.rows[rows - 1].estimate.step_seconds * kSame) {
        ++ranking.slower;
        continue;
      }
      ++planned;
      add(at.layout, estimate, ranking);
    }
    ranking.slower += candidates.size() - next;
    if (ranking.rows.size() > rows) {
      ranking.slower += ranking.rows.size() - rows;
      ranking.rows.resize(rows);
    }
  }

  void add(const Layout& layout, const Estimate& estimate, Ranking& ranking) {
    try {
      const LargestMemory memory =
          largest_memory(variants_.with(layout), question_.vocab_size, question_.ranks);
      if (!smallest_ || memory.bytes < smallest_->memory.bytes) {
        smallest_ = Row{layout, memory, estimate};
      }
      if (memory.bytes > question_.memory_bytes) {
        ++too_large_;
        ranking.refused.push_back({layout, too_large(memory)});
        return;
      }
      ranking.rows.push_back({layout, memory, estimate});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      ++too_large_;
      ranking.refused.push_back({layout, error.what()});
      return;
    }
    std::stable_sort(ranking.rows.begin(), ranking.rows.end(), comes_before);
  }
  std::string too_large(const LargestMemory& memory) const {
    return fmt::format("rank {} needs {}, and a rank has {}", memory.rank,
                       format_bytes(memory.bytes), format_bytes(question_.memory_bytes));
  }

  static bool comes_before(const Row& a, const Row& b) {
    const auto key = [](const Row& row) {
      const Layout& at = row.layout;
      return std::tuple(std::floor(std::log(row.estimate.step_seconds) / std::log(kSame)),
                        at.tensor, at.stages, at.context, at.experts, at.zero, at.recompute,
                        row.memory.bytes);
    };
    return key(a) < key(b);
  }

  // Parameters, gradients and AdamW's moments, and what blocks keep.
  double rough_bytes(const Layout& layout) {
    const StageModel& model = this->model(layout);
    double elements = 0;
    for (const double stage : model.elements()) elements += stage;
    const double shared = layout.zero == 0 ? 1 : layout.sharing();
    const double state = layout.zero == 3 ? 16 / shared : 8 + 8 / shared;
    double kept = layout.recompute == "none" ? 20 : 12;
    if (layout.recompute == "full") kept = 1;
    const auto layers = static_cast<double>(model.num_stages());
    return elements / layout.stages * state +
           kept * layers * model.edge_bytes(layout.micro_batch) / layout.tensor;
  }

  double count_parameters(const Layout& layout) {
    train::StateOptions options = options_of(layout);
    options.build.tensor_size = 1;
    options.build.tensor_rank = 0;
    options.build.context_size = 1;
    options.build.context_rank = 0;
    options.build.expert_size = 1;
    options.build.expert_rank = 0;
    const StageModel whole(options.model, options.build, options.context);
    return std::accumulate(whole.elements().begin(), whole.elements().end(), 0.0);
  }

  // All that a run checks before it makes its model, and that the model can be cut so.
  double least(const Layout& layout) {
    train::check_ranks(variants_.with(layout), question_.ranks);
    const StageModel& model = this->model(layout);
    if (layout.stages > 1) {
      const parallel::PipelineSchedule& schedule = parallel::find_schedule(layout.schedule);
      parallel::check_schedule(schedule, layout.stages,
                               layout.chunks == 0 ? schedule.min_chunks : layout.chunks,
                               model.num_stages(), micro_batches(layout) / layout.takers());
    }
    const auto key = std::tuple(layout.tensor, layout.recompute, layout.micro_batch, layout.stages,
                                layout.context, layout.experts, layout.data);
    const auto found = least_.find(key);
    if (found != least_.end()) return found->second;
    return least_[key] = least_seconds(question_.figures, layout, model, micro_batches(layout));
  }
  Estimate estimate(const Layout& layout) {
    return plan::estimate(question_.figures, layout, options_of(layout), model(layout),
                          micro_batches(layout));
  }
  train::StateOptions options_of(const Layout& layout) {
    return train::state_options(variants_.with(layout), question_.vocab_size, -1, question_.ranks,
                                0);
  }
  std::int64_t micro_batches(const Layout& layout) const {
    return batch_size_ / layout.micro_batch;
  }
  // Throws Error(kUser) where a model cannot be cut for so many ranks that share it.
  const StageModel& model(const Layout& layout) {
    auto [at, is_new] =
        models_.try_emplace({layout.tensor, layout.context, layout.experts, layout.recompute});
    Cut& cut = at->second;
    if (is_new) {
      try {
        const train::StateOptions options = options_of(layout);
        cut.model = std::make_unique<StageModel>(options.model, options.build, options.context);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kUser) throw;
        cut.refused = error;
      }
    }
    if (cut.refused) throw Error(*cut.refused);
    return *cut.model;
  }
  // The model as each rank that shares products or sequences has it; or why there is none.
  struct Cut {
    std::unique_ptr<StageModel> model;
    std::optional<Error> refused;
  };

  Error nothing_works(const train::TrainConfig& config) {
    const std::string why = reason_for_wanted();
    const std::string ranks = counted(question_.ranks, "rank");
    // Without what the recipe gives.
    std::vector<Layout> layouts = all_layouts(config, {}, question_.ranks, num_experts_);
    std::stable_sort(layouts.begin(), layouts.end(), [&](const Layout& a, const Layout& b) {
      return distance(a, wanted_) < distance(b, wanted_);
    });
    std::size_t planned = 0;
    for (const Layout& layout : layouts) {
      if (!refusal_of(layout).empty()) continue;
      if (++planned > question_.most_planned) break;
      if (!fits(layout)) continue;
      return user_error("{}; the nearest layout of {} that works is {}:{}", why, ranks,
                        plan::describe(layout), arguments_of(layout));
    }
    if (!smallest_) return user_error("no layout of {} works: {}", ranks, why);
    return user_error(
        "no layout of {} fits into {} a rank; the smallest that was planned is {}, which takes {}; "
        "use more ranks, a smaller model, or hosts with more memory (--memory)",
        ranks, format_bytes(question_.memory_bytes), plan::describe(smallest_->layout),
        format_bytes(smallest_->memory.bytes));
  }
  static std::string arguments_of(const Layout& layout) {
    std::string arguments;
    for (const std::string& argument : as_arguments(layout)) arguments += " " + argument;
    return arguments;
  }
  bool fits(const Layout& layout) {
    Ranking one;
    add(layout, {}, one);
    return !one.rows.empty();
  }
  // Of the layout that the settings ask for, or of the one nearest to it.
  std::string reason_for_wanted() {
    std::string own = refusal_of(wanted_);
    if (!own.empty()) return own;
    const auto nearest = std::min_element(
        ranking_.refused.begin(), ranking_.refused.end(), [&](const Refusal& a, const Refusal& b) {
          return distance(a.layout, wanted_) < distance(b.layout, wanted_);
        });
    return nearest == ranking_.refused.end() ? "nothing was looked at" : nearest->why;
  }
  // Empty: a run takes it, if it fits.
  std::string refusal_of(const Layout& layout) {
    try {
      (void)least(layout);
      return "";
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
      return error.what();
    }
  }

  const Question& question_;
  Variants variants_;
  Layout wanted_;
  Ranking ranking_;
  std::size_t too_large_ = 0;    // refused by the last simulate()
  std::optional<Row> smallest_;  // of all whose memory was planned
  std::int64_t batch_size_ = 1;
  std::int64_t num_experts_ = 0;
  std::map<std::tuple<int, int, int, std::string>, Cut> models_;
  std::map<std::tuple<int, std::string, std::int64_t, int, int, int, int>, double> least_;
};

}  // namespace

Ranking rank_layouts(const Question& question) {
  return Search(question).run();
}

}  // namespace atl::plan
