#include "atoll/nn/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"

namespace atl::nn {

namespace {

double logistic(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

// log s(x), exact for large |x|.
double log_logistic(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

// log(1 - exp(x)) for x < 0 (Mächler 2012: the better of two forms on either side of -log 2).
double log_of_complement(double x) {
  return x > -0.6931471805599453 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

// A loss that is a function of h alone.
struct Margin {
  double loss;
  double slope;  // d loss / d h
};

Margin of_margin(const PreferenceOptions& options, double h) {
  const double beta = options.beta;
  const double e = options.label_smoothing;
  switch (options.kind) {
    case PreferenceKind::kSigmoid:
      return {-(1 - e) * log_logistic(beta * h) - e * log_logistic(-beta * h),
              beta * (e * logistic(beta * h) - (1 - e) * logistic(-beta * h))};
    case PreferenceKind::kRobust:
      return {(-(1 - e) * log_logistic(beta * h) + e * log_logistic(-beta * h)) / (1 - 2 * e),
              -beta * ((1 - e) * logistic(-beta * h) + e * logistic(beta * h)) / (1 - 2 * e)};
    case PreferenceKind::kIpo: {
      const double distance = h - 1 / (2 * beta);
      return {distance * distance, 2 * distance};
    }
    case PreferenceKind::kHinge:
      return {std::max(0.0, 1 - beta * h), beta * h < 1 ? -beta : 0.0};
    default:
      break;
  }
  ATOLL_CHECK(false, "a loss that is no function of a margin");
  return {};
}

PairLoss of_references(const PreferenceOptions& options, const SequenceScore& chosen,
                       const SequenceScore& rejected) {
  const double first = chosen.logp - chosen.reference;
  const double second = rejected.logp - rejected.reference;
  const bool by_token = options.kind == PreferenceKind::kIpo;
  const double first_size = by_token ? static_cast<double>(chosen.tokens) : 1;
  const double second_size = by_token ? static_cast<double>(rejected.tokens) : 1;
  const Margin margin = of_margin(options, first / first_size - second / second_size);
  return {.counts = true,
          .loss = margin.loss,
          .first_slope = margin.slope / first_size,
          .second_slope = -margin.slope / second_size,
          .has_chosen = true,
          .has_rejected = true,
          .chosen_reward = options.beta * first,
          .rejected_reward = options.beta * second,
          .is_right = first > second};
}

// log odds(p) = x - log(1 - e^x) of x = log p, whose slope is 1 / (1 - e^x).
PairLoss of_odds(const PreferenceOptions& options, const SequenceScore& chosen,
                 const SequenceScore& rejected) {
  const auto first_size = static_cast<double>(chosen.tokens);
  const auto second_size = static_cast<double>(rejected.tokens);
  const double first = chosen.logp / first_size;
  const double second = rejected.logp / second_size;
  const double log_odds = first - second - (log_of_complement(first) - log_of_complement(second));
  const double slope = -options.beta * logistic(-log_odds);  // d loss / d log_odds
  return {.counts = true,
          .loss = -first - options.beta * log_logistic(log_odds),
          .first_slope = (-1 - slope / std::expm1(first)) / first_size,
          .second_slope = slope / std::expm1(second) / second_size,
          .has_chosen = true,
          .has_rejected = true,
          .chosen_reward = options.beta * first,
          .rejected_reward = options.beta * second,
          .is_right = first > second};
}

PairLoss of_label(const PreferenceOptions& options, const SequenceScore& answer, double usual) {
  const double ratio = answer.logp - answer.reference;
  const double sign = answer.is_desirable ? 1 : -1;
  const double weight = answer.is_desirable ? options.desirable_weight : options.undesirable_weight;
  const double value = logistic(sign * options.beta * (ratio - usual));
  return {.counts = true,
          .loss = weight * (1 - value),
          .first_slope = -weight * sign * options.beta * value * (1 - value),
          .second_slope = 0,
          .has_chosen = answer.is_desirable,
          .has_rejected = !answer.is_desirable,
          .chosen_reward = answer.is_desirable ? options.beta * ratio : 0,
          .rejected_reward = answer.is_desirable ? 0 : options.beta * ratio,
          .is_right = sign * (ratio - usual) > 0};
}

// What any answer gains: the mean over those that are unrelated to their prompts.
double usual_ratio(std::span<const SequenceScore> sequences) {
  double sum = 0;
  double count = 0;
  for (std::size_t i = 0; i + 1 < sequences.size(); i += 2) {
    if (sequences[i].tokens == 0) continue;
    sum += sequences[i + 1].logp - sequences[i + 1].reference;
    count += 1;
  }
  return count > 0 ? std::max(0.0, sum / count) : 0;
}

}  // namespace

std::vector<PairLoss> preference_losses(const PreferenceOptions& options,
                                        std::span<const SequenceScore> sequences) {
  ATOLL_CHECK(sequences.size() % 2 == 0, "{} sequences", sequences.size());
  const bool has_labels = options.kind == PreferenceKind::kKto;
  const double usual = has_labels ? usual_ratio(sequences) : 0;
  std::vector<PairLoss> pairs(sequences.size() / 2);
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    const SequenceScore& first = sequences[2 * k];
    const SequenceScore& second = sequences[2 * k + 1];
    if (first.tokens == 0 || (second.tokens == 0 && !has_labels)) continue;
    if (has_labels) {
      pairs[k] = of_label(options, first, usual);
    } else if (options.kind == PreferenceKind::kOrpo) {
      pairs[k] = of_odds(options, first, second);
    } else {
      pairs[k] = of_references(options, first, second);
    }
  }
  return pairs;
}

}  // namespace atl::nn
