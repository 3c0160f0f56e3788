#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "atoll/island/outer/algorithm.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Tracks the rounds of an island's trainer: the batches that are leased to it, the batches that it
/// has trained and no outer step has committed, its hand-ins, and their answers. From these it
/// decides what to do next. It holds no parameters and does no I/O, so that the trainer and the
/// simulator use the same one.
///
/// The user reports all events in order, does what next() says, and then reports that it is done.
/// An action that fails half-way is not reported, and next() returns it again.
class RoundTracker {
 public:
  explicit RoundTracker(const OuterTiming& timing);

  /// Batches of an island and what training on them gave.
  struct Work {
    std::vector<BatchRange> trained;  ///< and not committed
    std::vector<BatchRange> left;     ///< of the present round
    std::int64_t tokens = 0;          ///< trained on, of `trained`
    double loss_sum = 0;              ///< over these tokens

    /// All that the island has of the run's batches.
    std::vector<BatchRange> holds() const;
  };

  /// Begins with state that holds so many outer steps, and with the work of a checkpoint. The round
  /// that it was saved in goes on.
  void begin(std::int64_t outer_step, Work work);

  // What happens.

  /// The coordinator gave a lease for the round after those it gave before; without batches: what
  /// was trained is to be handed in again. `drops_hand_in`: that one of the hand-ins so far,
  /// counted from 1, will not be committed; 0: none.
  void granted(const Lease& lease, std::uint64_t drops_hand_in);
  /// Whether a commit or a replacement has not been settled yet: no other may be told before.
  bool has_change() const { return change_.has_value(); }
  /// That outer step of that fragment was committed, with this island's work in it or without.
  void committed(std::int64_t outer_step, int fragment, bool contributed);
  /// The state was fetched from others and holds so many outer steps. `drops_work`: what was
  /// trained and not committed is void.
  void replaced(std::int64_t outer_step, bool drops_work);
  /// From now on so many inner steps are taken while an outer step is made, of those that begin.
  void overlaps(std::int64_t inner_steps) { timing_.apply_after = inner_steps; }
  /// Inner steps were taken on the next batches that are left.
  void trained(std::int64_t num_steps, std::int64_t tokens, double loss_sum);

  // What to do.

  enum class Do {
    kWait,        ///< for news
    kBeginRound,  ///< on next_lease(); then begun()
    kTrain,       ///< on next_batch(); then trained()
    kHandIn,      ///< work() for fragment and outer step; then handed_in()
    kApply,       ///< the committed state of the fragment, which has the work; then applied()
    kTakeBack,    ///< what was handed in of the fragment is lost; then taken_back()
    kRebase,      ///< the fragment, on state that was committed without the work; then rebased()
    kAdopt,       ///< state that was fetched; then adopted()
  };
  struct Decision {
    Do what = Do::kWait;
    std::int64_t outer_step = 0;  ///< of kHandIn, kApply, kTakeBack, kRebase
    int fragment = 0;             ///< of the same
    bool takes_back = false;      ///< of kRebase: what was handed in of the fragment is lost
    bool drops_work = false;      ///< of kAdopt; else the work is rebased
  };
  Decision next() const;

  void begun();
  void handed_in();
  void applied();
  void taken_back();
  void rebased();
  void adopted();
  /// The run is over: all work is void.
  void end();

  // The present state.

  const Work& work() const { return work_; }
  const Lease& next_lease() const { return leases_.front(); }
  std::int64_t next_batch() const { return work_.left.front().begin; }
  /// How many steps can be taken before next() returns something else, if no event comes.
  std::int64_t steps_ahead() const;
  /// Whether a commit of what was handed in waits to be applied.
  bool has_committed() const { return is_committed_; }
  /// The fragment that was handed in and has had no answer that was acted on; none: -1.
  int fragment_in_flight() const { return is_exchanging_ ? fragment_of(handed_in_) : -1; }

 private:
  struct Change {
    bool is_replacement = false;
    std::int64_t outer_step = 0;
    int fragment = 0;
    bool drops_work = false;
  };

  int fragment_of(std::int64_t outer_step) const {
    return static_cast<int>(outer_step % timing_.num_fragments);
  }
  bool is_round_done() const { return in_round_ && work_.left.empty(); }
  bool is_due() const;
  void forget_hand_in();
  void forget_work();

  OuterTiming timing_;
  std::int64_t seen_ = 0;  // outer steps that were told of and are settled, or wait to be applied
  std::optional<Change> change_;

  // The round under way, and leases for those after it.
  bool in_round_ = false;
  std::deque<Lease> leases_;
  Work work_;

  // What was handed in and has had no answer that was acted on: the first so much of `work_`.
  bool is_exchanging_ = false;
  std::int64_t handed_in_ = 0;  // outer step
  std::size_t handed_in_ranges_ = 0;
  std::int64_t handed_in_tokens_ = 0;
  double handed_in_loss_sum_ = 0;
  std::uint64_t num_hand_ins_ = 0;  // ever
  bool is_committed_ = false;       // its answer
  bool is_dropped_ = false;         // or its answer was that it is dropped
  std::int64_t steps_since_hand_in_ = 0;
  std::int64_t apply_after_ = 0;  // of that outer step
};

}  // namespace atl::island
