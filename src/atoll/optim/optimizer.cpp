#include "atoll/optim/optimizer.h"

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/optim/flat_optimizer.h"

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

void check_fraction(const char* key, double value) {
  if (value >= 0 && value < 1) return;
  throw user_error("{} is {}; it must be at least 0 and below 1", key, value);
}

void check_options(const OptimizerOptions& options, const Spec& flat) {
  check_fraction("optim.beta1", options.beta1);
  check_fraction("optim.beta2", options.beta2);
  check_fraction("optim.momentum", options.momentum);
  if (!(options.eps > 0) || !std::isfinite(options.eps)) {
    throw user_error("optim.eps is {}; it must be above 0", options.eps);
  }
  if (!(options.weight_decay >= 0) || !std::isfinite(options.weight_decay)) {
    throw user_error("optim.weight_decay is {}; it must be at least 0", options.weight_decay);
  }
  if (!(options.adamw_lr_ratio >= 0) || !std::isfinite(options.adamw_lr_ratio)) {
    throw user_error("optim.adamw_lr over optim.lr is {}; it must be at least 0",
                     options.adamw_lr_ratio);
  }
  if (options.kind == OptimizerKind::kSgd && options.nesterov && options.momentum == 0) {
    throw user_error(
        "optim.nesterov looks ahead along the momentum, and optim.momentum is 0; set "
        "optim.nesterov = false, or a momentum such as 0.9");
  }
  if (options.masters == Masters::kStochastic && flat.dtype != Dtype::kBf16) {
    throw user_error(
        "optim.masters is \"stochastic\", which rounds bf16 parameters, and these are {}; set "
        "optim.masters = \"f32\", or keep the parameters in bf16",
        dtype_name(flat.dtype));
  }
}

}  // namespace

OptimizerKind optimizer_kind(const std::string& name) {
  if (name == "adamw") return OptimizerKind::kAdamW;
  if (name == "muon") return OptimizerKind::kMuon;
  if (name == "lion") return OptimizerKind::kLion;
  if (name == "sgd") return OptimizerKind::kSgd;
  throw user_error("the optimizer is \"{}\"; it must be adamw, muon, lion or sgd", name);
}

MuonScale muon_scale(const std::string& name) {
  if (name == "match_rms") return MuonScale::kMatchRms;
  if (name == "original") return MuonScale::kOriginal;
  throw user_error("optim.muon_scale is \"{}\"; it must be match_rms or original", name);
}

Masters masters(const std::string& name) {
  if (name == "f32") return Masters::kF32;
  if (name == "stochastic") return Masters::kStochastic;
  throw user_error("optim.masters is \"{}\"; it must be f32 or stochastic", name);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Spec flat,
                                          std::span<const ParamRange> ranges) {
  check_options(options, flat);
  ATOLL_CHECK(flat.shape.rank() == 1 && (flat.dtype == Dtype::kF32 || flat.dtype == Dtype::kF64 ||
                                         flat.dtype == Dtype::kBf16),
              "a flat vector of {}", flat.to_string());
  std::int64_t begin = 0;
  for (const ParamRange& range : ranges) {
    check_range(range, begin, flat.shape.dim(0));
    begin = range.begin + range.count;
  }
  switch (options.kind) {
    case OptimizerKind::kAdamW:
      return make_adamw(options, flat, ranges);
    case OptimizerKind::kMuon:
      return make_muon(options, flat, ranges);
    case OptimizerKind::kLion:
      return make_lion(options, flat, ranges);
    case OptimizerKind::kSgd:
      break;
  }
  return make_sgd(options, flat, ranges);
}

}  // namespace atl::optim
