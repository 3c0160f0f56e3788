#pragma once

// Islands whose ranks are lost, and join, while they train: each rank is a thread.

#include <memory>
#include <string>
#include <vector>

#include "atoll/island/coordinator/service.h"
#include "atoll/train/regroup/regroup_testing.h"

namespace atl::train {

/// Runs of one island of several ranks, each beside a coordinator of its own.
class IslandRegroupTest : public RegroupTest {
 protected:
  /// A kind of island: its name, and the settings that make it.
  struct Kind {
    std::string name;
    int zero = 0;
    std::vector<std::string> settings;
  };
  static std::vector<Kind> kinds() {
    return {{"diloco", 0, {}},
            {"streaming",
             1,
             {"--outer.algorithm=streaming", "--outer.fragments=2", "--outer.overlap=1",
              "--outer.merge=0.5"}},
            {"eager", 2, {"--outer.algorithm=eager"}},
            {"sharded", 3, {"--outer.codec=int8"}},
            {"bf16", 3, {"--train.dtype=bf16"}}};
  }
  /// Its settings for a run called `name`; starts the coordinator of that run.
  std::vector<std::string> settings(const Kind& kind, const std::string& name) {
    coordinator_ = std::make_unique<island::CoordinatorService>(
        island::ServiceOptions{.dir = root_ / (name + "-ledger")});
    std::vector<std::string> all = exact(kind.zero);
    all.insert(all.end(),
               {"--island.coordinator=" + coordinator_->address(), "--island.name=lyon",
                "--island.listen=127.0.0.1:0", "--outer.islands=1", "--outer.inner_steps=2"});
    all.insert(all.end(), kind.settings.begin(), kind.settings.end());
    return all;
  }
  /// What nothing disturbs.
  Ended train_whole(const Kind& kind, int ranks) {
    const std::string name = kind.name + "-whole";
    return train_ranks(name, ranks, settings(kind, name));
  }

 private:
  std::unique_ptr<island::CoordinatorService> coordinator_;
};

}  // namespace atl::train
