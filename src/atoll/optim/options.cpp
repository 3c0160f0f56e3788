#include "atoll/optim/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::optim {

Option beta1_option() {
  return {.name = "beta1",
          .default_value = 0.9,
          .doc = "decay of the gradient's mean.",
          .range = from_below(0, 1),
          .elsewhere = {"adam_beta1"}};
}

Option beta2_option() {
  return {.name = "beta2",
          .default_value = 0.95,
          .doc = "decay of the squared gradient's mean.",
          .range = from_below(0, 1),
          .elsewhere = {"adam_beta2"}};
}

Option eps_option() {
  return {.name = "eps",
          .default_value = 1e-8,
          .doc = "added to the denominator.",
          .range = above(0),
          .elsewhere = {"epsilon", "adam_epsilon", "adam_eps"}};
}

Option weight_decay_option() {
  return {.name = "weight_decay",
          .default_value = 0.1,
          .doc = "decoupled weight decay of matrices; norms and biases have none.",
          .range = at_least(0),
          .elsewhere = {"wd"}};
}

Option momentum_option() {
  return {.name = "momentum",
          .default_value = 0.95,
          .doc = "decay of the momentum.",
          .range = from_below(0, 1)};
}

Option nesterov_option() {
  return {.name = "nesterov", .default_value = true, .doc = "Nesterov's momentum."};
}

std::string option_key(const std::string& name) {
  return "optim." + name;
}

std::string enumerated(const std::vector<std::string>& names, const char* conjunction) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : fmt::format(" {} ", conjunction);
    text += names[i];
  }
  return text;
}

void check_value(const Option& option, const SettingValue& value) {
  const std::string key = option_key(option.name);
  ATOLL_CHECK(value.index() == option.default_value.index(), "{} is of another type", key);
  const auto check_number = [&](double number) {
    if (std::isfinite(number) && option.range.contains(number)) return;
    const std::string wanted = option.range.text();
    throw user_error("{} is {}; it must be {}", key, number,
                     wanted.empty() ? "a finite number" : wanted);
  };
  if (const auto* number = std::get_if<double>(&value)) check_number(*number);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    check_number(static_cast<double>(*integer));
  }
  const std::vector<std::string>& names = option.choices.names;
  const auto* word = std::get_if<std::string>(&value);
  if (word == nullptr || names.empty()) return;
  if (std::find(names.begin(), names.end(), *word) != names.end()) return;
  throw user_error("{} is \"{}\"; it must be one of {}", key, *word, fmt::join(names, ", "));
}

}  // namespace atl::optim
