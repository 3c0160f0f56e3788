#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/island/client/client.h"
#include "atoll/island/client/round_tracker.h"
#include "atoll/island/outer/algorithm.h"
#include "atoll/island/outer/fragments.h"
#include "atoll/island/outer/state.h"
#include "atoll/metrics/record.h"
#include "atoll/optim/optimizer.h"
#include "atoll/train/checkpoint_save.h"
#include "atoll/train/config.h"
#include "atoll/train/island/clock.h"
#include "atoll/train/island/pace.h"
#include "atoll/train/island/params.h"
#include "atoll/train/ranks.h"
#include "atoll/train/state.h"
#include "atoll/train/step.h"

namespace atl::train {

/// The outer side of an island's training: which batches it trains on, when it exchanges what with
/// the other islands, and what becomes of its parameters. The lead rank talks to the coordinator;
/// the others are told.
///
/// A call that throws comm::PeerError, because a rank is lost, has done nothing or all of it here:
/// after regrouped() it is made again.
class IslandRounds {
 public:
  /// All must outlive this, but for what regrouped() replaces. `identity` is what islands must have
  /// in common.
  IslandRounds(const TrainConfig& config, const island::RunIdentity& identity, TrainState& state,
               Ranks& ranks);
  ~IslandRounds();

  /// Joins the run with what there is: a new model (`checkpoint` empty), or what saved() put into a
  /// checkpoint. Connects and returns; next() brings what the run has. Every rank must call it, as
  /// all below.
  void begin(const std::filesystem::path& checkpoint);

  /// What is to come.
  struct Next {
    enum class What {
      kStep,
      kRegroup,  ///< other ranks are wanted, as `wants_change` said
      kEnd,      ///< the run is over, or `stop` said so
    };
    What what = What::kEnd;
    std::int64_t batch = 0;          ///< of the run's order
    std::int64_t schedule_step = 0;  ///< of the learning rate: see IslandClock
    std::int64_t steps_left = 0;     ///< of this island until the run ends, with this one
  };
  /// What ends the waiting for other islands, asked on the lead.
  struct Asks {
    std::function<bool()> stop;
    std::function<bool()> wants_change;  ///< empty: never
  };
  /// Does what is due between steps, waiting where it must.
  Next next(const Asks& asks);
  /// The ranks are others now, of which the first is the lead that was: `state` and `ranks` take
  /// the place of those before, from which nothing is read any more. What the lead was about to
  /// write is written. A rank that is new needs no begin(). `seconds`: that it took.
  void regrouped(TrainState& state, Ranks& ranks, double seconds);
  /// Accounts for the step on that batch.
  void stepped(const StepResult& result, double seconds, double lr);
  /// Whether the run has ended, and this island with it.
  bool is_over() const { return is_over_; }
  /// Ends this island's part in it; what it did not hand in returns to the others. Of the lead.
  void leave(const std::string& why);

  /// What a checkpoint must have beside the training state. Of the lead; empty on other ranks.
  ExtraPart saved() const;
  /// Outer steps since the last call: for the log, and as lines for people.
  struct Report {
    metrics::Record record;
    std::string line;
  };
  std::vector<Report> take_reports();

 private:
  enum class Command : std::int64_t { kTrain, kRead, kWrite, kWait, kRegroup, kEnd };
  // What the lead tells the other ranks to do next.
  struct Order {
    Command command = Command::kEnd;
    std::int64_t batch = 0;
    std::int64_t schedule_step = 0;
    std::int64_t steps_left = 0;
    std::int64_t is_over = 0;
    std::int64_t fragment = 0;  // to read or to write
  };

  void tell(Order order);
  Order hear();
  Next follow();
  std::span<float> read(int f);
  void write_parameters();
  island::OwnFragment own(int f, std::span<float> packed);
  void reset(int f);
  double largest_fragment() const;
  Next::What prepare(const Asks& asks);
  void wait();
  void depart();
  void begin_round();
  void finish();
  void absorb_news();
  void hear(island::OuterChange change);
  void absorb_change();
  void apply();
  void take_back(int f);
  void adopt(bool drops_work);
  void rebase(int f, const std::shared_ptr<const island::FragmentState>& now, bool takes_back);
  void hand_in();
  void report(const island::OuterChange& change);
  std::vector<float> kept_without_hand_in(int f) const;
  std::int64_t base_outer_step() const;
  static bool is_in(const std::filesystem::path& checkpoint);
  island::RoundTracker::Work load(const std::filesystem::path& checkpoint);
  static void copy_floats(const ckpt::SafetensorsFile& file, const std::string& name,
                          std::span<float> out);

  const TrainConfig& config_;
  island::RunIdentity identity_;
  TrainState* state_;
  Ranks* ranks_;
  island::OuterOptions options_;
  std::chrono::steady_clock::time_point began_at_ = std::chrono::steady_clock::now();
  // On the lead the truth between two steps: what is asked for is read once, changed here alone,
  // and written before anybody trains on. So a rank that is lost meanwhile costs no more than
  // reading or writing it again.
  IslandParams params_;
  bool is_over_ = false;

  // All that follows is the lead's.
  std::unique_ptr<island::OuterOptimizer> optimizer_;
  std::unique_ptr<island::OuterAlgorithm> algorithm_;
  std::unique_ptr<island::OuterState> outer_;
  std::unique_ptr<island::Client> client_;
  // By fragment: the anchor that the parameters grew from, and what the algorithm keeps.
  std::vector<std::shared_ptr<const island::FragmentState>> base_;
  std::vector<std::vector<float>> kept_;

  std::vector<std::vector<float>> codec_errors_;  // of a checkpoint, until they are handed on

  std::optional<island::RoundTracker> tracker_;  // what is due; what follows is what it speaks of
  IslandClock clock_;
  // What was handed in last, and the weight that it was said to have.
  std::shared_ptr<std::vector<float>> own_delta_;
  double share_ = 1;
  std::optional<island::OuterChange> committed_;  // its answer, to be applied when it is due
  std::optional<island::OuterChange> change_;     // that is being absorbed

  std::int64_t steps_taken_ = 0;                   // ever
  std::chrono::steady_clock::time_point told_at_;  // the other ranks, of anything
  IslandPace pace_;
  double exposed_seconds_ = 0;  // waited, since the last report
  double trained_seconds_ = 0;
  std::int64_t reported_steps_ = 0;
  double lr_ = 0;  // of the last step
  std::vector<Report> reports_;
};

}  // namespace atl::train
