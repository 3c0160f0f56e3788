#pragma once

// What an optimizer can be told, as its own file says it: "optim." and an option's name is a key of
// a run's settings.

#include <map>
#include <string>
#include <vector>

#include "atoll/base/settings/settings.h"

namespace atl::optim {

/// One option of an optimizer.
struct Option {
  std::string name;  ///< "beta1"
  SettingValue default_value;
  /// What it means, with a small first letter: the reference may say before it whose option it is.
  std::string doc;
  Range range = {};                         ///< of numbers
  Choices choices = {};                     ///< of words
  std::vector<const char*> elsewhere = {};  ///< what other programs call it
};

/// Values of options by name.
using OptionValues = std::map<std::string, SettingValue>;

/// The options that several optimizers read: each has one default and one meaning for all.
Option beta1_option();
Option beta2_option();
Option eps_option();
Option weight_decay_option();
Option momentum_option();
Option nesterov_option();

/// "optim.beta1".
std::string option_key(const std::string& name);

/// "adamw, muon and lion" with "and".
std::string enumerated(const std::vector<std::string>& names, const char* conjunction);

/// Throws Error(kUser) unless `value` has the option's type and is finite, in its range and one of
/// its choices. The message begins with the option's key.
void check_value(const Option& option, const SettingValue& value);

}  // namespace atl::optim
