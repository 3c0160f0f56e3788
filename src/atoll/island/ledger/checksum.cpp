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
  }
  void operator()(const LogCommit& x) const {
    out.number(x.outer_step);
    out.number(std::uint64_t{x.attempt});
    out.hash(x.hash.high, x.hash.low);
  }
  void operator()(const LogVoid& x) const {
    out.number(x.first_outer_step);
    out.text(x.why);
  }
  void operator()(const LogFinished&) const {}
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
