#include "atoll/cli/argument_parser.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace atl::cli {

Argument Argument::required() {
  return Argument(option_->required());
}

Argument Argument::range(int low, int high) {
  return Argument(option_->check(CLI::Range(low, high)));
}

Argument Argument::range(std::int64_t low, std::int64_t high) {
  return Argument(option_->check(CLI::Range(low, high)));
}

Argument Argument::range(double low, double high) {
  return Argument(option_->check(CLI::Range(low, high)));
}

Argument Argument::one_of(const std::vector<std::string>& words) {
  // In any case; the variable gets the word as it is written here.
  return Argument(option_->transform(CLI::IsMember(words, CLI::ignore_case)));
}

Argument Argument::excludes(Argument other) {
  return Argument(option_->excludes(other.option_));
}

Argument Argument::excludes(const std::string& name) {
  return Argument(option_->excludes(name));
}

Argument Argument::needs(Argument other) {
  return Argument(option_->needs(other.option_));
}

Argument Argument::delimiter(char separator) {
  return Argument(option_->delimiter(separator));
}

Argument Argument::one_value_each() {
  return Argument(option_->allow_extra_args(false));
}

Argument Argument::show_default() {
  return Argument(option_->capture_default_str());
}

Argument Argument::hide() {
  return Argument(option_->group(""));
}

std::size_t Argument::count() const {
  return option_->count();
}

std::string Argument::description() const {
  return option_->get_description();
}

bool Argument::is_positional() const {
  return option_->get_positional();
}

std::vector<std::string> Argument::names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_snames()) names.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Argument::value_name() const {
  if (is_positional()) return option_->get_name(/*positional=*/true);
  if (option_->get_items_expected_max() <= 0) return "";
  const std::string type = option_->get_type_name();
  return type.substr(0, type.find(':'));
}

// CLI11 keeps the words of IsMember only in the name of the type: "TEXT:{init,issue}".
std::vector<std::string> Argument::choices() const {
  const std::string type = option_->get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

ArgumentParser::ArgumentParser(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {}

ArgumentParser::ArgumentParser(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

template <OptionValue T>
Argument ArgumentParser::add_option(const std::string& name, T& value,
                                    const std::string& description) {
  return Argument(app_->add_option(name, value, description));
}

template Argument ArgumentParser::add_option(const std::string&, std::string&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, int&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::int64_t&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::uint64_t&,
                                             const std::string&);
template Argument ArgumentParser::add_option(const std::string&, double&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::filesystem::path&,
                                             const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::optional<int>&,
                                             const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::optional<std::int64_t>&,
                                             const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::vector<std::string>&,
                                             const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::vector<std::int64_t>&,
                                             const std::string&);

Argument ArgumentParser::add_flag(const std::string& name, bool& value,
                                  const std::string& description) {
  return Argument(app_->add_flag(name, value, description));
}

ArgumentParser ArgumentParser::add_subcommand(const std::string& name,
                                              const std::string& description) {
  return ArgumentParser(app_->get_subcommand_ptr(app_->add_subcommand(name, description)));
}

void ArgumentParser::require_subcommand(std::size_t least, std::size_t most) {
  app_->require_subcommand(least, most);
}

void ArgumentParser::append_description(const std::string& text) {
  app_->description(app_->get_description() + text);
}

void ArgumentParser::set_footer(const std::string& text) {
  app_->footer(text);
}

void ArgumentParser::allow_unknown_words() {
  app_->allow_extras();
}

ParseResult ArgumentParser::parse(const std::vector<std::string>& words) {
  try {
    // CLI11 wants them last first.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    return {.wants_help = true};
  } catch (const CLI::ParseError& error) {
    return {.error = error.what()};
  }
  return {};
}

bool ArgumentParser::is_parsed() const {
  return app_->parsed();
}

std::size_t ArgumentParser::count(const std::string& name) const {
  return app_->count(name);
}

std::vector<std::string> ArgumentParser::unknown_words() const {
  return app_->remaining(/*recurse=*/true);
}

std::string ArgumentParser::help() const {
  return app_->help();
}

std::string ArgumentParser::name() const {
  return app_->get_name();
}

std::string ArgumentParser::description() const {
  return app_->get_description();
}

std::vector<ArgumentParser> ArgumentParser::subcommands() const {
  std::vector<ArgumentParser> parts;
  for (CLI::App* part : app_->get_subcommands([](CLI::App*) { return true; })) {
    parts.push_back(ArgumentParser(app_->get_subcommand_ptr(part)));
  }
  return parts;
}

std::vector<Argument> ArgumentParser::arguments() const {
  std::vector<Argument> all;
  for (CLI::Option* option : app_->get_options()) all.push_back(Argument(option));
  return all;
}

}  // namespace atl::cli
