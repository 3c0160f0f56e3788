#include "atoll/island/policy/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/compress/codec.h"

namespace atl::island {

namespace {

constexpr std::array<const char*, 5> kPolicies = {"fixed", "qsr", "adacomm", "budget", "auto"};
constexpr double kDay = 86400;

// A schedule is changed for a predicted gain of more than this, and at most once in so many outer
// steps; after one that had to be taken back, in so many.
constexpr double kLeastGain = 0.1;
// qsr and adacomm predict no gain: H follows its formula from this relative difference on.
constexpr double kLeastDifference = 0.03;
constexpr std::int64_t kPatience = 5;
constexpr std::int64_t kPatienceAfterBack = 20;
// So many outer steps after a change their loss is compared with that of as many before it, and may
// be so much higher. Means over rounds, never a loss just before an exchange with one just after.
constexpr std::int64_t kCanary = 3;
constexpr double kCanaryRise = 0.02;
// QSR lengthens rounds so many times at most: without a cap a cosine's end has H up to 400 times
// the base's, and saves little more.
constexpr double kMostLonger = 8;

// What is believable of an island's claims; the rest is not heard.
constexpr double kShortestStep = 1e-6;
constexpr double kLongestStep = 1e5;
constexpr double kLongestRoundTrip = 60;
constexpr double kLeastCodec = 1e5;  // bytes a second

// What a round of H steps costs in progress a step, against H = 0: 1 + kStale * H^(1/4). Fitted to
// bench/results/islands-quality: four islands at H = 10, 50, 500 gain 75, 69 and 58% of what data
// parallel gains; 1/gain is 1.10 + 0.132 H^(1/4) in all three.
constexpr double kStale = 0.12;
// And each inner step between an outer step's begin and its end.
constexpr double kOverlapCost = 0.004;

struct CodecCost {
  const char* name;
  double cost;  // of progress a step, relative
};
// 4 bits: +0.009 of the loss where data parallel gains 0.253 (the same page); int8 is a seventh of
// its error or less.
constexpr std::array<CodecCost, 4> kCodecs = {
    {{"f32", 0}, {"bf16", 0}, {"int8", .005}, {"e3m0", .035}}};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of what islands claim, of those claims that can be.
template <typename Of>
double claimed(const LogReduce& attempt, double least, double most, Of of) {
  std::vector<double> values;
  for (const LogContribution& x : attempt.contributions) {
    const double value = of(x);
    if (value >= least && value <= most) values.push_back(value);  // NaN is neither
  }
  return median(std::move(values));
}

// Of an exchange: whatever its bytes.
double fixed_seconds(const LogContribution& x, double parameters) {
  double longest = 0;
  for (const LinkMeasurement& link : x.measured.links) {
    const bool fine = link.round_trip_seconds >= 0 && link.round_trip_seconds <= kLongestRoundTrip;
    if (fine) longest = std::max(longest, link.round_trip_seconds);
  }
  // A pseudo-gradient is asked for, and then the sums.
  double seconds = 2 * longest;
  const double speed = x.measured.codec_bytes_per_second;
  if (speed >= kLeastCodec && std::isfinite(speed)) seconds += parameters * 4 / speed;
  return seconds;
}

double fourth_root(double x) {
  return std::sqrt(std::sqrt(x));
}

double codec_cost(const std::string& codec) {
  for (const CodecCost& known : kCodecs) {
    if (codec == known.name) return known.cost;
  }
  return 0;  // of a codec that is not changed
}

// Seconds of an exchange: a part that does not depend on its bytes, and the rest.
struct LinkModel {
  double fixed = 0;
  double per_byte = 0;
  bool is_known = false;

