#include "atoll/cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <system_error>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/size_limit.h"
#include "atoll/base/json.h"
#include "atoll/base/nearest.h"
#include "atoll/base/processes/memory_error.h"
#include "atoll/base/terminal.h"
#include "atoll/cli/argument_parser.h"
#include "atoll/cli/arguments.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/foreign/foreign_commands.h"
#include "atoll/cli/foreign/foreign_options.h"
#include "atoll/cli/setting_lists.h"
#include "atoll/text/utf8.h"
#include "atoll/train/config/config.h"
#include "atoll/train/config/recipe.h"

namespace atl::cli {

namespace {

constexpr const char* kVersion = "atoll " ATOLL_VERSION;

std::string overview() {
  std::string text =
      "atoll trains language models.\n\nusage: atoll COMMAND [arguments] [--group.key=value]\n\n";
  std::size_t width = 0;
  for (const Command& command : commands()) {
    width = std::max(width, std::string_view(command.name).size());
  }
  for (const Command& command : commands()) {
    text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  }
  return text +
         "\n`atoll COMMAND --help` says more, with an example; `atoll --version` says which this "
         "is.\n";
}

// An argument as a message shows it: it may be a whole prompt.
std::string shown(const std::string& argument) {
  constexpr std::size_t kLongest = 60;
  if (argument.size() <= kLongest) return argument;
  const std::string words = argument.substr(0, kLongest);
  return words.substr(0, text::valid_utf8_prefix(words)) + "...";
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  if (name.starts_with('-')) {
    throw user_error("{} comes before any command; write `atoll COMMAND {} ...`", shown(name),
                     shown(name));
  }
  if (name.ends_with(".toml")) {
    throw user_error("{} is no command; did you mean `atoll train {}`?", shown(name), shown(name));
  }
  if (const std::string advice = foreign_command_advice(name); !advice.empty()) {
    throw user_error("unknown command {}; {}", name, advice);
  }
  const std::string nearest = nearest_name(name, names);
  throw user_error("unknown command {}; {}", shown(name),
                   nearest.empty() ? "`atoll help` lists them"
                                   : fmt::format("did you mean `atoll {}`?", nearest));
}

// What to give instead of "--epochs=3", or of "--device cpu" with the value as the next word; empty
// when nothing is known of it.
std::string setting_advice(const std::string& option, const std::string& next) {
  const std::size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::size_t begin = std::min(name.find_first_not_of('-'), name.size());
  train::TrainConfig config;
  return train::make_settings(config).advice_elsewhere(
      name.substr(begin), equals == option.npos ? next : option.substr(equals + 1), "--");
}

Error unexpected_argument(const Command& command, const std::string& argument) {
  if (command.takes_overrides) {
    if (const std::string written = train::as_setting(argument); !written.empty()) {
      return user_error("{}: settings are written {}", shown(argument), shown(written));
    }
    const std::size_t equals = argument.find('=');
    const std::string advice = equals == argument.npos ? "" : setting_advice(argument, "");
    if (!advice.empty()) return user_error("unexpected argument {}; {}", shown(argument), advice);
  }
  return user_error(
      "unexpected argument {}; {}", shown(argument),
      *command.stray != '\0' ? command.stray : fmt::format("see `atoll {} --help`", command.name));
}

// The nearest option of a command to what was typed without its dashes; of settings also by the
// last part of their names ("--steps" is --train.steps) and by what other programs call them.
std::string nearest_option(const ArgumentParser& parser, const Command& command,
                           const std::string& typed) {
  std::vector<std::string> names;
  for (const Argument& known : parser.arguments()) {
    for (const std::string& name : known.names()) {
      if (name.starts_with("--")) names.push_back(name.substr(2));
    }
  }
  const std::string own = nearest_name(typed, names);
  if (!command.takes_overrides || (!own.empty() && edit_distance(typed, own) <= 1)) return own;
  train::TrainConfig config;
  const std::string key = train::make_settings(config).nearest(typed);
  return key.empty() ? own : key;
}

// A setting of which only the group was given: "--train" for --train.steps.
void refuse_group(const std::string& typed) {
  train::TrainConfig config;
  Settings settings = train::make_settings(config);
  for (const Setting& setting : settings.all()) {
    if (setting.key.starts_with(typed + ".")) settings.find(typed);  // throws what it has
  }
}

// Refuses arguments no one declared, and says what to give instead.
void refuse_extras(const ArgumentParser& parser, const Command& command) {
  std::vector<std::string> extras = parser.unknown_words();
  std::erase(extras, "--");
  if (extras.empty()) return;
  if (!extras.front().starts_with('-')) throw unexpected_argument(command, extras.front());
  const std::string option = extras.front().substr(0, extras.front().find('='));
  const std::size_t begin = std::min(option.find_first_not_of('-'), option.size());
  const std::string typed = option.substr(begin);
  const std::string foreign = foreign_option_advice(command.name, typed);
  if (!foreign.empty()) throw user_error("unknown option {}; {}", shown(option), foreign);
  if (command.takes_overrides) {
    const std::string advice = setting_advice(extras[0], extras.size() > 1 ? extras[1] : "");
    if (!advice.empty()) throw user_error("unknown option {}; {}", shown(option), advice);
    refuse_group(typed);
  }
  const std::string nearest = nearest_option(parser, command, typed);
  throw user_error("unknown option {}; {}", shown(option),
                   nearest.empty() ? fmt::format("see `atoll {} --help`", command.name)
                                   : fmt::format("did you mean --{}?", nearest));
}

// "--device is gpu; it must be one of cpu, cuda; did you mean cuda?"
std::string not_one_of(const std::string& option, const std::string& word,
                       const std::string& listed) {
  std::vector<std::string> names;
  std::istringstream words(listed);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  std::string meant = foreign_word_meant(word, names);
  if (meant.empty()) meant = nearest_name(word, names);
  return fmt::format("{} is {}; it must be one of {}{}", option, shown(word),
                     fmt::join(names, ", "),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

// What CLI11 says, in our words where its own are hard to understand.
std::string plain(const std::string& words) {
  static const std::regex kNotOneOf("(.+): (.*) not in \\{(.*)\\}");
  if (std::smatch parts; std::regex_match(words, parts, kNotOneOf)) {
    return not_one_of(parts[1], parts[2], parts[3]);
  }
  static const std::pair<std::regex, const char*> kPlain[] = {
      {std::regex("(.+): 1 required (\\w+) missing"), "$1 has no value; write $1 $2"},
      {std::regex("Could not convert: (.+) = ([+-]?[0-9]*\\.[0-9]+)"),
       "$1 is $2, and a whole number is wanted"},
      {std::regex("Could not convert: (.+) = (.*)"), "$1 is $2, and a number is wanted"},
      {std::regex("(--.+) is required"), "$1 is missing"},
      {std::regex("([a-z].*) is required"), "the argument $1 is missing"},
      {std::regex("(.+): Value (.*) not in range (.+) to (.+)"),
       "$1 is $2; it must be from $3 to $4"},
      {std::regex("(.+) excludes (.+)"), "$1 and $2 cannot both be given"},
      {std::regex("(.+) requires (.+)"), "$1 means nothing without $2"},
  };
  for (const auto& [pattern, format] : kPlain) {
    if (!std::regex_match(words, pattern)) continue;
    // It writes the ends of a range as 0.500000.
    static const std::regex kZeros("(\\.[0-9]*[1-9])0+$|(\\.[0-9]*[1-9])0+ |\\.0+( |$)");
    return std::regex_replace(std::regex_replace(words, pattern, format), kZeros, "$1$2$3");
  }
  return words;
}

Error usage_error(const Command& command, const std::string& words) {
  return user_error("{}; see `atoll {} --help`", plain(words), command.name);
}

// "--group.key=value" for a command that reads no recipe.
void refuse_setting(const Command& command, const std::string& word) {
  if (command.takes_overrides) return;
  const std::string key = word.substr(2, word.find('=') - 2);
  if (std::find(command.settings.begin(), command.settings.end(), key) != command.settings.end()) {
    return;
  }
  const std::string nearest = nearest_name(key, command.settings);
  throw user_error("`atoll {}` reads no recipe, so it takes no {}{}", command.name, word,
                   nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  const Arguments split = split_arguments(arguments);
  ArgumentParser parser(command.summary, std::string("atoll ") + command.name);
  parser.allow_unknown_words();  // refused below, with the nearest name
  const std::string settings = command.takes_overrides ? usual_settings() + "\n" : "";
  parser.set_footer(settings + "Example:\n" + command.example);
  const Action action = command.add(parser);
  const ParseResult result = parser.parse(split.options);
  if (result.wants_help) {
    std::cout << parser.help() << std::flush;
    return 0;
  }
  // A misspelt option comes before what is missing because of it.
  refuse_extras(parser, command);
  if (result.error) throw usage_error(command, *result.error);
  for (const std::string& word : split.overrides) refuse_setting(command, word);
  return action({split.overrides, arguments});
}

int dispatch(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "help" : arguments[0];
  if (first == "--version" || first == "-V" || first == "version") {
    std::cout << kVersion << "\n";
    return 0;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    if (arguments.size() > 1) return run_command(find_command(arguments[1]), {"--help"});
    std::cout << overview();
    return 0;
  }
  const Command& command = find_command(first);
  const bool wants_help = arguments.size() == 2 && arguments[1] == "help" && !path_exists("help");
  if (wants_help) return run_command(command, {"--help"});
  return run_command(command, {arguments.begin() + 1, arguments.end()});
}

// Whoever read standard output has closed it, as `| head` does when it has enough. Nobody is left
// who wants to be told: the exit code is what a shell reports of a program that SIGPIPE ended.
constexpr int kReaderGone = 128 + SIGPIPE;

// What was printed may still be on its way to a full disk, or have been lost there: a run goes on
// when a line about it cannot be written, and says so here at last. Returns the exit code.
int flush_standard_output(int code) {
  errno = 0;
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int reason = errno;
  if (reader_is_gone(STDOUT_FILENO)) return code == 0 ? kReaderGone : code;
  if (reason == 0) {
    throw make_error(ErrorKind::kIo, "some of what was written to standard output is lost");
  }
  throw make_error(ErrorKind::kIo, "cannot write to standard output: {}{}", std::strerror(reason),
                   reason == EFBIG ? size_limit_advice() : "");
}

// Nothing is left to do about one that cannot be written.
void print_error(const std::string& text) {
  const std::string line = fmt::format("error: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

namespace {

// "; use a smaller ...", as the command advises.
std::string memory_advice(const std::vector<std::string>& arguments) {
  for (const Command& command : commands()) {
    const bool is_it = !arguments.empty() && arguments[0] == command.name;
    if (is_it && *command.memory_advice != '\0') return fmt::format("; {}", command.memory_advice);
  }
  return "";
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    return flush_standard_output(dispatch(arguments));
  } catch (const MemoryError& error) {
    print_error(error.what() + memory_advice(arguments));
    return error.exit_code();
  } catch (const Error& error) {
    print_error(error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    print_error("out of memory" + memory_advice(arguments));
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    const Error named = io_error("cannot use", error.path1(), error.code().value());
    print_error(named.what());
    return named.exit_code();
  } catch (const std::system_error& error) {  // of streams: a full disk, ...
    const bool is_pipe = error.code() == std::errc::broken_pipe;
    if (is_pipe && reader_is_gone(STDOUT_FILENO)) return kReaderGone;
    print_error(error.what());
    return 1;
  } catch (const nlohmann::json::type_error& error) {
    constexpr int kNotUtf8 = 316;  // of what is to be written
    const bool is_users = error.id == kNotUtf8;
    print_error(fmt::format("{} ({})", is_users ? json_reason(error) : error.what(),
                            is_users ? "a name or a text that goes into a file of JSON must be "
                                       "UTF-8: rename it"
                                     : "this is a bug in atoll"));
    return is_users ? 2 : 1;
  } catch (const std::exception& error) {
    print_error(fmt::format("{} (this is a bug in atoll)", error.what()));
    return 1;
  }
}

}  // namespace atl::cli
