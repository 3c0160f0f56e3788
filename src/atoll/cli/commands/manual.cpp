#include <fmt/format.h>

#include "atoll/cli/commands.h"
#include "atoll/cli/completions/completions.h"

namespace atl::cli {

namespace {

constexpr const char* kHead = R"(.TH ATOLL 1 "" "atoll )" ATOLL_VERSION R"(" "User Commands"
.SH NAME
atoll \- train language models on one machine, a cluster, or islands of machines
.SH SYNOPSIS
.B atoll
.I COMMAND
[arguments] [\-\-group.key=value]
.SH DESCRIPTION
One program trains, fine\-tunes, evaluates and samples language models. A run is described by a
recipe, a TOML file; each of its settings is also an option of the commands that read recipes.
.B atoll help
lists the commands,
.B atoll COMMAND \-\-help
says more of one.
)";

constexpr const char* kTail = R"(.SH EXIT STATUS
0 on success, 1 for a failure, 2 for a mistake in what was asked, 128 and the number of a signal
that ended it. What was saved before stays.
.SH FILES
.TP
.I /usr/share/atoll/recipes
recipes to begin with
.TP
.I /usr/share/doc/atoll
the documentation: a page per task
)";

// As roff shows it literally.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c != '`') {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string option_text(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + plain(name) + "\\fR");
  std::string title = fmt::format("{}", fmt::join(names, ", "));
  if (!option.value.empty()) {
    title += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", plain(option.value));
  }
  std::string help = plain(option.help);
  if (!option.choices.empty() && !option.names.empty()) {
    help += plain(fmt::format(" ({})", fmt::join(option.choices, ", ")));
  }
  return ".TP\n" + title + "\n" + help + "\n";
}

std::string command_text(const CommandDescription& command) {
  std::string out = fmt::format(".SS atoll {}\n{}\n", plain(command.name), plain(command.summary));
  for (const OptionDescription& argument : command.arguments) out += option_text(argument);
  for (const OptionDescription& option : command.options) out += option_text(option);
  if (command.takes_settings) out += ".PP\nIt takes settings, too.\n";
  if (!command.example.empty()) {
    out += ".PP\n.nf\n";
    for (std::size_t begin = 0; begin < command.example.size();) {
      const std::size_t end = std::min(command.example.find('\n', begin), command.example.size());
      out += plain(command.example.substr(begin, end - begin)) + "\n";
      begin = end + 1;
    }
    out += ".fi\n";
  }
  return out;
}

}  // namespace

std::string manual_page(const Described& program) {
  std::string out = kHead;
  out += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.commands) out += command_text(command);
  out +=
      ".SH SETTINGS\nEach stands in a recipe or on the command line, as in "
      "\\-\\-train.steps=500.\n";
  for (const OptionDescription& setting : program.settings) {
    // Its type already names its choices.
    out += option_text({.names = setting.names, .value = setting.value, .help = setting.help});
  }
  return out + kTail;
}

}  // namespace atl::cli
