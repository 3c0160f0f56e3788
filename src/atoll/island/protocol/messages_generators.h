#pragma once

// Random messages and records for tests, of every kind and with everything that is allowed in them.

#include <rapidcheck.h>

#include <limits>
#include <string>
#include <vector>

#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island::testing {

/// A number from 0 to `max`, where small ones and the greatest are likely.
inline std::int64_t any_natural(std::int64_t max = std::numeric_limits<std::int64_t>::max()) {
  return *rc::gen::weightedOneOf<std::int64_t>(
      {{3, rc::gen::inRange<std::int64_t>(0, std::min<std::int64_t>(max, 100))},
       {1, rc::gen::inRange<std::int64_t>(0, max)},
       {1, rc::gen::just(max)}});
}

/// A finite number from 0 to `max`.
inline double any_real(double max = 1e300) {
  const double part = static_cast<double>(*rc::gen::inRange(0, 1 << 30)) / (1 << 30);
  return *rc::gen::element(0.0, max, max * part, part < max ? part : max);
}

/// Any bytes, also none and zeros.
inline std::string any_bytes() {
  return *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
}

/// An island's name.
inline std::string any_name() {
  const std::string name =
      *rc::gen::container<std::string>(rc::gen::element('a', 'Z', '0', '9', '.', '_', '-'));
  return "x" + name.substr(0, 127);
}

/// HOST:PORT, or nothing.
inline std::string any_address() {
  return *rc::gen::element<std::string>("", "10.0.0.1:7001", "[::1]:1", "lyon.example:65535");
}

/// Text without control characters.
inline std::string any_text() {
  return *rc::gen::element<std::string>("", "kjv", "my first run", "d\xC3\xA9j\xC3\xA0", "\xFF\xFE",
                                        std::string(256, 'x'));
}

/// An island's number.
inline IslandId any_island() {
  return static_cast<IslandId>(1 + any_natural(std::numeric_limits<IslandId>::max() - 1));
}

/// Any hash.
inline StateHash any_hash() {
  return {*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>()};
}

/// A few of what `make` makes.
template <typename Make>
auto any_list(Make make) {
  std::vector<decltype(make())> list;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) list.push_back(make());
  return list;
}

/// A range that is not backwards.
inline BatchRange any_range() {
  const std::int64_t end = any_natural();
  return {any_natural(end), end};
}

/// Any participant.
inline Participant any_participant() {
  return {any_island(), any_address(), any_real(1), any_natural(kMaxTokens)};
}

/// Any source.
inline Source any_source() {
  return {static_cast<IslandId>(any_natural(100)), any_address()};
}

/// Any stamp.
inline Stamp any_stamp() {
  return {.fence = *rc::gen::arbitrary<std::uint64_t>(),
          .view = *rc::gen::arbitrary<std::uint64_t>(),
          .outer_step = any_natural(),
          .attempt = *rc::gen::arbitrary<std::uint32_t>(),
          .sender = *rc::gen::arbitrary<std::uint32_t>(),
          .sequence = *rc::gen::arbitrary<std::uint64_t>()};
}

/// Any secret.
inline std::string any_secret() {
  std::string text;
  for (int i = 0; i < 32; ++i) text += "0123456789abcdef"[any_natural(15)];
  return text;
}

/// Any identity.
inline RunIdentity any_identity() {
  return {any_text(), any_text(), any_text(), any_text(), any_text(), any_text()};
}

/// Any schedule of a round.
inline RoundSchedule any_schedule() {
  return {.inner_steps = any_natural(),
          .overlap = any_natural(),
          .codec = *rc::gen::element<std::string>("", "f32", "topk:64/4096"),
          .outer_lr = any_real(),
          .predicted_seconds = any_real()};
}

/// Any plan of a policy.
inline PolicyPlan any_policy() {
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  return {.policy = *rc::gen::element<std::string>("fixed", "qsr", "auto"),
          .base = any_schedule(),
          .min_inner_steps = any_natural(),
          .max_inner_steps = any_natural(),
          .may_overlap = flag(),
          .may_change_codec = flag(),
          .may_change_lr = flag(),
          .qsr_alpha = any_real(),
          .round_bytes = any_real(),
          .day_bytes = any_real(),
          .parameters = any_real(),
          .fragments = any_natural()};
}

/// Any measurements.
inline Measurements any_measurements() {
  return {.step_seconds = any_real(),
          .learning_rate = any_real(),
          .exchange_seconds = any_real(),
          .codec_bytes_per_second = any_real(),
          .mean_norm = any_real(),
          .links = any_list([] {
            return LinkMeasurement{any_island(), any_real(), any_real()};
          })};
}

