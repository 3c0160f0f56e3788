#include "atoll/cli/program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"
#include "atoll/cli/arguments.h"
#include "atoll/cli/commands.h"
#include "atoll/train/config.h"

namespace atl::cli {

namespace {

constexpr const char* kVersion = "atoll " ATOLL_VERSION;

std::string overview() {
  std::string text =
      "atoll trains language models.\n\nusage: atoll COMMAND [arguments] [--group.key=value]\n\n";
  for (const Command& command : commands()) {
    if (!command.hidden) text += fmt::format("  {:<10}  {}\n", command.name, command.summary);
  }
  return text +
         "\n`atoll COMMAND --help` says more, with an example; `atoll --version` says which this "
         "is.\n";
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    if (!command.hidden) names.emplace_back(command.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw user_error("unknown command {}; {}", name,
                   nearest.empty() ? "`atoll help` lists them"
                                   : fmt::format("did you mean `atoll {}`?", nearest));
}

// Refuses arguments no one declared. For an option, names the nearest among the command's own and,
// by their last part, the settings ("--steps" is --train.steps).
void refuse_extras(const CLI::App& app, const Command& command) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string option = extras.front().substr(0, extras.front().find('='));
  if (!option.starts_with('-')) {
    throw user_error("unexpected argument {}; see `atoll {} --help`", option, command.name);
  }
  std::vector<std::string> names;
  for (const CLI::Option* known : app.get_options()) {
    for (const std::string& name : known->get_lnames()) names.push_back(name);
  }
  if (command.takes_overrides) {
    train::TrainConfig config;
    const Settings settings = train::make_settings(config);
    for (const Setting& setting : settings.all()) names.push_back(setting.key);
  }
  const std::string nearest = nearest_name(option.substr(option.find_first_not_of('-')), names);
  throw user_error("unknown option {}; {}", option,
                   nearest.empty() ? fmt::format("see `atoll {} --help`", command.name)
                                   : fmt::format("did you mean --{}?", nearest));
}

// CLI11's own words, in one line.
Error usage_error(const Command& command, std::string words) {
  for (char& c : words) {
    if (c == '\n') c = ' ';
  }
  return user_error("{}; see `atoll {} --help`", words, command.name);
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  const Arguments split = split_arguments(arguments);
  CLI::App app(command.summary, std::string("atoll ") + command.name);
  app.allow_extras();  // refused below, with the nearest name
  app.footer(std::string("Example:\n") + command.example);
  const Action action = command.add(app);
  try {
    // CLI11 wants them last first.
    app.parse(std::vector<std::string>(split.options.rbegin(), split.options.rend()));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    return 0;
  } catch (const CLI::ParseError& error) {
    // A misspelt option comes before what is missing because of it.
    refuse_extras(app, command);
    throw usage_error(command, error.what());
  }
  refuse_extras(app, command);
  if (!command.takes_overrides && !split.overrides.empty()) {
    throw user_error("`atoll {}` reads no recipe, so it takes no {}", command.name,
                     split.overrides.front());
  }
  return action({split.overrides});
}

int dispatch(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "help" : arguments[0];
  if (first == "--version") {
    std::cout << kVersion << "\n";
    return 0;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    if (arguments.size() > 1) return run_command(find_command(arguments[1]), {"--help"});
    std::cout << overview();
    return 0;
  }
  return run_command(find_command(first), {arguments.begin() + 1, arguments.end()});
}

// What was printed may still be on its way to a full disk, or have been lost there: a run goes on
// when a line about it cannot be written, and says so here at last.
void flush_standard_output() {
  errno = 0;
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (errno == 0) {
      throw make_error(ErrorKind::kIo, "some of what was written to standard output is lost");
    }
    throw make_error(ErrorKind::kIo, "cannot write to standard output: {}", std::strerror(errno));
  }
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    const int code = dispatch(arguments);
    flush_standard_output();
    return code;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "error: out of memory; use a smaller train.micro_batch or model, or "
               "train.recompute=full\n");
    return 1;
  } catch (const std::system_error& error) {  // of streams and std::filesystem: a full disk, ...
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {} (this is a bug in atoll)\n", error.what());
    return 1;
  }
}

}  // namespace atl::cli
