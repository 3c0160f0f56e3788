#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"
#include "atoll/train/config/config.h"
#include "atoll/tune/search/space.h"

namespace atl::tune {

namespace {

using Kind = Dimension::Kind;

constexpr std::string_view kPrefix = "space.";
const std::vector<std::string> kAttributes = {"low", "high", "scale", "step", "choices", "when"};

// What a study file says of one key.
struct Described {
  std::string key;
  std::string where;  // "study.toml:12"
  std::map<std::string, TomlEntry> attributes;
  std::vector<TomlEntry> when;  // keys without what stands before them

  std::string name() const { return fmt::format("{}: space.{}", where, key); }
};

double number_of(const Described& d, const std::string& attribute) {
  const TomlEntry& entry = d.attributes.at(attribute);
  if (entry.known) {
    if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
      return static_cast<double>(*integer);
    }
    if (const auto* number = std::get_if<double>(&entry.value); number && std::isfinite(*number)) {
      return *number;
    }
  }
  throw user_error("{}: {} is {}, and a number is wanted", d.name(), attribute, entry.text);
}

// Settings to look keys up in and to try values on.
struct Registry {
  train::TrainConfig config;
  Settings settings = train::make_settings(config);
};

// Throws what a recipe with this value would be told.
void try_value(const Described& d, const SettingValue& value) {
  Registry registry;
  try {
    registry.settings.load_toml_text(fmt::format("{} = {}", d.key, to_toml(value)), d.where);
  } catch (const Error& error) {
    // "study.toml:12:1: optim.kind is ...": our own text has but one line.
    std::string what = error.what();
    if (what.starts_with(d.where + ":1: ")) what.erase(0, d.where.size() + 4);
    throw user_error("{}: space.{}", d.where, what);
  }
}

std::vector<SettingValue> choices_of(const Described& d, const Setting& setting) {
  const TomlEntry& entry = d.attributes.at("choices");
  std::vector<SettingValue> choices;
  const bool is_integer = std::holds_alternative<std::int64_t*>(setting.target);
  if (const auto* words = std::get_if<std::vector<std::string>>(&entry.value);
      words != nullptr && entry.known) {
    for (const std::string& word : *words) choices.emplace_back(word);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&entry.value);
             numbers != nullptr && entry.known) {
    std::vector<double> sorted = *numbers;
    std::sort(sorted.begin(), sorted.end());
    for (const double number : sorted) {
      const bool exact = is_integer && number == std::floor(number) && std::abs(number) < 0x1p53;
      if (exact) {
        choices.emplace_back(static_cast<std::int64_t>(number));
      } else {
        choices.emplace_back(number);
      }
    }
  } else {
    throw user_error("{}: choices is {}; write a list of words or of numbers", d.name(),
                     entry.text);
  }
  if (choices.empty()) throw user_error("{}: choices is empty; name at least one value", d.name());
  std::set<std::string> seen;
  for (const SettingValue& choice : choices) {
    try_value(d, choice);
    if (seen.insert(to_toml(choice)).second) continue;
    throw user_error("{}: {} stands twice in choices; name it once", d.name(), to_toml(choice));
  }
  return choices;
}

void refuse_attributes(const Described& d, std::initializer_list<const char*> names,
                       const char* why) {
  for (const char* name : names) {
    if (d.attributes.contains(name)) throw user_error("{}: {} {}", d.name(), name, why);
  }
}

