#pragma once

// What the tests of parameter servers by the program share.

#include <string>
#include <vector>

#include "atoll/param_server/transport.h"
#include "train_fixture.h"

namespace atl::e2e {

/// Runs with parameter servers, of four micro-batches a step.
class Servers : public Train {
 protected:
  /// What processes are started with to speak over `transport`.
  static std::string transport_setting(param_server::Transport transport) {
    return fmt::format("--sync.transport={}", param_server::name_of(transport));
  }
  /// `atoll train` with so many workers and servers here, into the run called `name`.
  std::vector<std::string> served(const std::string& name, int workers, int servers,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"-n",
                                    std::to_string(workers),
                                    "--sync.mode=ps",
                                    "--sync.servers=" + std::to_string(servers),
                                    "--train.micro_batch=1",
                                    "--device.threads=1"};
    all.insert(all.end(), more.begin(), more.end());
    return command(name, all);
  }
  /// The same run on one rank, without servers.
  std::vector<std::string> alone(const std::string& name,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"--train.micro_batch=1", "--device.threads=1"};
    all.insert(all.end(), more.begin(), more.end());
    return command(name, all);
  }
  static void run(const std::vector<std::string>& arguments) {
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
  }
};

}  // namespace atl::e2e
