#include "atoll/optim/optimizer.h"

#include "atoll/base/error.h"

namespace atl::optim {

namespace {

template <typename T>
const T& value_of(const OptimizerOptions& options, const std::string& name) {
  const auto found = options.values.find(name);
  ATOLL_CHECK(found != options.values.end(), "an optimizer reads {}, which is none of its options",
              option_key(name));
  const T* value = std::get_if<T>(&found->second);
  ATOLL_CHECK(value != nullptr, "{} is of another type", option_key(name));
  return *value;
}

}  // namespace

double OptimizerOptions::number(const std::string& name) const {
  return value_of<double>(*this, name);
}

bool OptimizerOptions::flag(const std::string& name) const {
  return value_of<bool>(*this, name);
}

const std::string& OptimizerOptions::word(const std::string& name) const {
  return value_of<std::string>(*this, name);
}

Masters masters(const std::string& name) {
  if (name == "f32") return Masters::kF32;
  if (name == "stochastic") return Masters::kStochastic;
  throw user_error("optim.masters is \"{}\"; it must be f32 or stochastic", name);
}

}  // namespace atl::optim