  double seconds(double bytes) const { return fixed + per_byte * bytes; }
};

// The coordinator's clock says how long exchanges took; islands' claims only split it. A smoothed
// mean, which begins anew where a link has become another.
LinkModel link_of(std::span<const RoundRecord> past, const RoundRecord& now) {
  constexpr double kNewest = 0.3;  // of the mean
  constexpr double kAnother = 1.6;
  constexpr double kLeastWire = 0.1;  // of an exchange, whatever islands say
  LinkModel link;
  const std::size_t first = past.size() > kPolicyMemory ? past.size() - kPolicyMemory : 0;
  for (std::size_t i = first; i <= past.size(); ++i) {
    const RoundRecord& round = i < past.size() ? past[i] : now;
    // Islands tell of an exchange with the next pseudo-gradient.
    const double fixed = i + 1 < past.size() ? past[i + 1].fixed_seconds : now.fixed_seconds;
    if (!(round.exchange_seconds > 0) || !(round.bytes > 0)) continue;
    const double seconds = round.exchange_seconds;
    link.fixed = std::min(fixed, (1 - kLeastWire) * seconds);
    const double per_byte = (seconds - link.fixed) / round.bytes;
    const bool is_another = link.is_known && (per_byte > kAnother * link.per_byte ||
                                              link.per_byte > kAnother * per_byte);
    link.per_byte = link.is_known && !is_another
                        ? link.per_byte + kNewest * (per_byte - link.per_byte)
                        : per_byte;
    link.is_known = true;
  }
  return link;
}

// What a schedule comes to.
struct Forecast {
  double exchange = 0;       // seconds
  double step = 0;           // seconds of an inner step and its part of the exchange
  double progress_cost = 1;  // inner steps for what one gives at H = 0
  double cost() const { return step * progress_cost; }
};

class Chooser {
 public:
  Chooser(const PolicyPlan& plan, std::span<const RoundRecord> past, const RoundRecord& now)
      : plan_(plan), past_(past), now_(now), link_(link_of(past, now)) {}

  PolicyDecision decide() const {
    PolicyDecision decision = {.next = now_.used, .why = {}};
    if (plan_.policy == "qsr") {
      decision = by_length(after_qsr(), fmt::format("learning rate {:.3g}", now_.learning_rate));
    } else if (plan_.policy == "adacomm") {
      decision = by_length(after_adacomm(), fmt::format("loss {:.4f}", now_.loss));
    } else if (plan_.policy == "budget" || plan_.policy == "auto") {
      decision = choose();
    }
    decision.next.predicted_seconds = link_.is_known ? link_.seconds(bytes(decision.next)) : 0;
    return decision;
  }

 private:
  std::int64_t bounded(double inner_steps) const {
    const auto least = static_cast<double>(plan_.min_inner_steps);
    const auto most = static_cast<double>(plan_.max_inner_steps);
    return static_cast<std::int64_t>(std::clamp(inner_steps, least, most));
  }
  double bytes(const RoundSchedule& schedule) const {
    return exchange_bytes(schedule.codec, plan_.parameters, std::max(2, now_.num_islands));
  }
  bool is_patient() const {
    return now_.has_changed &&
           now_.since_change + 1 < (now_.went_back ? kPatienceAfterBack : kPatience);
  }
  // The outer learning rate grows with H (arXiv 2503.09799, section 4), slowly: 1.3 times for 8.
  RoundSchedule with_length(RoundSchedule schedule, std::int64_t inner_steps) const {
    schedule.inner_steps = inner_steps;
    // An overlap of the whole round stays one.
    const bool is_whole = plan_.base.overlap >= plan_.base.inner_steps;
    schedule.overlap = is_whole ? inner_steps : std::min(schedule.overlap, inner_steps);
    if (!plan_.may_change_lr) return schedule;
    const double ratio =
        static_cast<double>(inner_steps) / static_cast<double>(plan_.base.inner_steps);
    const double most = std::max(1.0, plan_.base.outer_lr);
    schedule.outer_lr = std::clamp(plan_.base.outer_lr * std::sqrt(fourth_root(ratio)),
                                   plan_.base.outer_lr / 2, most);
    return schedule;
  }