void read_bounds(const Described& d, const Setting& setting, Dimension& dimension) {
  for (const char* bound : {"low", "high"}) {
    if (!d.attributes.contains(bound)) {
      throw user_error("{} has no {}; give low and high, or choices", d.name(), bound);
    }
  }
  dimension.low = number_of(d, "low");
  dimension.high = number_of(d, "high");
  if (!(dimension.low < dimension.high)) {
    throw user_error("{}: low is {} and high is {}; low must be below high", d.name(),
                     d.attributes.at("low").text, d.attributes.at("high").text);
  }
  for (const double bound : {dimension.low, dimension.high}) {
    if (setting.range.contains(bound)) continue;
    throw user_error("{}: {} may not be {}; it must be {}", d.name(), d.key, bound,
                     setting.range.text());
  }
  if (d.attributes.contains("scale")) {
    const TomlEntry& entry = d.attributes.at("scale");
    const auto* word = std::get_if<std::string>(&entry.value);
    if (!entry.known || word == nullptr || (*word != "log" && *word != "linear")) {
      throw user_error("{}: scale is {}; it must be \"log\" or \"linear\"", d.name(), entry.text);
    }
    dimension.log = *word == "log";
  }
  if (dimension.log && dimension.low <= 0) {
    throw user_error("{}: scale is log and low is {}; low must be above 0 then", d.name(),
                     d.attributes.at("low").text);
  }
}

void read_integer(const Described& d, Dimension& dimension) {
  dimension.kind = Kind::kInteger;
  for (const double bound : {dimension.low, dimension.high}) {
    if (bound == std::floor(bound) && std::abs(bound) < 0x1p53) continue;
    throw user_error("{}: {} is no integer, and {} is one", d.name(), bound, d.key);
  }
  if (!d.attributes.contains("step")) return;
  const double step = number_of(d, "step");
  if (step < 1 || step != std::floor(step) || step > dimension.high - dimension.low) {
    throw user_error("{}: step is {}; it must be an integer from 1 to high - low", d.name(),
                     d.attributes.at("step").text);
  }
  dimension.step = static_cast<std::int64_t>(step);
}

Dimension read_dimension(const Described& d, const Setting& setting) {
  Dimension dimension = {.key = d.key};
  const bool is_bool = std::holds_alternative<bool*>(setting.target);
  const bool is_word = std::holds_alternative<std::string*>(setting.target);
  const bool is_number = std::holds_alternative<std::int64_t*>(setting.target) ||
                         std::holds_alternative<double*>(setting.target);
  if (!is_bool && !is_word && !is_number) {
    throw user_error("{}: {} is a list, and lists cannot be searched over", d.name(), d.key);
  }
  if (is_bool) {
    refuse_attributes(d, {"low", "high", "scale", "step", "choices"},
                      "means nothing here: it is false or true; write {}");
    dimension.kind = Kind::kCategory;
    dimension.choices = {false, true};
    return dimension;
  }
  if (is_word || d.attributes.contains("choices")) {
    refuse_attributes(d, {"low", "high", "scale", "step"}, "means nothing beside choices");
    if (!d.attributes.contains("choices")) {
      throw user_error("{} has no choices; name the words that it may be", d.name());
    }
    dimension.kind = is_word ? Kind::kCategory : Kind::kOrdered;
    dimension.choices = choices_of(d, setting);
    return dimension;
  }
  read_bounds(d, setting, dimension);
  if (std::holds_alternative<std::int64_t*>(setting.target)) {
    read_integer(d, dimension);
  } else {
    refuse_attributes(d, {"step"}, "is for integers");
  }
  return dimension;
}

// Splits "optim.beta2.when.optim.kind" and the like, and collects what belongs together.
class Collector {
 public:
  Collector(const Settings& settings, const std::string& origin)
      : settings_(settings), origin_(origin) {}

  void take(TomlEntry entry) {
    const std::string name = entry.key.substr(kPrefix.size());
    if (const std::size_t at = name.find(".when."); at != name.npos) {
      entry.key = name.substr(at + 6);
      described(name.substr(0, at), entry.line).when.push_back(std::move(entry));
      return;
    }
    const std::string where = fmt::format("{}:{}", origin_, entry.line);
    if (is_key(name)) {
      Described& d = described(name, entry.line);
      if (entry.table) return;  // false or true
      d.attributes["choices"] = std::move(entry);
      return;
    }
    const std::size_t dot = name.rfind('.');
    const std::string key = dot == name.npos ? name : name.substr(0, dot);
    const std::string attribute = dot == name.npos ? "" : name.substr(dot + 1);
    const bool is_attribute =
        std::find(kAttributes.begin(), kAttributes.end(), attribute) != kAttributes.end();
    if (!is_key(key)) refuse_key(where, is_attribute ? key : name);
    if (!is_attribute) {
      const std::string nearest = nearest_name(attribute, kAttributes);
      throw user_error("{}: space.{} has no {}; {}", where, key, attribute,
                       nearest.empty() ? fmt::format("it may have {}", fmt::join(kAttributes, ", "))
                                       : fmt::format("did you mean {}?", nearest));
    }
    described(key, entry.line).attributes[attribute] = std::move(entry);
  }

