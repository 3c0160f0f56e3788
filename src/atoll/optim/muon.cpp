#include "atoll/ops/update/muon.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/matrix_parts.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

std::vector<ParamRange> filtered(std::span<const ParamRange> ranges, bool matrices) {
  std::vector<ParamRange> result;
  for (const ParamRange& range : ranges) {
    if (range.matrix == matrices) result.push_back(range);
  }
  return result;
}

using Part = MatrixParts::Part;

bool is_shared(const ParamRange& range) {
  return range.parts != nullptr;
}

// A matrix put together, or taken apart, on one rank. `packed` has the parts of all ranks one after
// the other, each once.
class SharedMatrix {
 public:
  SharedMatrix(const MatrixParts& parts, const Tensor& packed) : parts_(parts) {
    std::int64_t at = 0;
    for (std::size_t r = 0; r < parts.of_ranks.size(); ++r) {
      const std::int64_t count = is_first(r) ? parts.of_ranks[r].num_elements() : 0;
      memory_.push_back(packed.rows(at, at + count));
      at += count;
    }
  }

  /// The part of a rank, which several may have.
  const Tensor& of(std::size_t rank) const { return memory_[parts_.first_with_part_of(rank)]; }
  bool is_first(std::size_t rank) const { return parts_.first_with_part_of(rank) == rank; }
  void put_together(Run& run, const Tensor& whole) const {
    visit([&](const Tensor& part, auto rows, auto columns, auto in_part, auto in_whole) {
      ops::copy_blocks(run, {rows, 1}, columns, part, in_part, whole, in_whole);
    });
  }
  void take_apart(Run& run, const Tensor& whole) const {
    visit([&](const Tensor& part, auto rows, auto columns, auto in_part, auto in_whole) {
      ops::copy_blocks(run, {rows, 1}, columns, whole, in_whole, part, in_part);
    });
  }

 private:
  // fn(part, rows, columns, where these lie in the part, where in the whole).
  template <typename Fn>
  void visit(Fn&& fn) const {
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      if (!is_first(r)) continue;
      const Part& part = parts_.of_ranks[r];
      std::int64_t row = 0;  // of the part
      for (const MatrixParts::Rows& stretch : part.rows) {
        fn(memory_[r], stretch.count, part.columns,
           ops::BlockPlaces{row * part.columns, part.columns, 0},
           ops::BlockPlaces{stretch.begin * parts_.cols + part.column_begin, parts_.cols, 0});
        row += stretch.count;
      }
    }
  }

  const MatrixParts& parts_;
  std::vector<Tensor> memory_;  // by rank; empty where a rank before has the same
};

// Jordan et al. 2024: the matrices that Muon is for. The other ranges have an AdamW of their own.
//
// A matrix that ranks have parts of is put together on one of them, which sends the others their
// parts of the result: of as many matrices in a row as there are ranks, each rank has one.
class Muon final : public FlatOptimizer {
 public:
  Muon(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, filtered(ranges, true)),
        momentum_({.momentum = options.number("momentum"), .nesterov = options.flag("nesterov")}),
        weight_decay_(options.number("weight_decay")),
        is_original_scale_(options.word("muon_scale") == "original"),
        m_(add_state("momentum_buffer")),
        rest_(find_optimizer("adamw").make(options, flat, filtered(ranges, false))) {
    const double adamw_lr = options.number("muon_adamw_lr");
    if (adamw_lr > 0) rest_lr_ratio_ = adamw_lr / options.peak_lr;
  }