  // H = max(base, floor((alpha / lr)^2)), once the learning rate has begun to fall.
  std::int64_t after_qsr() const {
    const auto base = static_cast<double>(plan_.base.inner_steps);
    if (!(now_.learning_rate > 0) || now_.learning_rate >= now_.greatest_lr) return bounded(base);
    const double ratio =
        (plan_.qsr_alpha > 0 ? plan_.qsr_alpha : now_.greatest_lr) / now_.learning_rate;
    const double steps = ratio * ratio * (plan_.qsr_alpha > 0 ? 1 : base);
    return bounded(std::clamp(std::floor(steps), base, kMostLonger * base));
  }
  // In proportion to the root of the loss (arXiv 1810.08313, equation 14).
  std::int64_t after_adacomm() const {
    const auto base = static_cast<double>(plan_.base.inner_steps);
    if (!(now_.loss > 0) || !(now_.first_loss > 0)) return bounded(base);
    return bounded(std::ceil(base * std::sqrt(now_.loss / now_.first_loss)));
  }

  PolicyDecision by_length(std::int64_t inner_steps, const std::string& why) const {
    const auto before = static_cast<double>(now_.used.inner_steps);
    const double change = std::abs(static_cast<double>(inner_steps) - before) / before;
    if (is_patient() || change <= kLeastDifference) return {.next = now_.used, .why = {}};
    const RoundSchedule next = with_length(now_.used, inner_steps);
    return {.next = next,
            .why = fmt::format("{}: {} to {}, {}", plan_.policy, text(now_.used), text(next), why)};
  }
  std::string text(const RoundSchedule& schedule) const {
    return to_text(schedule, plan_.fragments);
  }

  Forecast forecast(const RoundSchedule& schedule) const {
    const auto steps = static_cast<double>(schedule.inner_steps);
    const auto overlap = static_cast<double>(schedule.overlap);
    Forecast forecast;
    forecast.exchange = link_.seconds(bytes(schedule));
    const double exposed = std::max(0.0, forecast.exchange - overlap * now_.step_seconds);
    forecast.step = now_.step_seconds + exposed / steps;
    const double length = steps * static_cast<double>(plan_.fragments);
    // Pseudo-gradients that are alike lose less by long rounds.
    const double stale = kStale * std::clamp(now_.unlikeness, 0.25, 1.0) * fourth_root(length);
    forecast.progress_cost =
        (1 + stale) * (1 + codec_cost(schedule.codec)) * (1 + kOverlapCost * overlap);
    return forecast;
  }

  bool keeps_budgets(const RoundSchedule& schedule, const Forecast& forecast) const {
    const double sent = bytes(schedule);
    if (plan_.round_bytes > 0 && sent > plan_.round_bytes) return false;
    const double seconds = forecast.step * static_cast<double>(schedule.inner_steps);
    return plan_.day_bytes <= 0 || sent * kDay <= plan_.day_bytes * seconds;
  }

  template <typename Use>
  void for_candidates(Use use) const {
    constexpr std::array<double, 15> kFactors = {
        1. / 8, 1. / 6, 1. / 4, 1. / 3, 1. / 2, 2. / 3, 1, 1.5, 2, 3, 4, 6, 8, 12, 16};
    constexpr std::array<std::int64_t, 6> kOverlaps = {0, 1, 2, 5, 10, 20};
    std::vector<std::string> codecs = {plan_.base.codec};
    if (plan_.may_change_codec) {
      for (const CodecCost& known : kCodecs) codecs.emplace_back(known.name);
    }
    for (const std::string& codec : codecs) {
      for (const double factor : kFactors) {
        const std::int64_t steps =
            bounded(std::floor(factor * static_cast<double>(plan_.base.inner_steps) + 0.5));
        RoundSchedule schedule = with_length(plan_.base, steps);
        schedule.codec = codec;
        if (!plan_.may_overlap) {
          use(schedule);
          continue;
        }
        for (const std::int64_t overlap : kOverlaps) {
          if (overlap > steps) continue;
          schedule.overlap = overlap;
          use(schedule);
        }
      }
    }
  }

  // auto: the least time for the same progress. budget: the fewest steps for it.
  double cost(const Forecast& forecast) const {
    return plan_.policy == "auto" ? forecast.cost() : forecast.progress_cost;
  }

