// What the shells complete, asked of bash itself; zsh and fish where they are installed.

#include "atoll/cli/completions/completions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include "atoll/base/files/file.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Completions : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/atoll-completions-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    write_file(directory_ / "atoll.bash", bash_completions(program_));
  }
  void TearDown() override { fs::remove_all(directory_); }

  // What a shell prints, a line each.
  std::vector<std::string> lines(const std::string& shell, const std::string& script) const {
    write_file(directory_ / "script", script);
    const std::string out = (directory_ / "out").string();
    const std::string command = fmt::format("cd {0} && {1} {0}/script >{2} 2>&1 </dev/null",
                                            directory_.string(), shell, out);
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(out);
    std::istringstream text(read_file(out));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }

  // What bash offers for the last of these words.
  std::vector<std::string> bash(const std::string& words) const {
    return lines("bash", fmt::format("compopt() {{ :; }}; . ./atoll.bash; COMP_WORDS=({}); "
                                     "COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _atoll; "
                                     "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                                     words));
  }

  static bool has(const std::string& shell) {
    return std::system(fmt::format("command -v {} >/dev/null", shell).c_str()) == 0;
  }

  const Described program_ = {describe_commands(), describe_settings()};
  fs::path directory_;
};

TEST_F(Completions, BashHasEachCommandOptionAndSetting) {
  ASSERT_GT(program_.commands.size(), 10u);
  ASSERT_GT(program_.settings.size(), 50u);
  const std::vector<std::string> commands = bash("atoll ''");
  for (const CommandDescription& command : program_.commands) {
    if (command.name.find(' ') == std::string::npos) {
      EXPECT_THAT(commands, Contains(command.name));
    }
    const std::vector<std::string> offered = bash("atoll " + command.name + " -");
    for (const OptionDescription& option : command.options) {
      for (const std::string& name : option.names) EXPECT_THAT(offered, Contains(name));
    }
    if (!command.takes_settings) continue;
    for (const OptionDescription& setting : program_.settings) {
      EXPECT_THAT(offered, Contains(setting.names[0] + "=")) << command.name;
    }
  }
}

TEST_F(Completions, BashKnowsWordsAndValues) {
  EXPECT_THAT(bash("atoll trai"), ElementsAre("train"));
  EXPECT_THAT(bash("atoll help ex"), ElementsAre("export"));
  EXPECT_THAT(bash("atoll certs re"), ElementsAre("revoke"));
  EXPECT_THAT(bash("atoll bench st"), ElementsAre("step"));
  EXPECT_THAT(bash("atoll bench ops --fil"), ElementsAre("--filter"));
  EXPECT_THAT(bash("atoll train r.toml --train.recompute = s"), ElementsAre("selective"));
  EXPECT_THAT(bash("atoll train --train.recompute ''"), ElementsAre("none", "selective", "full"));
  EXPECT_THAT(bash("atoll generate --greedy --promp"), ElementsAre("--prompt", "--prompt-file"));
  EXPECT_THAT(bash("atoll eval --train.st"), ElementsAre(""));  // reads no recipe
}

TEST_F(Completions, ZshAndFishHaveEachCommandOptionAndSetting) {
  const std::string zsh = zsh_completions(program_);
  const std::string fish = fish_completions(program_);
  for (const CommandDescription& command : program_.commands) {
    EXPECT_THAT(zsh, HasSubstr("    '" + command.name + "') _arguments"));
    const std::string last = command.name.substr(command.name.find(' ') + 1);
    EXPECT_THAT(fish, HasSubstr("__fish_seen_subcommand_from " + last + "'"));
    for (const OptionDescription& option : command.options) {
      EXPECT_THAT(zsh, HasSubstr(option.names.back()));
      const bool is_long = option.names.back().starts_with("--");
      EXPECT_THAT(fish, HasSubstr((is_long ? " -l " : " -s ") +
                                  option.names.back().substr(is_long ? 2 : 1) + " "));
    }
  }
  for (const OptionDescription& setting : program_.settings) {
    EXPECT_THAT(zsh, HasSubstr("'*" + setting.names[0] + "=["));
    EXPECT_THAT(fish, HasSubstr(" -l " + setting.names[0].substr(2) + " "));
  }
}

TEST_F(Completions, FishItself) {
  if (!has("fish")) GTEST_SKIP() << "there is no fish";
  write_file(directory_ / "atoll.fish", fish_completions(program_));
  const auto offered = [&](const std::string& line) {
    return lines(
        "env HOME=" + directory_.string() + " fish --no-config",
        "source ./atoll.fish; complete -C '" + line + "' | string replace -r '\\t.*' ''; true");
  };
  EXPECT_THAT(offered("atoll tr"), ElementsAre("train"));
  EXPECT_THAT(offered("atoll certs re"), ElementsAre("revoke"));
  EXPECT_THAT(offered("atoll bench step --wa"), ElementsAre("--warmup"));
  EXPECT_THAT(offered("atoll train --train.recompute="), Contains("--train.recompute=selective"));
  EXPECT_THAT(offered("atoll eval --train.st"), Not(Contains("--train.steps")));
  const std::vector<std::string> all = offered("atoll train --");
  for (const OptionDescription& setting : program_.settings) {
    EXPECT_THAT(all, Contains(setting.names[0]));
  }
}

TEST_F(Completions, ZshReadsItsScript) {
  if (!has("zsh")) GTEST_SKIP() << "there is no zsh";
  EXPECT_THAT(lines("zsh -f -n", zsh_completions(program_)), ElementsAre());
}

TEST_F(Completions, TheManualHasEachCommandAndSetting) {
  const std::string page = manual_page(program_);
  const auto literally = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2) {
      text.insert(at, "\\");
    }
    return text;
  };
  for (const CommandDescription& command : program_.commands) {
    EXPECT_THAT(page, HasSubstr(".SS atoll " + literally(command.name) + "\n"));
    for (const OptionDescription& option : command.options) {
      EXPECT_THAT(page, HasSubstr("\\fB" + literally(option.names.back()) + "\\fR"));
    }
  }
  for (const OptionDescription& setting : program_.settings) {
    EXPECT_THAT(page, HasSubstr("\\fB" + literally(setting.names[0]) + "\\fR"));
  }
}

}  // namespace
}  // namespace atl::cli
