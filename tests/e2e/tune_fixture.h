#pragma once

// What the tests of `atoll tune` share.

#include <nlohmann/json.hpp>

#include "train_fixture.h"

namespace atl::e2e {

/// A study of the tiny run that Train has.
class Tune : public Train {
 protected:
  void SetUp() override {
    Train::SetUp();
    write_study("", "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n",
                "[budget]\ntrials = 4\n");
  }

  std::string study() const { return path("study.toml"); }
  std::string dir() const { return path("study"); }
  void write_study(const std::string& settings, const std::string& space,
                   const std::string& more) const {
    write_file(study(), fmt::format("[study]\nrecipe = \"{}\"\ndir = \"{}\"\n{}\n[space]\n{}\n{}",
                                    recipe(), dir(), settings, space, more));
  }
  /// `atoll tune` with short trials of one thread that no schedule moves.
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"tune", study(), "--train.steps=20",
                                          "--optim.schedule=constant", "--device.threads=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Finished tune(const std::vector<std::string>& more = {}) const { return atoll(command(more)); }

  nlohmann::json shown(const std::string& directory) const {
    const Finished finished = atoll({"tune", "show", directory, "--json"});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return nlohmann::json::parse(finished.out);
  }
  nlohmann::json shown() const { return shown(dir()); }
  nlohmann::json trials_of(const std::string& directory) const {
    return shown(directory)["trials"];
  }
  /// Of each trial what no restart may change: settings, forks, values.
  static nlohmann::json essence(const nlohmann::json& study) {
    nlohmann::json all = nlohmann::json::array();
    for (const nlohmann::json& trial : study["trials"]) {
      nlohmann::json one = {{"units", trial["units"]},
                            {"settings", trial["settings"]},
                            {"state", trial["state"]},
                            {"parent", trial.value("parent", -1)},
                            {"measured", nlohmann::json::array()}};
      for (const nlohmann::json& m : trial["measured"]) {
        one["measured"].push_back({m["step"], m["values"], m["tokens"]});
      }
      all.push_back(one);
    }
    return all;
  }
};

}  // namespace atl::e2e