  PolicyDecision choose() const {
    PolicyDecision stay = {.next = now_.used, .why = {}};
    if (!link_.is_known || !(now_.step_seconds > 0)) return stay;
    if (const auto back = go_back()) return *back;
    const Forecast present = forecast(now_.used);
    const bool is_within = keeps_budgets(now_.used, present);
    if (is_within && is_patient()) return stay;
    std::optional<RoundSchedule> best;
    double least = 0;
    for_candidates([&](const RoundSchedule& schedule) {
      const Forecast of = forecast(schedule);
      if (!keeps_budgets(schedule, of)) return;
      if (best && cost(of) >= least) return;
      best = schedule;
      least = cost(of);
    });
    // No setting keeps the budgets: the one that sends least. What a day has left is waited for.
    if (!best) best = sends_least();
    if (is_same_setting(*best, now_.used)) return stay;
    const double gain = 1 - least / cost(present);
    if (is_within && gain <= kLeastGain) return stay;
    return {.next = *best, .why = reason(*best, present, is_within, gain)};
  }

  RoundSchedule sends_least() const {
    std::optional<RoundSchedule> best;
    for_candidates([&](const RoundSchedule& schedule) {
      const auto rate = [&](const RoundSchedule& x) {
        return bytes(x) / static_cast<double>(x.inner_steps);
      };
      if (!best || rate(schedule) < rate(*best)) best = schedule;
    });
    return *best;
  }

  std::string reason(const RoundSchedule& next, const Forecast& present, bool is_within,
                     double gain) const {
    const Forecast after = forecast(next);
    const std::string change =
        fmt::format("{}: {} to {}, ", plan_.policy, text(now_.used), text(next));
    if (!is_within) {
      return change + fmt::format(
                          "because of the budget: {:.3g} MB an exchange of {:.3g} s, "
                          "instead of {:.3g} MB",
                          bytes(next) / 1e6, after.exchange, bytes(now_.used) / 1e6);
    }
    return change + fmt::format(
                        "{:.0f}% gain predicted: exchange {:.3g} s instead of {:.3g} s, inner step "
                        "{:.3g} s",
                        100 * gain, after.exchange, present.exchange, now_.step_seconds);
  }

  // The canary: a change after which the loss is higher than before it was one too many.
  std::optional<PolicyDecision> go_back() const {
    if (plan_.policy != "auto" || now_.went_back || now_.since_change + 1 != kCanary) return {};
    if (!(now_.loss_before > 0) || past_.size() + 1 < 2 * static_cast<std::size_t>(kCanary))
      return {};
    double sum = now_.loss;
    for (std::int64_t i = 1; i < kCanary; ++i)
      sum += past_[past_.size() - static_cast<std::size_t>(i)].loss;
    const double after = sum / static_cast<double>(kCanary);
    if (!(after > (1 + kCanaryRise) * now_.loss_before)) return {};
    if (!keeps_budgets(now_.before, forecast(now_.before))) return {};
    return PolicyDecision{
        .next = now_.before,
        .why =
            fmt::format("{}: back from {} to {}, because the loss is {:.4f} after {:.4f}",
                        plan_.policy, text(now_.used), text(now_.before), after, now_.loss_before)};
  }

