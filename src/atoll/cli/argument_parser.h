#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace atl::cli {

/// What the value of an option is read into.
template <typename T>
concept OptionValue = std::same_as<T, std::string> || std::same_as<T, int> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t> || std::same_as<T, double> ||
    std::same_as<T, std::filesystem::path> || std::same_as<T, std::optional<int>> ||
    std::same_as<T, std::optional<std::int64_t>> || std::same_as<T, std::vector<std::string>> ||
    std::same_as<T, std::vector<std::int64_t>>;

/// An option, a flag or an argument with a place, once it is declared; cheap to copy. It may be
/// used as long as its parser lives.
class Argument {
 public:
  /// A command line without it is refused.
  Argument required();
  /// Values from `low` to `high`, both included, are taken; others are refused. Messages show the
  /// two as numbers of their type.
  Argument range(int low, int high);
  Argument range(std::int64_t low, std::int64_t high);
  Argument range(double low, double high);
  /// Only these words are taken.
  Argument one_of(const std::vector<std::string>& words);
  /// The two cannot both be given.
  Argument excludes(Argument other);
  /// The same, of an option that was declared before under this name.
  Argument excludes(const std::string& name);
  /// It means nothing without `other`, so that it is refused.
  Argument needs(Argument other);
  /// A word is cut into several values at each `separator`.
  Argument delimiter(char separator);
  /// Of several values each has the option's name before it.
  Argument one_value_each();
  /// Help shows what its variable holds now.
  Argument show_default();
  /// Help does not show it.
  Argument hide();

  /// How often it was given.
  std::size_t count() const;

  /// What it means, as it was declared.
  std::string description() const;
  /// Whether it has a place on the command line instead of a name before it.
  bool is_positional() const;
  /// "-n", "--ranks"; empty for one that has a place.
  std::vector<std::string> names() const;
  /// What its value is called: "TEXT", or the name of one that has a place; empty for a flag.
  std::string value_name() const;
  /// The words of one_of; empty: any.
  std::vector<std::string> choices() const;

 private:
  friend class ArgumentParser;
  explicit Argument(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

/// What came of parsing a command line.
struct ParseResult {
  bool wants_help = false;           ///< --help stands in it; all else is ignored
  std::optional<std::string> error;  ///< why it is refused, in the words of CLI11
};

/// What a command declares its options on, and what reads them. A copy is another name for the same
/// parser. Variables that options are read into must live until parse returns.
class ArgumentParser {
 public:
  /// Of a command; help says what it does, and its name behind "Usage:".
  ArgumentParser(const std::string& description, const std::string& name);

  /// Declares an option ("--name", "-n", "-o,--out") or an argument that has a place ("name"), and
  /// the variable that its value goes into.
  template <OptionValue T>
  Argument add_option(const std::string& name, T& value, const std::string& description = "");
  /// Declares an option without a value, which makes `value` true.
  Argument add_flag(const std::string& name, bool& value, const std::string& description = "");
  /// Declares a part of the command with options of its own: "step" of `atoll bench step`.
  ArgumentParser add_subcommand(const std::string& name, const std::string& description);
  /// A command line may name from `least` to `most` of the parts.
  void require_subcommand(std::size_t least, std::size_t most);
  /// Adds to what help says above the options.
  void append_description(const std::string& text);
  /// Sets what help says below the options.
  void set_footer(const std::string& text);
  /// Leaves words that nobody declared to unknown_words(), instead of refusing them.
  void allow_unknown_words();

  /// Reads the words after the command's name into the variables.
  ParseResult parse(const std::vector<std::string>& words);

  /// Whether a command line named this part.
  bool is_parsed() const;
  /// How often the option of this name was given.
  std::size_t count(const std::string& name) const;
  /// The words that nobody declared, also of parts.
  std::vector<std::string> unknown_words() const;
  /// What --help prints: of the part that was named, or else of this.
  std::string help() const;

  /// What the command or part is called.
  std::string name() const;
  /// What help says above the options.
  std::string description() const;
  /// The parts, in the order they were declared.
  std::vector<ArgumentParser> subcommands() const;
  /// Options, flags and arguments in the order they were declared: --help too, and hidden ones.
  std::vector<Argument> arguments() const;

 private:
  explicit ArgumentParser(std::shared_ptr<CLI::App> app);

  std::shared_ptr<CLI::App> app_;
};

}  // namespace atl::cli