  void request(MemoryPlan& plan) override {
    FlatOptimizer::request(plan);
    rest_->request(plan);
  }
  void bind(const Arena& arena) override {
    FlatOptimizer::bind(arena);
    rest_->bind(arena);
  }
  void init_masters(Run& run, Tensor values) override {
    FlatOptimizer::init_masters(run, values);
    rest_->init_masters(run, values);
  }
  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all = FlatOptimizer::state();
    for (StateTensor& piece : rest_->state()) all.push_back(std::move(piece));
    return all;
  }

  std::size_t scratch_bytes() const override {
    std::size_t most = 0;
    for (const ParamRange& range : ranges()) {
      if (is_shared(range)) continue;
      const Spec spec = matrix_spec(range);
      most = std::max(most, 2 * align_up(spec.bytes()) + ops::orthogonalize_scratch_bytes(spec));
    }
    const std::vector<ParamRange> all = shared();
    for (std::size_t i = 0; i < all.size(); i += all[i].parts->of_ranks.size()) {
      std::size_t own = 0, whole = 0;
      for (const ParamRange& range : turn(all, i)) {
        const Spec spec = whole_spec(range);
        own += align_up(matrix_spec(range).bytes());
        whole =
            std::max(whole, 2 * align_up(spec.bytes()) + ops::orthogonalize_scratch_bytes(spec));
      }
      most = std::max(most, own + whole);
    }
    return most;
  }

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    for (const ParamRange& range : ranges()) {
      if (!is_shared(range)) update_matrix(run, args, values, grads, range);
    }
    const std::vector<ParamRange> all = shared();
    for (std::size_t i = 0; i < all.size(); i += all[i].parts->of_ranks.size()) {
      update_shared(run, args, values, grads, turn(all, i));
    }
    StepArgs rest_args = args;
    rest_args.lr *= rest_lr_ratio_;
    rest_->update(run, rest_args, values, grads);
  }

 private:
  std::vector<ParamRange> shared() const {
    std::vector<ParamRange> all;
    std::copy_if(ranges().begin(), ranges().end(), std::back_inserter(all), is_shared);
    return all;
  }
  // From matrix i on one for each rank, or those that are left.
  static std::span<const ParamRange> turn(std::span<const ParamRange> all, std::size_t i) {
    return all.subspan(i, std::min(all[i].parts->of_ranks.size(), all.size() - i));
  }
  Spec matrix_spec(const ParamRange& range) const {
    return {compute_dtype(flat().dtype), {range.rows, range.cols}};
  }
  Spec whole_spec(const ParamRange& range) const {
    return {compute_dtype(flat().dtype), {range.parts->rows, range.parts->cols}};
  }

  // How far to step along an orthogonal matrix of (rows, cols). match_rms: AdamW's usual size (Liu
  // et al. 2025, section 2.2); original: Jordan et al. 2024.
  double scale(const ParamRange& range) const {
    const auto rows = static_cast<double>(is_shared(range) ? range.parts->rows : range.rows);
    const auto cols = static_cast<double>(is_shared(range) ? range.parts->cols : range.cols);
    if (is_original_scale_) return std::sqrt(std::max(1.0, rows / cols));
    return 0.2 * std::sqrt(std::max(rows, cols));
  }

  void make_direction(Run& run, const StepArgs& args, const Tensor& grads, ParamRange range,
                      const Tensor& direction) const {
    range.count = direction.num_elements();  // the padding after the matrix is none of ours
    ops::MuonMomentum call = momentum_;
    call.grad_scale = args.grad_scale;
    ops::muon_momentum(run, call, grads_of(grads, range), state_of(m_, range),
                       direction.reshaped({range.count}));
  }
  void apply(Run& run, const StepArgs& args, const Tensor& values, ParamRange range,
             const Tensor& orthogonal) const {
    range.count = orthogonal.num_elements();
    const double decay = range.decay ? args.lr * weight_decay_ : 0.0;
    ops::apply_direction(run, args.lr * scale(range), decay, target_of(run, args, values, range),
                         orthogonal.reshaped({range.count}));
  }

  void update_matrix(const Run& run, const StepArgs& args, const Tensor& values,
                     const Tensor& grads, const ParamRange& range) const {
    Run inner = run;
    const Tensor direction = inner.take_scratch(matrix_spec(range));
    const Tensor orthogonal = inner.take_scratch(matrix_spec(range));
    make_direction(inner, args, grads, range, direction);
    ops::orthogonalize(inner, direction, orthogonal);
    apply(inner, args, values, range, orthogonal);
  }

  // Matrix j of these is put together on rank j.
  void update_shared(const Run& run, const StepArgs& args, const Tensor& values,
                     const Tensor& grads, std::span<const ParamRange> matrices) const {
    ATOLL_CHECK(
        args.parts != nullptr && args.parts->size() == std::ssize(matrices.front().parts->of_ranks),
        "not connected to the ranks that have the other parts");
    Run inner = run;
    std::vector<Tensor> own;
    for (const ParamRange& range : matrices) {
      own.push_back(inner.take_scratch(matrix_spec(range)));
      make_direction(inner, args, grads, range, own.back());
      own.back() = own.back().reshaped({own.back().num_elements()});
    }
    const auto me = static_cast<std::size_t>(args.parts->rank());
    Tensor whole, orthogonal;
    std::optional<SharedMatrix> mine;  // its parts lie where the orthogonal matrix will, and then
    if (me < matrices.size()) {        // where the other one was
      whole = inner.take_scratch(whole_spec(matrices[me]));
      orthogonal = inner.take_scratch(whole_spec(matrices[me]));
      mine.emplace(*matrices[me].parts, orthogonal.reshaped({orthogonal.num_elements()}));
    }
    exchange(inner, *args.parts, matrices, own, mine, /*collects=*/true);
    if (mine) {
      mine->put_together(inner, whole);
      ops::orthogonalize(inner, whole, orthogonal);
      mine.emplace(*matrices[me].parts, whole.reshaped({whole.num_elements()}));
      mine->take_apart(inner, orthogonal);
    }
    exchange(inner, *args.parts, matrices, own, mine, /*collects=*/false);
    for (std::size_t j = 0; j < matrices.size(); ++j)
      apply(inner, args, values, matrices[j], own[j]);
  }

  // This rank's parts of the matrices go to where each is put together, or come from there.
  static void exchange(Run& run, comm::Group& group, std::span<const ParamRange> matrices,
                       std::span<const Tensor> own, const std::optional<SharedMatrix>& mine,
                       bool collects) {
    const auto me = static_cast<std::size_t>(group.rank());
    std::vector<comm::Piece> here, there;  // parts of this rank's matrix; its parts of the others'
    for (std::size_t j = 0; j < matrices.size(); ++j) {
      if (j == me || (collects && matrices[j].parts->first_with_part_of(me) != me)) continue;
      there.push_back({static_cast<int>(j), own[j]});
    }
    for (std::size_t r = 0; mine && r < matrices[me].parts->of_ranks.size(); ++r) {
      if (r != me && (!collects || mine->is_first(r))) {
        here.push_back({static_cast<int>(r), mine->of(r)});
      } else if (r == me && collects && mine->is_first(r)) {
        ops::copy(run, own[me], mine->of(me));
      } else if (r == me && !collects) {
        ops::copy(run, mine->of(me), own[me]);
      }
    }
    run.stream->synchronize();
    if (collects) return group.exchange(there, here);
    group.exchange(here, there);
  }

  ops::MuonMomentum momentum_;
  double weight_decay_;
  bool is_original_scale_;
  std::size_t m_;
  std::unique_ptr<Optimizer> rest_;
  double rest_lr_ratio_ = 1;  // AdamW's learning rate over the step's, which is the matrices'
};

