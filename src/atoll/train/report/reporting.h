#pragma once

// What a run says on the way: step lines, the progress bar, metrics.jsonl and other sinks.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/device/device.h"
#include "atoll/metrics/sink.h"
#include "atoll/metrics/system_sampler.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/ranks/rank_times.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/report/held_out.h"
#include "atoll/train/step/step.h"

namespace atl::train {

/// Reports a run. Every rank has one and counts; what is reported is written and printed by the
/// rank whose reporter is open: the lead.
class Reporter {
 public:
  using Clock = std::chrono::steady_clock;

  /// `config` must outlive this.
  explicit Reporter(const TrainConfig& config) : config_(config) {}

  /// Where records go beside metrics.jsonl. The sink must outlive this.
  void add_sink(metrics::Sink& sink) { extra_sinks_.push_back(&sink); }
  /// Makes this rank the one that reports: writes settings.toml into `dir`, and goes on with
  /// metrics.jsonl there after `step` steps.
  void open(const std::filesystem::path& dir, std::int64_t step, const Settings& settings);
  bool is_open() const { return jsonl_ != nullptr; }

  /// What step lines divide by, until ranks change.
  struct Rates {
    int num_ranks = 1;
    double flops_per_token = 0;
    double peak_flops = 0;         ///< FLOP/s of all ranks together; 0: unknown
    std::int64_t most_memory = 0;  ///< bytes that are planned, on the rank with most
  };
  void set_rates(const Rates& rates) { rates_ = rates; }

  /// Says in the log what is about to be trained, on what, by whom.
  void announce(const PreparedCorpus& corpus, TrainState& state, const Ranks& ranks,
                const Device& device) const;
  /// Begins to count steps, and shows the progress bar if `shows_bar` and log.format have it.
  void begin(bool shows_bar);
  /// The device whose memory lines tell of, where it is a GPU; it must outlive this.
  void watch(Device& device) { device_ = &device; }
  /// How long ago a line with what the machine does has to be for another one; before open().
  void set_system_every(Clock::duration every) { system_every_ = every; }
  /// Forgets the steps since the last line: ranks were lost meanwhile.
  void begin_again() { interval_ = {}; }
  /// Step lines time steps alone: a pause between two of them, of so long, does not count.
  void leave_out(Clock::duration pause) { interval_.start += pause; }
  /// Takes the progress bar off the screen.
  void clear_bar();

  /// Whether a line is due for the step that is done, with so many left: when it is, the ranks of a
  /// model with experts make a report first.
  bool is_line_due(std::int64_t step, std::int64_t steps_left) const {
    return step % config_.log.every == 0 || steps_left == 0;
  }
  /// What the next line says of the experts.
  void set_experts(const ExpertReport& report) { experts_ = report; }
  /// What the record of the step under way says besides, and what its line does: "  reward 0.52".
  struct Rewards {
    std::vector<std::pair<std::string, metrics::Value>> values;
    std::string text;
  };
  void set_rewards(Rewards rewards) { rewards_ = std::move(rewards); }
  /// Accounts for time that the next step has waited for data.
  void waited_for_data(double seconds) { interval_.data_seconds += seconds; }
  /// Accounts for a step that was taken, and reports every log.every steps. `position` is that
  /// after the step; a line takes what it has gathered for one.
  void stepped(const StepResult& result, double lr, std::int64_t steps_left, Position& position);
  /// Accounts for what this rank has sent to other data-parallel ranks since its beginning.
  void sent(std::uint64_t bytes);
  /// Accounts for what the ranks said of a step of `seconds`, of the `step` that were taken.
  void heard(std::int64_t step, const std::vector<RankFacts>& facts, double seconds);

  /// Reports a held-out loss after `step` steps. Where `is_repeated`, the log has it already.
  void evaluated(std::int64_t step, const HeldOut& held_out, bool is_repeated);
  /// Records something that has no line.
  void record(const metrics::Record& record);
  /// Records something, and prints the line that says it to people.
  void tell(const metrics::Record& record, const std::string& line);
  /// Says in the run's directory that nothing is left to do after `step` steps.
  void finished(std::int64_t step) const;
  /// Waits until all sinks are safe on disk.
  void flush();

 private:
  // What the next step line averages over.
  struct Interval {
    Clock::time_point start = Clock::now();
    std::int64_t steps = 0;
    double data_seconds = 0;
    double sent_bytes = 0;
    double exposed_seconds = 0;  // waited for collectives, on the rank that waited least
    double shared_seconds = 0;   // of the steps whose facts are in here: one behind those of a line
    double slowest_seconds = 0;  // a micro-batch on the slowest rank, summed over steps
    double fastest_seconds = 0;
    int slowest_rank = 0;
  };

  StepReport averages(const StepResult& result, double lr, std::int64_t steps_left,
                      const Position& position) const;
  void print(const std::string& line);
  void add_system(metrics::Record& entry);

  const TrainConfig& config_;
  std::unique_ptr<metrics::Sink> jsonl_;
  std::vector<metrics::Sink*> extra_sinks_;
  std::optional<ProgressBar> bar_;
  Rates rates_;
  Interval interval_;
  std::optional<ExpertReport> experts_;
  Rewards rewards_;
  std::optional<RankTimes> times_;
  Clock::duration system_every_ = std::chrono::seconds(5);
  std::optional<metrics::SystemSampler> system_;
  Device* device_ = nullptr;
  std::uint64_t sent_before_ = 0;
};

/// Whether the metrics.jsonl at `path` has the held-out loss of this step: a run that had ended was
/// called again.
bool has_evaluation(const std::filesystem::path& path, std::int64_t step);

}  // namespace atl::train
