#pragma once

// Runs whose ranks compute on GPUs that the host plays.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {

/// Whole runs on fake GPUs, of a model that is smaller still: each thread of a GPU is a fiber.
class GpuRuns : public RanksFixture {
 protected:
  using Settings = std::vector<std::string>;

  static Settings with(Settings all, const Settings& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Two micro-batches a step unless `more` says otherwise.
  static Settings small(const Settings& more = {}) {
    return with({"--train.context=16", "--train.steps=4", "--model.hidden_size=16",
                 "--data.vocab_size=270", "--eval.max_tokens=64"},
                more);
  }
  Ended on_cpu(const std::string& name, const Settings& settings, int ranks = 1) {
    return train_ranks(name, ranks, settings);
  }
  Ended on_gpu(const std::string& name, const Settings& settings, int ranks = 1,
               std::int64_t stop_after = -1) {
    return train_ranks(name, ranks, with(settings, {"--device.kind=fake_cuda"}), stop_after);
  }

  // What a run says whose GPU is lost once there is a checkpoint: behind a multiple of `kernels`,
  // the first that is enough.
  std::string lose_gpu(const std::string& name, const Settings& settings, std::int64_t kernels) {
    for (std::int64_t after = kernels; after < 100000; after += kernels) {
      const Settings losing = with(settings, {fmt::format("--device.fake_lost_after={}", after)});
      std::string message = error_of([&] { on_gpu(name, losing); }, ErrorKind::kResource);
      if (message.find("There is no checkpoint yet") == message.npos) return message;
    }
    return "no error";
  }

  // All that the files of a checkpoint have of the model and of its optimizer, whichever rank wrote
  // them.
  static std::string all_tensors(const std::filesystem::path& checkpoint) {
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint)) {
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
    }
    std::string all;
    for (const std::filesystem::path& file : files) all += read_file(file);
    return all;
  }

  static double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double worst = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      worst = std::max(worst, std::abs(a[i] - b[i]));
    }
    return worst;
  }
};

}  // namespace atl::train