Option scale_option() {
  return {.name = "muon_scale",
          .default_value = "match_rms",
          .doc =
              "match_rms scales updates to AdamW's size, so that its learning rates fit; original "
              "is sqrt(max(1, rows / columns)).",
          .choices = one_of({"match_rms", "original"})};
}

Option adamw_lr_option() {
  return {.name = "muon_adamw_lr",
          .default_value = 0.0,
          .doc = "highest learning rate of what adamw updates; 0: optim.lr.",
          .range = at_least(0)};
}

void check(const OptimizerOptions& options, const NameOption& named) {
  const double ratio = options.number("muon_adamw_lr") / options.peak_lr;
  if (options.number("muon_adamw_lr") == 0 || (std::isfinite(ratio) && ratio > 0)) return;
  throw user_error("{} is relative to optim.lr, which is {}; make optim.lr larger",
                   named("muon_adamw_lr"), options.peak_lr);
}

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Spec flat,
                                std::span<const ParamRange> ranges) {
  return std::make_unique<Muon>(options, flat, ranges);
}

}  // namespace

OptimizerKind muon_optimizer() {
  return {.name = "muon",
          .doc = "muon for matrices with adamw for the rest",
          .options = {beta1_option(), beta2_option(), eps_option(), weight_decay_option(),
                      momentum_option(), nesterov_option(), scale_option(), adamw_lr_option()},
          .state_vectors = {"momentum_buffer", "exp_avg", "exp_avg_sq"},
          .whole_matrices = true,
          .check = check,
          .make = make};
}

}  // namespace atl::optim
