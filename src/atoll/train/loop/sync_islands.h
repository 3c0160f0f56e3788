#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "atoll/train/island/rounds.h"
#include "atoll/train/loop/sync_data_parallel.h"

namespace atl::train {

/// The ranks of an island. Between steps the island exchanges with other islands (IslandRounds);
/// IslandRounds also determines the next batch and when the run is over.
class IslandSync final : public DataParallelSync {
 public:
  using DataParallelSync::DataParallelSync;
  ~IslandSync() override;

  void open(const std::filesystem::path& checkpoint) override;

 protected:
  std::optional<Turn> choose() override;
  bool has_last_step() const override { return rounds_->is_over(); }
  bool has_finished() const override { return rounds_->is_over(); }
  bool is_left_to_end() const override { return false; }
  bool moves_without_step() const override { return true; }
  void stepped(const StepResult& result) override;
  void saved_last() override { rounds_->tell_saved(); }
  void stopped() override { rounds_->leave("it was stopped"); }
  void stay() override {
    rounds_->stay([this] { return run_.stop->here() != 0; });
  }
  void check_ranks(const std::vector<Hello>& hellos) const override;
  void regrouped() override;

 private:
  void make_rounds();

  std::optional<IslandRounds> rounds_;  // set by open() or join()
};

}  // namespace atl::train
