#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/param_server/messages.h"
#include "atoll/tensor/arena.h"

namespace atl::param_server {

/// What all slices of a server share.
struct SliceContext {
  const RunSpec* spec = nullptr;
  Stream* stream = nullptr;
};

/// One slice of the parameters with its optimizer, and the clock of each lane. A pure function of
/// the events it was given, in their order: two servers that take the same events have the same
/// bits. Everything that bounds staleness is decided here, by what the values themselves contain,
/// so a server that nobody has told of newer views can still not give values that are too old.
class SliceState {
 public:
  SliceState(const SliceContext& context, std::uint32_t number);

  /// The state of a run that begins, or goes on.
  void load(const Load& load);
  /// Whether load() or decode() gave it one.
  bool is_loaded() const { return is_loaded_; }

  /// What a push was.
  enum class Outcome {
    kTaken,      ///< it counts
    kDuplicate,  ///< it has counted before
    kAhead,      ///< it is of a later step than the slice waits for
  };
  /// The key of a push is (lane, step): it counts once, whoever sends it, however often.
  Outcome push(const Push& push);
  /// What push() would say; changes nothing.
  Outcome outcome_of(const Push& push) const;

  /// bsp: whether all lanes' pushes of `step` are summed.
  bool has_sum(std::int64_t step) const;
  Sum sum(std::int64_t step) const;
  /// bsp: whether a later step's sum is in its place, so that its update was made on all slices.
  bool is_past(std::int64_t step) const { return step < version_ && !has_sum(step); }
  /// bsp: whether update() of this step would change something.
  bool can_update(std::int64_t step) const;
  /// bsp: makes the update of a step whose sum is there.
  void update(std::int64_t step, const Update& update);

  /// Whether values that are good for `pull` are there.
  bool can_answer(const Pull& pull) const;
  Values values(const Pull& pull);
  /// Delay compensation: the lane computes with the present values from now on.
  void mark_pulled(std::int64_t lane);
  State state() const;

  /// The first step of which some lane has not pushed.
  std::int64_t slowest() const;
  /// What the lane is to push next.
  std::int64_t next(std::int64_t lane) const { return next_[static_cast<std::size_t>(lane)]; }

  /// Everything, for a copy on another server or on disk.
  std::string encode() const;
  /// Throws Error(kDamaged) for bytes that are not of this slice.
  void decode(const std::string& bytes);

  /// A state from disk may lack pushes that were acknowledged: brings a lane to `step`, and returns
  /// how many pushes are lost. Only where is_restored(). bsp: whoever speaks of `step` has had
  /// values of it, so that the updates before it were made; those that this state lacks are lost
  /// with the pushes of all lanes, also where it has their sum and only the update is missing.
  std::int64_t skip_lost(std::int64_t lane, std::int64_t step);
  /// bsp: the same for a contribution to the sum of `step`: it is taken for zero.
  std::int64_t lose_contribution(std::int64_t lane, std::int64_t step);
  bool is_restored() const { return is_restored_; }
  void set_restored() { is_restored_ = true; }
  /// For messages: the step that a push of this lane must be of.
  std::int64_t waits_for(std::int64_t lane) const;

 private:
  bool is_bsp() const { return context_.spec->consistency == Consistency::kBsp; }
  const Slice& slice() const { return context_.spec->slices[number_]; }
  Tensor gradient_of(const std::string& data);
  bool updates_by_round() const;
  void add_contribution(std::int64_t lane, const Push& push);
  void gather(const Push& push);
  void end_round();
  const std::string& visible();
  std::int64_t lose_updates(std::int64_t version);
  void finish_sum();
  void apply(std::int64_t step_number, double lr, double scale);
  void compensate(std::int64_t lane, std::string& data);
  void add(const std::string& data);
  void write_dense(const std::vector<std::string>& dense);
  std::vector<std::string> read_dense() const;

  SliceContext context_;
  std::uint32_t number_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<Arena> arena_;
  Buffer scratch_;
  Tensor values_;  // (count), in the run's dtype
  // (count), in its compute dtype. bsp: the sum of lanes 0 to summed_ - 1; ssp and async: of the
  // round's pushes.
  Tensor gradients_;
  bool is_loaded_ = false;
  bool is_restored_ = false;

  std::vector<std::int64_t> next_;  // of each lane
  std::int64_t updates_ = 0;        // of the optimizer
  // bsp
  std::int64_t version_ = 0;  // steps whose updates are made
  std::int64_t summed_ = 0;   // lanes
  // Contributions to the step after these that were lost: lose_contribution() has counted them.
  std::int64_t taken_for_zero_ = 0;
  std::map<std::int64_t, std::string> waiting_;  // contributions of later lanes
  std::vector<double> losses_;
  std::optional<Sum> sum_;  // the last one
  // ssp and async: the pushes that are not in the optimizer's state yet, and the sum of their
  // learning rates.
  std::int64_t gathered_ = 0;
  std::int64_t skipped_ = 0;  // of these
  double gathered_lr_ = 0;
  std::string visible_;  // values with these pushes; empty: not made
  // Delay compensation: the values that each lane has pulled.
  std::vector<std::string> pulled_;
};

}  // namespace atl::param_server