  const std::vector<Described>& all() const { return all_; }

 private:
  bool is_key(const std::string& name) const {
    return std::any_of(settings_.all().begin(), settings_.all().end(),
                       [&](const Setting& setting) { return setting.key == name; });
  }

  [[noreturn]] void refuse_key(const std::string& where, const std::string& key) const {
    std::string advice = settings_.advice_elsewhere(key, "", "");
    const std::string nearest = settings_.nearest(key);
    if (advice.empty()) {
      advice = nearest.empty() ? "`atoll config` lists all keys"
                               : fmt::format("did you mean {}?", nearest);
    }
    throw user_error("{}: space.{}: a recipe has no key {}; {}", where, key, key, advice);
  }

  Described& described(const std::string& key, int line) {
    for (Described& d : all_) {
      if (d.key == key) return d;
    }
    if (!is_key(key)) refuse_key(fmt::format("{}:{}", origin_, line), key);
    all_.push_back({.key = key, .where = fmt::format("{}:{}", origin_, line)});
    return all_.back();
  }

  const Settings& settings_;
  const std::string& origin_;
  std::vector<Described> all_;
};

void read_condition(const Described& d, std::vector<Dimension>& dimensions, Dimension& dimension) {
  if (d.when.empty()) return;
  if (d.when.size() > 1) {
    throw user_error("{}: `when` names two keys; name one", d.name());
  }
  const TomlEntry& entry = d.when.front();
  const auto parent = std::find_if(dimensions.begin(), dimensions.end(),
                                   [&](const Dimension& other) { return other.key == entry.key; });
  if (parent == dimensions.end() || parent->num_values() == 0) {
    throw user_error("{}: `when` names {}, which is not in the space with a list of values",
                     d.name(), entry.key);
  }
  dimension.parent = static_cast<int>(parent - dimensions.begin());
  if (const auto* words = std::get_if<std::vector<std::string>>(&entry.value)) {
    for (const std::string& word : *words) dimension.when.push_back(to_toml(SettingValue(word)));
  } else {
    dimension.when.push_back(to_toml(entry.value));
  }
  std::set<std::string> values;
  for (std::size_t i = 0; i < parent->num_values(); ++i) {
    values.insert(to_toml(parent->value(parent->unit_of_index(i))));
  }
  for (const std::string& value : dimension.when) {
    if (values.contains(value)) continue;
    throw user_error("{}: `when` wants {} = {}, which the space never has", d.name(), entry.key,
                     value);
  }
}

}  // namespace

Space parse_space(const std::vector<TomlEntry>& entries, const std::string& origin) {
  const Registry registry;
  Collector collector(registry.settings, origin);
  for (const TomlEntry& entry : entries) {
    if (entry.key.starts_with(kPrefix)) collector.take(entry);
  }
  if (collector.all().empty()) {
    throw user_error(
        "{}: the space is empty; say what to search over, e.g. `[space]` and `optim.lr = {{low = "
        "1e-4, high = 1e-2, scale = \"log\"}}`",
        origin);
  }
  std::vector<Dimension> dimensions;
  for (const Described& d : collector.all()) {
    dimensions.push_back(read_dimension(d, registry.settings.find(d.key)));
  }
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    read_condition(collector.all()[i], dimensions, dimensions[i]);
  }
  return Space(std::move(dimensions));
}

}  // namespace atl::tune