  const PolicyPlan& plan_;
  std::span<const RoundRecord> past_;
  const RoundRecord& now_;
  LinkModel link_;
};

}  // namespace

std::span<const char* const> policy_names() {
  return kPolicies;
}

bool is_same_setting(const RoundSchedule& a, const RoundSchedule& b) {
  return a.inner_steps == b.inner_steps && a.overlap == b.overlap && a.codec == b.codec &&
         a.outer_lr == b.outer_lr;
}

std::string to_text(const RoundSchedule& schedule, std::int64_t fragments) {
  std::string text = fmt::format(
      "H {} {}", schedule.inner_steps * std::max<std::int64_t>(1, fragments), schedule.codec);
  if (schedule.overlap > 0) text += fmt::format(" overlap {}", schedule.overlap);
  return text;
}

const char* sum_codec_of(const std::string& codec) {
  return codec == "f32" ? "f32" : "bf16";
}

double bytes_per_parameter(const std::string& codec) {
  constexpr std::int64_t kMany = 1 << 18;
  return static_cast<double>(compress::make_codec(codec)->max_bytes(kMany)) / kMany;
}

double exchange_bytes(const std::string& codec, double parameters, int islands) {
  if (islands < 2) return 0;
  const double delta = bytes_per_parameter(codec);
  const double sum = bytes_per_parameter(sum_codec_of(codec));
  const auto others = static_cast<double>(islands - 1);
  return parameters * std::min(others * delta, others / (others + 1) * (delta + sum));
}

std::string policy_fault(const PolicyPlan& plan, int islands) {
  if (std::find(kPolicies.begin(), kPolicies.end(), plan.policy) == kPolicies.end()) {
    return fmt::format("there is no policy '{}': choose {}", plan.policy,
                       fmt::join(kPolicies, ", "));
  }
  if (plan.policy == "fixed") return "";
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  if (plan.max_inner_steps > kMostSteps || plan.fragments > kMostSteps) {
    return fmt::format("more than {} inner steps", kMostSteps);
  }
  try {
    (void)compress::make_codec(plan.base.codec);
  } catch (const Error& error) {
    return error.what();
  }
  const bool is_positive = plan.base.overlap >= 0 && plan.min_inner_steps >= 1 &&
                           plan.base.inner_steps >= 1 && plan.fragments >= 1 &&
                           plan.parameters >= 0;
  if (!is_positive) return "inner steps, their bounds and fragments must be at least 1";
  if (plan.min_inner_steps > plan.max_inner_steps) {
    return fmt::format(
        "outer.min_inner_steps is {} and outer.max_inner_steps {}: the least must not "
        "be above the most",
        plan.min_inner_steps * plan.fragments, plan.max_inner_steps * plan.fragments);
  }
  if (plan.base.inner_steps < plan.min_inner_steps ||
      plan.base.inner_steps > plan.max_inner_steps) {
    return fmt::format(
        "outer.inner_steps is {}, and outer.min_inner_steps and outer.max_inner_steps "
        "allow {} to {}: it must be between them",
        plan.base.inner_steps * plan.fragments, plan.min_inner_steps * plan.fragments,
        plan.max_inner_steps * plan.fragments);
  }
  const bool has_budget = plan.round_bytes > 0 || plan.day_bytes > 0;
  if (plan.policy == "budget" && !has_budget) {
    return "the policy budget needs outer.round_mb or outer.day_mb";
  }
  if (!has_budget || plan.parameters <= 0) return "";
  double least = exchange_bytes(plan.base.codec, plan.parameters, std::max(2, islands));
  for (const CodecCost& known : kCodecs) {
    if (!plan.may_change_codec) break;
    least = std::min(least, exchange_bytes(known.name, plan.parameters, std::max(2, islands)));
  }
  const auto over = [&](double budget) { return budget > 0 && least > budget; };
  if (over(plan.round_bytes) || over(plan.day_bytes)) {
    return fmt::format(
        "no setting keeps the budget: an exchange of {:.0f} parameters between {} islands is "
        "{:.3g} "
        "MB at least, and {} allows {:.3g}; raise it, or use more outer.fragments",
        plan.parameters, std::max(2, islands), least / 1e6,
        over(plan.round_bytes) ? "outer.round_mb" : "outer.day_mb",
        (over(plan.round_bytes) ? plan.round_bytes : plan.day_bytes) / 1e6);
  }
  return "";
}

PolicyDecision decide(const PolicyPlan& plan, std::span<const RoundRecord> past,
                      const RoundRecord& now) {
  return Chooser(plan, past, now).decide();
}

RoundRecord PolicyHistory::record_of(const LogReduce& attempt) const {
  RoundRecord now = {.used = schedule()};
  now.num_islands = static_cast<int>(attempt.contributions.size());
  now.bytes = exchange_bytes(now.used.codec, plan_.parameters, now.num_islands) *
              std::max(1U, attempt.attempt);
  constexpr double kAny = 1e300;
  constexpr double kLeast = 1e-300;
  now.step_seconds = claimed(attempt, kShortestStep, kLongestStep,
                             [](const auto& x) { return x.measured.step_seconds; });
  now.learning_rate =
      claimed(attempt, kLeast, kAny, [](const auto& x) { return x.measured.learning_rate; });
  now.loss = claimed(attempt, kLeast, kAny, [](const auto& x) { return x.loss; });
  now.fixed_seconds = claimed(attempt, 0, kAny,
                              [this](const auto& x) { return fixed_seconds(x, plan_.parameters); });
  double weights = 0;
  for (const LogContribution& x : attempt.contributions) {
    const bool is_fine = x.norm >= 0 && x.norm < 1e100;
    if (is_fine) now.square_norm += x.participant.weight * x.norm * x.norm;
    weights += x.participant.weight;
  }
  if (weights > 0) now.square_norm /= weights;
  now.greatest_lr = now.learning_rate;
  now.first_loss = now.loss;
  if (rounds_.empty()) return now;
  const RoundRecord& last = rounds_.back();
  now.greatest_lr = std::max(last.greatest_lr, now.learning_rate);
  if (last.first_loss > 0) now.first_loss = last.first_loss;
  // Of n vectors that point anywhere the mean has 1/n of the square.
  const double mean_norm =
      claimed(attempt, 0, 1e100, [](const auto& x) { return x.measured.mean_norm; });
  const auto n = static_cast<double>(std::max(2, last.num_islands));
  const bool is_known = mean_norm > 0 && last.square_norm > 0 && last.num_islands > 1;
  now.unlikeness =
      !is_known
          ? last.unlikeness
          : std::clamp((1 - mean_norm * mean_norm / last.square_norm) * n / (n - 1), 0.0, 1.0);
  if (is_same_setting(now.used, last.used)) {
    now.since_change = last.since_change + 1;
    now.before = last.before;
    now.has_changed = last.has_changed;
    now.loss_before = last.loss_before;
    now.went_back = last.went_back;
    return now;
  }
  now.before = last.used;
  now.has_changed = true;
  now.went_back =
      !last.went_back && last.since_change + 1 == kCanary && is_same_setting(now.used, last.before);
  double sum = 0;
  const auto count = std::min<std::size_t>(rounds_.size(), kCanary);
  for (std::size_t i = 1; i <= count; ++i) sum += rounds_[rounds_.size() - i].loss;
  now.loss_before = sum / static_cast<double>(count);
  return now;
}

PolicyDecision PolicyHistory::decide(const LogReduce& attempt, double exchange_seconds) const {
  if (is_fixed()) return {.next = plan_.base, .why = {}};
  RoundRecord now = record_of(attempt);
  now.exchange_seconds = exchange_seconds;
  return island::decide(plan_, rounds_, now);
}

void PolicyHistory::committed(const LogReduce& attempt, const LogCommit& commit) {
  RoundRecord now = is_fixed() ? RoundRecord{.used = plan_.base} : record_of(attempt);
  now.exchange_seconds = commit.exchange_seconds;
  now.round_seconds = commit.round_seconds;
  next_.push_back(commit.next.value_or(plan_.base));
  rounds_.push_back(std::move(now));
}

void PolicyHistory::forget_newest() {
  rounds_.pop_back();
  next_.pop_back();
}

double PolicyHistory::seconds_to_wait(double idle, int islands) const {
  if (plan_.day_bytes <= 0 || rounds_.empty()) return 0;
  double left = plan_.day_bytes - exchange_bytes(schedule().codec, plan_.parameters, islands);
  double age = idle;
  for (auto round = rounds_.rbegin(); round != rounds_.rend() && age < kDay; ++round) {
    left -= round->bytes;
    if (left < 0) return kDay - age;
    age += round->round_seconds;
  }
  return 0;
}

}  // namespace atl::island
