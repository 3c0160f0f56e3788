#pragma once

// Runs of several ranks, each a thread of the test.

#include "atoll/model_dir/adapter.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {

/// Runs whose ranks are threads of this process.
class RanksFixture : public TrainerTest {
 protected:
  struct Ended {
    std::string values;  // of the last checkpoint, whole
    std::vector<metrics::Record> records;
    TrainOutcome outcome;  // of rank 0
  };

  Ended train_ranks(const std::string& name, int ranks, std::vector<std::string> overrides = {},
                    std::int64_t stop_after = -1, int stopped_rank = 0) {
    TrainConfig config;
    Settings settings = make_settings(config);
    configure_ranks(config, settings, name, std::move(overrides));
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    Ended ended;
    comm::run_threads(ranks, {.timeout_s = 60}, [&](comm::World& world) {
      Trainer trainer(config, settings, world);
      Raiser raiser(stop_after);
      if (world.rank() == stopped_rank) trainer.add_sink(raiser);
      const TrainOutcome outcome = trainer.run();
      if (world.rank() == 0) ended.outcome = outcome;
    });
    ended.values = whole(ended.outcome.checkpoint);
    ended.records = metrics::read_jsonl(root_ / name / "metrics.jsonl");
    return ended;
  }

  void configure_ranks(const TrainConfig& config, Settings& settings, const std::string& name,
                       std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), {"--device.threads=1", "--log.every=1"});
    configure(settings, name, overrides);
    validate(config, settings);
  }

  // Every tensor of a checkpoint's model, or of its adapter, in the order of names.
  static std::string whole(const std::filesystem::path& checkpoint) {
    const std::filesystem::path adapter = checkpoint / model_dir::kAdapterWeightsFile;
    if (std::filesystem::exists(adapter)) return read_file(adapter);
    const ckpt::HfDirectory directory(checkpoint);
    std::string all;
    for (const std::string& tensor : directory.tensor_names()) {
      const auto bytes = directory.file_of(tensor).bytes(tensor);
      all += tensor;
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }

  static std::vector<double> values_of(const std::vector<metrics::Record>& records,
                                       const std::string& name) {
    std::vector<double> found;
    for (const metrics::Record& record : records) {
      for (const auto& [key, value] : record.values) {
        if (key == name) found.push_back(std::get<double>(value));
      }
    }
    return found;
  }
};

}  // namespace atl::train
