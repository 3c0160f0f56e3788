#include "atoll/island/protocol/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace atl::island {

namespace {

constexpr std::string_view kBetween = "; ", kIs = " = ";

std::map<std::string, std::string> parsed(std::string_view text) {
  std::map<std::string, std::string> values;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kBetween), text.size());
    const std::string_view one = text.substr(0, end);
    const std::size_t is = std::min(one.find(kIs), one.size());
    values[std::string(one.substr(0, is))] = one.substr(std::min(is + kIs.size(), one.size()));
    text.remove_prefix(std::min(end + kBetween.size(), text.size()));
  }
  return values;
}

// "nothing" where there is no such key: the other side is of another version.
std::string shown(const std::map<std::string, std::string>& values, const std::string& key) {
  constexpr std::size_t kMost = 100;
  const auto found = values.find(key);
  if (found == values.end()) return "nothing";
  const std::string& value = found->second;
  return value.size() <= kMost ? value : value.substr(0, kMost) + "...";
}

}  // namespace

std::string settings_text(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    text += fmt::format("{}{}{}{}", text.empty() ? "" : kBetween, key, kIs, value);
  }
  return text;
}

std::string settings_difference(const std::string& theirs, const std::string& ours) {
  if (theirs == ours) return "";
  const auto there = parsed(theirs), here = parsed(ours);
  std::map<std::string, std::string> all = there;
  all.insert(here.begin(), here.end());
  constexpr int kShown = 3;
  std::string text;
  int count = 0;
  for (const auto& [key, value] : all) {
    const auto a = there.find(key), b = here.find(key);
    if (a != there.end() && b != here.end() && a->second == b->second) continue;
    if (++count > kShown) continue;
    text += fmt::format("{}{} is {} there and {} in the run", text.empty() ? "" : ", ", key,
                        shown(there, key), shown(here, key));
  }
  if (count > kShown) text += fmt::format(", and {} more", count - kShown);
  return text.empty() ? "the settings are written otherwise" : text;
}

}  // namespace atl::island
