#include "atoll/island/ledger/checksum.h"

#include <bit>
#include <string>
#include <string_view>

namespace atl::island {

namespace {

// Little-endian 64-bit words; lengths before whatever has no fixed one.
class Layout {
 public:
  void number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift);
  }
  void number(std::int64_t value) { number(static_cast<std::uint64_t>(value)); }
  // SQLite keeps no negative zero.
  void real(double value) { number(std::bit_cast<std::uint64_t>(value + 0.0)); }
  void text(std::string_view value) {
    number(std::uint64_t{value.size()});
    bytes_ += value;
  }
  void ranges(const std::vector<BatchRange>& values) {
    number(std::uint64_t{values.size()});
    for (const BatchRange& range : values) {
      number(range.begin);
      number(range.end);
    }
  }
  void hash(std::uint64_t high, std::uint64_t low) {
    number(high);
    number(low);
  }
  Hash128 digest() const { return hash_bytes(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

struct Content {
  Layout& out;

  void operator()(const LogStarted& x) const { out.number(x.fence); }
  void operator()(const LogIsland& x) const {
    out.number(std::uint64_t{x.island});
    out.text(x.name);
    out.text(x.address);
  }
  void operator()(const LogLease& x) const {
    out.number(std::uint64_t{x.island});
    out.ranges(x.ranges);
  }
  void operator()(const LogReturn& x) const {
    out.number(std::uint64_t{x.island});
    out.ranges(x.ranges);
  }
  void operator()(const LogReduce& x) const {
    out.number(x.outer_step);
    out.number(std::uint64_t{x.attempt});
    out.number(std::int64_t{x.fragment});
    out.number(std::uint64_t{x.contributions.size()});
    for (const LogContribution& contribution : x.contributions) (*this)(contribution);
  }
  void operator()(const LogContribution& x) const {
    out.number(std::uint64_t{x.participant.island});
    out.text(x.participant.address);
    out.real(x.participant.weight);
    out.number(x.participant.tokens);
    out.ranges(x.consumed);
    out.real(x.loss);
    out.real(x.norm);
    (*this)(x.measured);
    out.number(std::int64_t{x.exchange});
  }
  void operator()(const LogCommit& x) const {
    out.number(x.outer_step);
    out.number(std::uint64_t{x.attempt});
    out.hash(x.hash.high, x.hash.low);
    out.real(x.exchange_seconds);
    out.real(x.round_seconds);
    out.number(std::uint64_t{x.next.has_value()});
    if (x.next) (*this)(*x.next);
    out.text(x.why);
    out.number(std::uint64_t{x.results.size()});
    for (const StateHash& hash : x.results) out.hash(hash.high, hash.low);
  }
  void operator()(const LogVoid& x) const {
    out.number(x.first_outer_step);
    out.text(x.why);
  }
  void operator()(const LogFinished&) const {}
  void operator()(const LogPolicy& x) const {
    out.text(x.plan.policy);
    (*this)(x.plan.base);
    out.number(x.plan.min_inner_steps);
    out.number(x.plan.max_inner_steps);
    out.number(std::uint64_t{x.plan.may_overlap});
    out.number(std::uint64_t{x.plan.may_change_codec});
    out.number(std::uint64_t{x.plan.may_change_lr});
    out.real(x.plan.qsr_alpha);
    out.real(x.plan.round_bytes);
    out.real(x.plan.day_bytes);
    out.real(x.plan.parameters);
    out.number(x.plan.fragments);
  }
  void operator()(const RoundSchedule& x) const {
    out.number(x.inner_steps);
    out.number(x.overlap);
    out.text(x.codec);
    out.real(x.outer_lr);
    out.real(x.predicted_seconds);
  }
  void operator()(const Measurements& x) const {
    out.real(x.step_seconds);
    out.real(x.learning_rate);
    out.real(x.exchange_seconds);
    out.real(x.codec_bytes_per_second);
    out.real(x.mean_norm);
    out.number(std::uint64_t{x.links.size()});
    for (const LinkMeasurement& link : x.links) {
      out.number(std::uint64_t{link.island});
      out.real(link.bytes_per_second);
      out.real(link.round_trip_seconds);
    }
  }
};

}  // namespace

Hash128 checksum_of(const RunIdentity& identity) {
  Layout layout;
  for (const std::string& text : {identity.run, identity.version, identity.model,
                                  identity.tokenizer, identity.data, identity.settings}) {
    layout.text(text);
  }
  return layout.digest();
}

Hash128 checksum_of(Hash128 previous, std::int64_t number, const LogRecord& record) {
  Layout layout;
  layout.hash(previous.high, previous.low);
  layout.number(number);
  layout.real(record.unix_seconds);
  layout.number(std::uint64_t{record.body.index()});
  std::visit(Content{layout}, record.body);
  return layout.digest();
}

}  // namespace atl::island
