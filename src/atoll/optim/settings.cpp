#include "atoll/optim/settings.h"

#include <algorithm>
#include <cctype>

#include "atoll/base/check.h"

namespace atl::optim {

namespace {

void add(Settings& settings, const Option& option, const std::string& doc, SettingValue& value) {
  const std::string key = option_key(option.name);
  std::visit(
      [&](auto& member) {
        using T = std::decay_t<decltype(member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          settings.add(key, &member, doc, option.choices);
        } else if constexpr (std::is_same_v<T, bool> ||
                             std::is_same_v<T, std::vector<std::string>>) {
          settings.add(key, &member, doc);
        } else {
          settings.add(key, &member, doc, option.range);
        }
      },
      value);
  for (const char* name : option.elsewhere) settings.known_elsewhere_as(key, {name});
}

std::string capitalised(std::string text) {
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

}  // namespace

std::vector<Option> all_options(std::span<const OptimizerKind> kinds) {
  std::vector<Option> all;
  for (const OptimizerKind& kind : kinds) {
    for (const Option& option : kind.options) {
      const auto same = std::find_if(
          all.begin(), all.end(), [&](const Option& other) { return other.name == option.name; });
      if (same == all.end()) {
        all.push_back(option);
        continue;
      }
      ATOLL_CHECK(same->doc == option.doc && same->default_value == option.default_value,
                  "{} has two meanings, one of them for {}", option_key(option.name), kind.name);
    }
  }
  return all;
}

std::string readers(std::span<const OptimizerKind> kinds, const std::string& option) {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kinds) {
    if (kind.reads(option)) names.emplace_back(kind.name);
  }
  return enumerated(names, "and");
}

std::string describe(std::span<const OptimizerKind> kinds) {
  std::string text;
  for (const OptimizerKind& kind : kinds) {
    if (!text.empty()) text += "; ";
    text += kind.doc;
  }
  return text + ".";
}

OptionValues default_values(std::span<const OptimizerKind> kinds) {
  OptionValues values;
  for (const Option& option : all_options(kinds)) {
    values.emplace(option.name, option.default_value);
  }
  return values;
}

void register_default_options(Settings& settings, OptionValues& values,
                              std::span<const OptimizerKind> kinds) {
  for (const Option& option : kinds.front().options) {
    add(settings, option, capitalised(option.doc), values.at(option.name));
  }
}

void register_other_options(Settings& settings, OptionValues& values,
                            std::span<const OptimizerKind> kinds) {
  for (const Option& option : all_options(kinds)) {
    if (kinds.front().reads(option.name)) continue;
    add(settings, option, fmt::format("{}: {}", readers(kinds, option.name), option.doc),
        values.at(option.name));
  }
}

OptionValues values_for(const OptimizerKind& kind, const OptionValues& values) {
  OptionValues read;
  for (const auto& [name, value] : values) {
    if (kind.reads(name)) read.emplace(name, value);
  }
  return read;
}

}  // namespace atl::optim
