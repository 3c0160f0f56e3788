#include "atoll/tune/search/space.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::tune {

namespace {

using Kind = Dimension::Kind;

// Nobody can tell values of a study apart that differ in the seventh digit, and short ones are
// read and typed more easily.
double six_digits(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

double lerp(double a, double b, double t) {
  return a + t * (b - a);
}

// The ends between which an integer's unit coordinate runs: half a step further out on either
// side, so that each value has the same share.
std::pair<double, double> integer_ends(const Dimension& d) {
  const double half = 0.5 * static_cast<double>(d.step);
  const double last = d.low + static_cast<double>((d.num_values() - 1) * d.step);
  if (!d.log) return {d.low - half, last + half};
  return {std::log(std::max(d.low - half, 0.5 * d.low)), std::log(last + half)};
}

// Values of a condition as a study file has them: one, or a list of words.
std::string when_toml(const Dimension& d) {
  if (d.when.size() == 1) return d.when.front();
  return fmt::format("[{}]", fmt::join(d.when, ", "));
}

}  // namespace

std::size_t Dimension::num_values() const {
  if (kind == Kind::kReal) return 0;
  if (kind == Kind::kInteger) {
    return static_cast<std::size_t>((high - low) / static_cast<double>(step)) + 1;
  }
  return choices.size();
}

std::size_t Dimension::index_of(double unit) const {
  const std::size_t count = num_values();
  ATOLL_CHECK(count > 0, "{} has no list of values", key);
  double position = unit * static_cast<double>(count);
  if (kind == Kind::kInteger && log) {
    const auto [a, b] = integer_ends(*this);
    position = (std::exp(lerp(a, b, unit)) - low) / static_cast<double>(step) + 0.5;
  }
  const double last = static_cast<double>(count - 1);
  return static_cast<std::size_t>(std::clamp(std::floor(position), 0.0, last));
}

double Dimension::unit_of_index(std::size_t index) const {
  const auto i = static_cast<double>(index);
  if (kind == Kind::kInteger && log) {
    const auto [a, b] = integer_ends(*this);
    return (std::log(low + i * static_cast<double>(step)) - a) / (b - a);
  }
  return (i + 0.5) / static_cast<double>(num_values());
}

SettingValue Dimension::value(double unit) const {
  if (kind == Kind::kReal) {
    const double x = std::clamp(unit, 0.0, 1.0);
    const double number =
        log ? std::exp(lerp(std::log(low), std::log(high), x)) : lerp(low, high, x);
    return std::clamp(six_digits(number), low, high);
  }
  const std::size_t index = index_of(unit);
  if (kind == Kind::kInteger) {
    return static_cast<std::int64_t>(low) + static_cast<std::int64_t>(index) * step;
  }
  return choices[index];
}

double Dimension::snap(double unit) const {
  return kind == Kind::kReal ? std::clamp(unit, 0.0, 1.0) : unit_of_index(index_of(unit));
}

double Dimension::unit_of(double number) const {
  ATOLL_CHECK(kind != Kind::kCategory, "{} has no numbers", key);
  if (kind == Kind::kReal) {
    const double x = std::clamp(number, low, high);
    return log ? (std::log(x) - std::log(low)) / (std::log(high) - std::log(low))
               : (x - low) / (high - low);
  }
  std::size_t nearest = 0;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < num_values(); ++i) {
    const SettingValue at = value(unit_of_index(i));
    const auto* integer = std::get_if<std::int64_t>(&at);
    const double x = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(at);
    if (std::abs(x - number) >= best) continue;
    best = std::abs(x - number);
    nearest = i;
  }
  return unit_of_index(nearest);
}

Space::Space(std::vector<Dimension> dimensions) : dimensions_(std::move(dimensions)) {
  for (const Dimension& start : dimensions_) {
    std::size_t length = 0;
    for (int i = start.parent; i >= 0; i = dimensions_[static_cast<std::size_t>(i)].parent) {
      if (++length <= dimensions_.size()) continue;
      throw user_error("space.{}: its `when` leads back to itself; leave one of them out",
                       start.key);
    }
  }
}

int Space::find(const std::string& key) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (dimensions_[i].key == key) return static_cast<int>(i);
  }
  return -1;
}

bool Space::is_active(std::size_t i, const Units& units) const {
  const Dimension& d = dimensions_[i];
  if (d.parent < 0) return true;
  const auto parent = static_cast<std::size_t>(d.parent);
  if (!is_active(parent, units)) return false;
  const std::string value = atl::to_toml(dimensions_[parent].value(units[parent]));
  return std::find(d.when.begin(), d.when.end(), value) != d.when.end();
}

Units Space::canonical(const Units& units) const {
  ATOLL_CHECK(units.size() == size(), "{} coordinates in {} dimensions", units.size(), size());
  Units snapped(size());
  for (std::size_t i = 0; i < size(); ++i) {
    snapped[i] = is_active(i, units) ? dimensions_[i].snap(units[i]) : 0.5;
  }
  return snapped;
}

std::vector<std::pair<std::string, SettingValue>> Space::values(const Units& units) const {
  std::vector<std::pair<std::string, SettingValue>> all;
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_active(i, units)) all.emplace_back(dimensions_[i].key, dimensions_[i].value(units[i]));
  }
  return all;
}

double Space::num_points() const {
  double points = 1;
  for (const Dimension& d : dimensions_) points *= static_cast<double>(d.num_values());
  return points < 0x1p53 ? points : 0;
}

std::string Space::describe() const {
  std::string text;
  for (const Dimension& d : dimensions_) {
    text += d.key;
    if (d.choices.empty()) {
      text += fmt::format(" {} {}{}", d.low, d.high, d.log ? " log" : "");
      if (d.kind == Kind::kInteger) text += fmt::format(" integer {}", d.step);
    }
    for (const SettingValue& choice : d.choices) text += " " + atl::to_toml(choice);
    if (d.parent >= 0) {
      text += fmt::format(" when {} {}", dimensions_[static_cast<std::size_t>(d.parent)].key,
                          fmt::join(d.when, " "));
    }
    text += "\n";
  }
  return text;
}

std::string Space::to_toml() const {
  std::string text = "[space]\n";
  for (const Dimension& d : dimensions_) {
    std::string inside;
    const bool is_bool = !d.choices.empty() && std::holds_alternative<bool>(d.choices.front());
    if (d.choices.empty()) {
      inside = fmt::format("low = {}, high = {}", d.low, d.high);
      if (d.log) inside += ", scale = \"log\"";
      if (d.step != 1) inside += fmt::format(", step = {}", d.step);
    } else if (!is_bool) {
      inside = "choices = [";
      for (const SettingValue& choice : d.choices) {
        inside += (inside.back() == '[' ? "" : ", ") + atl::to_toml(choice);
      }
      inside += "]";
    }
    if (d.parent >= 0) {
      inside += fmt::format("{}when = {{{} = {}}}", inside.empty() ? "" : ", ",
                            dimensions_[static_cast<std::size_t>(d.parent)].key, when_toml(d));
    }
    text += fmt::format("{} = {{{}}}\n", d.key, inside);
  }
  return text;
}

}  // namespace atl::tune