/// Any plan.
inline RunPlan any_plan() {
  constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
  return {.num_fragments = static_cast<int>(1 + any_natural(4095)),
          .inner_steps = any_natural(),
          .total_batches = any_natural(),
          .min_islands = static_cast<int>(any_natural(kMaxInt)),
          .quorum = static_cast<int>(any_natural(kMaxInt)),
          .grace_seconds = any_real(),
          .is_private = *rc::gen::arbitrary<bool>(),
          .state_sizes = any_list([] { return *rc::gen::arbitrary<std::uint64_t>(); }),
          .policy = any_policy(),
          .is_async = *rc::gen::arbitrary<bool>(),
          .is_gossip = *rc::gen::arbitrary<bool>()};
}

/// The body of a message from an island, of any kind.
inline FromIsland any_from_island() {
  const auto hashes = [] { return any_list(any_hash); };
  const auto ranges = [] { return any_list(any_range); };
  switch (*rc::gen::inRange<std::size_t>(0, std::variant_size_v<FromIsland>)) {
    case 0:
      return Join{any_name(), any_identity(), any_plan(),   any_address(), any_natural() - 1,
                  hashes(),   ranges(),       any_secret(), any_secret(),  any_hash()};
    case 1:
      return Synced{any_natural(), hashes(), ranges(), *rc::gen::arbitrary<std::uint64_t>()};
    case 2:
      return Heartbeat{any_natural(), any_real(), any_real(), any_list(any_island)};
    case 3:
      return Ready{any_hash(),
                   any_natural(kMaxTokens),
                   ranges(),
                   any_real(),
                   *rc::gen::arbitrary<bool>(),
                   -any_real(),
                   4096,
                   1024,
                   any_schedule().codec,
                   any_measurements()};
    case 4:
      return ReduceFailed{any_list(any_island), any_bytes()};
    case 5:
      return Prepared{any_hash()};
    default:
      return Leave{any_bytes()};
  }
}

/// The body of a message to an island, of any kind.
inline ToIsland any_to_island() {
  const auto hashes = [] { return any_list(any_hash); };
  const auto sources = [] { return any_list(any_source); };
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  const auto fragment = [] { return static_cast<int>(any_natural(4095)); };
  const auto member = [&] {
    return View::MemberInfo{
        any_island(), any_name(), any_address(),
        *rc::gen::element<std::string>("joining", "syncing", "active", "suspect", "out"),
        flag() ? any_secret() : ""};
  };
  switch (*rc::gen::inRange<std::size_t>(0, std::variant_size_v<ToIsland>)) {
    case 0:
      return Welcome{any_island(), any_natural(),       hashes(), flag(),
                     sources(),    any_list(any_range), flag(),   any_schedule()};
    case 1:
      return Refused{any_bytes(), flag()};
    case 2:
      return Lease{any_list(any_range), any_natural(), any_natural(), any_natural()};
    case 3:
      return Reduce{fragment(), any_list(any_participant), flag(), any_schedule(), any_natural()};
    case 4:
      return AbandonReduce{any_bytes()};
    case 5:
      return Commit{fragment(), any_hash(), any_list(any_participant), any_schedule()};
    case 6:
      return Dropped{any_bytes()};
    case 7:
      return Resync{any_natural(), hashes(),       sources(), flag(),
                    any_bytes(),   any_schedule(), flag()};
    case 8:
      return View{any_list(member)};
    case 9:
      return PutState{hashes()};
    default:
      return Finish{any_bytes(), flag()};
  }
}

/// What may be appended to a ledger, of any kind; it makes no sense together.
inline LogBody any_log_body() {
  const auto ranges = [] { return any_list(any_range); };
  const auto attempt = [] { return *rc::gen::arbitrary<std::uint32_t>(); };
  const auto contribution = [&] {
    return LogContribution{any_participant(),  ranges(),
                           -any_real(),        any_real(),
                           any_measurements(), static_cast<int>(any_natural(4096))};
  };
  switch (*rc::gen::inRange<std::size_t>(1, std::variant_size_v<LogBody>)) {
    case 1:
      return LogIsland{any_island(), any_bytes(), any_bytes()};
    case 2:
      return LogLease{any_island(), ranges()};
    case 3:
      return LogReturn{any_island(), ranges()};
    case 4:
      return LogReduce{any_natural(), attempt(),
                       static_cast<int>(any_natural(std::numeric_limits<int>::max())),
                       any_list(contribution)};
    case 5:
      return LogCommit{
          any_natural(), attempt(),
          any_hash(),    any_real(),
          any_real(),    *rc::gen::arbitrary<bool>() ? std::optional(any_schedule()) : std::nullopt,
          any_bytes(),   any_list(any_hash)};
    case 6:
      return LogVoid{any_natural(), any_bytes()};
    case 7:
      return LogPolicy{any_policy()};
    default:
      return LogFinished{};
  }
}

}  // namespace atl::island::testing
