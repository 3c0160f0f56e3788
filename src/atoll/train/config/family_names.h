#pragma once

#include <string>
#include <vector>

#include "atoll/nn/models/family.h"

namespace atl::train {

/// The families that have a trait, as values of model.family.
inline std::vector<std::string> families_with(bool nn::Family::*trait) {
  std::vector<std::string> names;
  for (const nn::Family& family : nn::families()) {
    if (family.*trait) names.emplace_back(family.model_type);
  }
  return names;
}

/// The families that lack it.
inline std::vector<std::string> families_without(bool nn::Family::*trait) {
  std::vector<std::string> names;
  for (const nn::Family& family : nn::families()) {
    if (!(family.*trait)) names.emplace_back(family.model_type);
  }
  return names;
}

}  // namespace atl::train
