#pragma once

// What the tests of agents that join a launch share.

#include <string>
#include <vector>

#include "ranks_fixture.h"

namespace atl::e2e {

/// A launch that others may join, and agents that do.
class Joining : public Elastic {
 protected:
  /// A launch that any agent may join; it goes on in place with ZeRO 0.
  std::vector<std::string> open_launch(const std::string& name, std::vector<std::string> more,
                                       int zero = 0) const {
    more.emplace_back("--rendezvous=tcp://127.0.0.1:0");
    return launch(name, settings(std::move(more), zero));
  }
  /// An agent of that name, with the same settings.
  std::vector<std::string> agent(const std::string& name, const std::string& address,
                                 std::vector<std::string> more, int zero = 0) const {
    more.push_back("--join=" + address);
    return launch(name, settings(std::move(more), zero));
  }
  /// Where that launch can be joined.
  static std::string address_of(const Program& launch) {
    const std::string before = "others may join: atoll launch --join=";
    std::string address;
    EXPECT_TRUE(soon([&] {
      const std::string said = launch.errors();
      const std::size_t at = said.find(before);
      if (at == said.npos) return false;
      const std::size_t end = said.find(' ', at + before.size());
      if (end == said.npos) return false;
      address = said.substr(at + before.size(), end - at - before.size());
      return true;
    })) << launch.errors();
    return address;
  }
  /// Waits until that many ranks train together.
  bool regrouped(const std::string& name, int ranks) const {
    return soon([&] {
      int last = 0;
      for (const metrics::Record& record : records(name)) {
        for (const auto& [key, value] : record.values) {
          if (key == "regroup_ranks") last = static_cast<int>(std::get<std::int64_t>(value));
        }
      }
      return last == ranks;
    });
  }
  /// Whether a run ended with the weights of one that nothing disturbed.
  void expect_undisturbed(const std::string& name) const {
    const std::int64_t steps = records(name).back().step;
    const std::string whole = "whole-" + name;
    const Finished finished =
        run_ranks(whole, exact({"--optim.schedule=constant"}, static_cast<int>(steps)));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(weights(name, steps), weights(whole, steps));
  }
  /// Stops an endless launch, which must say so.
  static Finished stop(Program& launch) {
    launch.send(SIGTERM);
    Finished finished = launch.wait();
    EXPECT_EQ(finished.exit_code, 143) << finished.err;
    return finished;
  }

 private:
  // However long it takes, it is stopped where another run can end too.
  static std::vector<std::string> settings(std::vector<std::string> more, int zero) {
    more.push_back(fmt::format("--dp.zero={}", zero));
    more.emplace_back("--optim.schedule=constant");
    return exact(std::move(more), kEndless);
  }
};

}  // namespace atl::e2e
