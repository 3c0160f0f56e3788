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

#include "atoll/island/client/client.h"
#include "atoll/island/client/rank_client.h"
#include "atoll/island/client/rank_exchange.h"
#include "atoll/island/client/round_tracker.h"
#include "atoll/island/outer/algorithm.h"
#include "atoll/island/outer/fragments.h"
#include "atoll/island/outer/state.h"
#include "atoll/metrics/record.h"
#include "atoll/optim/optimizer.h"
#include "atoll/train/checkpoint/save.h"
#include "atoll/train/config/config.h"
#include "atoll/train/island/clock.h"
#include "atoll/train/island/pace.h"
#include "atoll/train/island/params.h"
#include "atoll/train/island/part.h"
#include "atoll/train/island/rank_link.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/step/state.h"
#include "atoll/train/step/step.h"

namespace atl::train {

class SavedShares;

/// Which ranks of an island have parts of the outer state and exchange them.
enum class OuterHolders : std::uint8_t {
  kAllRanks,  ///< each its part; a rank that is lost takes its part with it
  kLead,      ///< the lead alone has all: any other rank may be lost, and others may join
};

/// The outer side of an island's training: which batches it trains on, when it exchanges what with
/// the other islands, and what becomes of its parameters. The lead rank talks to the coordinator;
/// the others are told.
///
/// A call that throws comm::PeerError, because a rank is lost, has done nothing or all of it here
/// where the lead alone has the outer state: after regrouped() it is made again.
class IslandRounds {
 public:
  /// All must outlive this, but for what regrouped() replaces. `identity` is what islands must have
  /// in common.
  IslandRounds(const TrainConfig& config, const island::RunIdentity& identity, TrainState& state,
               Ranks& ranks, OuterHolders holders);
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
  /// The run is over, and the final model is on disk: this island could be started again. Of the
  /// lead.
  void tell_saved();
  /// After the end of the run: stays until all islands have saved the final model, and gives it to
  /// those that have lost it meanwhile; or until `stop`. Every rank must call it.
  void stay(const std::function<bool()>& stop);

  /// What a checkpoint must have beside the training state: of each rank its part. Every rank must
  /// call it.
  ExtraPart saved() const;
  /// Outer steps since the last call: for the log, and as lines for people.
  struct Report {
    metrics::Record record;
    std::string line;
  };
  std::vector<Report> take_reports();

 private:
  enum class Command : std::int64_t {
    kTrain,
    kRead,
    kWrite,
    kWait,
    kRegroup,
    kEnd,
    // To a rank with a part of the outer state: see IslandPart.
    kReset,
    kHandIn,
    kApply,
    kRebase,
  };
  // What the lead tells the other ranks to do next.
  struct Order {
    Command command = Command::kEnd;
    std::int64_t batch = 0;
    std::int64_t schedule_step = 0;
    std::int64_t steps_left = 0;
    std::int64_t is_over = 0;
    std::int64_t fragment = 0;
    std::int64_t outer_step = 0;
    double share = 0;
    std::int64_t takes_back = 0;
    island::StateHash hash = {};  // of the state of the fragment
  };

  void tell(Order order);
  Order hear();
  Next follow();
  void read(int f);
  void write_parameters();
  bool shares_state() const { return params_.num_shares() > 1; }
  void tell_parts(const Order& order);
  void follow_with_part(const Order& order);
  island::StateHash sum_of_ranks(const island::StateHash& own) const;
  void make_exchange();
  void make_client(island::RoundTracker::Work work);
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
  std::string saved_text() const;
  static bool is_in(const std::filesystem::path& checkpoint);
  island::RoundTracker::Work load(const std::filesystem::path& checkpoint);
  void load_fragment(const SavedShares& saved, int f, std::int64_t outer_step);

  const TrainConfig& config_;
  island::RunIdentity identity_;
  TrainState* state_;
  Ranks* ranks_;
  island::OuterOptions options_;
  std::chrono::steady_clock::time_point began_at_ = std::chrono::steady_clock::now();
  // On ranks with a part the truth between two steps: what is asked for is read once, changed here
  // alone, and written before anybody trains on. So a rank that is lost meanwhile costs no more
  // than reading or writing it again.
  IslandParams params_;
  bool has_final_model_ = false;  // its checkpoint, of a run that has ended
  bool is_over_ = false;

  // On ranks that have a part of the outer state.
  std::optional<IslandPart> part_;
  std::vector<std::vector<float>> codec_errors_;  // of a checkpoint, until they are handed on
  std::unique_ptr<island::RankExchange> exchange_;
  std::string address_;  // where others fetch from its ranks
  // Where several ranks have, the way between them. Clients use it, and end before it does.
  std::unique_ptr<RankLink> link_;
  std::unique_ptr<island::RankClient> rank_client_;  // of a rank that does not lead

  // All that follows is the lead's.
  std::unique_ptr<island::Client> client_;
  std::optional<island::RoundTracker> tracker_;  // what is due; what follows is what it speaks of
  IslandClock clock_;
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
