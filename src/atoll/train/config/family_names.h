#pragma once

#include <string>
#include <vector>

#include "atoll/nn/models/family.h"

namespace atl::train {

/// The families that have a trait, or lack it, as values of model.family.
inline std::vector<std::string> families_with(bool nn::Family::*trait, bool value = true) {
  std::vector<std::string> names;
  for (const nn::Family& family : nn::families()) {
    if (family.*trait == value) names.emplace_back(family.model_type);
  }
  return names;
}

}  // namespace atl::train
