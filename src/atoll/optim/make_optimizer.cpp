#include "atoll/optim/optimizer.h"

#include "atoll/base/error.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

void check_range(const ParamRange& range, std::int64_t begin, std::int64_t end) {
  ATOLL_CHECK(range.begin >= begin && range.count >= 0 && range.begin + range.count <= end,
              "elements {} to {} are not within {} to {}", range.begin, range.begin + range.count,
              begin, end);
  if (!range.matrix) return;
  ATOLL_CHECK(range.rows > 0 && range.cols > 0 && range.rows <= range.count / range.cols,
              "a matrix of {} x {} in {} elements", range.rows, range.cols, range.count);
}

// `options` with the default of every option that is not given.
OptimizerOptions completed(const OptimizerKind& kind, const OptimizerOptions& options) {
  OptimizerOptions all = options;
  for (const Option& option : kind.options) all.values.emplace(option.name, option.default_value);
  return all;
}

}  // namespace

void check_options(const OptimizerKind& kind, const OptimizerOptions& options,
                   const NameOption& named) {
  for (const auto& [name, value] : options.values) {
    if (kind.reads(name)) continue;
    throw user_error("{} is not for optim.kind {}; remove it", named(name), kind.name);
  }
  const OptimizerOptions all = completed(kind, options);
  for (const Option& option : kind.options) check_value(option, all.values.at(option.name));
  if (kind.check != nullptr) kind.check(all, named);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerKind& kind,
                                          const OptimizerOptions& options, Spec flat,
                                          std::span<const ParamRange> ranges) {
  check_options(kind, options);
  if (options.masters == Masters::kStochastic && flat.dtype != Dtype::kBf16) {
    throw user_error(
        "optim.masters is \"stochastic\", which rounds bf16 parameters, and these are {}; set "
        "optim.masters = \"f32\", or keep the parameters in bf16",
        dtype_name(flat.dtype));
  }
  ATOLL_CHECK(flat.shape.rank() == 1 && (flat.dtype == Dtype::kF32 || flat.dtype == Dtype::kF64 ||
                                         flat.dtype == Dtype::kBf16),
              "a flat vector of {}", flat.to_string());
  std::int64_t begin = 0;
  for (const ParamRange& range : ranges) {
    check_range(range, begin, flat.shape.dim(0));
    begin = range.begin + range.count;
  }
  return kind.make(completed(kind, options), flat, ranges);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Spec flat,
                                          std::span<const ParamRange> ranges) {
  return make_optimizer(find_optimizer(options.kind), options, flat, ranges);
}

}  // namespace atl::optim
