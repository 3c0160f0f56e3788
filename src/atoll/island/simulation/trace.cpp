#include "atoll/island/simulation/trace.h"

#include <fmt/format.h>

namespace atl::island {

namespace {

std::string text(const std::vector<BatchRange>& ranges) {
  std::string all;
  for (const BatchRange& range : ranges) {
    all += fmt::format("{}{}-{}", all.empty() ? "" : ",", range.begin, range.end);
  }
  return "[" + all + "]";
}

std::string text(const StateHash& hash) {
  return fmt::format("{:04x}", hash.low & 0xffff);
}

std::string text(const std::vector<StateHash>& hashes) {
  std::string all;
  for (const StateHash& hash : hashes) all += (all.empty() ? "" : ",") + text(hash);
  return "[" + all + "]";
}

std::string text(const std::vector<Participant>& participants) {
  std::string all;
  for (const Participant& x : participants) {
    all += fmt::format("{}{}", all.empty() ? "" : ",", x.island);
  }
  return "[" + all + "]";
}

std::string text(const Stamp& stamp) {
  return fmt::format("{}.{}.{}.{}#{}", stamp.fence, stamp.view, stamp.outer_step, stamp.attempt,
                     stamp.sequence);
}

struct Describer {
  std::string operator()(const Join& x) const {
    return fmt::format("Join {} at {} {} holds {}", x.name, x.outer_step, text(x.hashes),
                       text(x.holds));
  }
  std::string operator()(const Synced& x) const {
    return fmt::format("Synced {} {} holds {}", x.outer_step, text(x.hashes), text(x.holds));
  }
  std::string operator()(const Heartbeat&) const { return "Heartbeat"; }
  std::string operator()(const Ready& x) const {
    return fmt::format("Ready base {} consumed {}{}", text(x.base_hash), text(x.consumed),
                       x.is_finite ? "" : " not finite");
  }
  std::string operator()(const ReduceFailed& x) const {
    return fmt::format("ReduceFailed {} unreachable: {}", x.unreachable.size(), x.why);
  }
  std::string operator()(const Prepared& x) const { return "Prepared " + text(x.hash); }
  std::string operator()(const Leave& x) const { return "Leave: " + x.why; }

  std::string operator()(const Welcome& x) const {
    return fmt::format("Welcome {} at {} {} holds {}{}, {} sources", x.island, x.outer_step,
                       text(x.hashes), text(x.holds), x.must_sync ? " must sync" : "",
                       x.sources.size());
  }
  std::string operator()(const Refused& x) const { return "Refused: " + x.why; }
  std::string operator()(const Lease& x) const { return "Lease " + text(x.ranges); }
  std::string operator()(const Reduce& x) const {
    return fmt::format("Reduce of {}{}", text(x.participants), x.is_star ? " star" : "");
  }
  std::string operator()(const PutState&) const { return "PutState"; }
  std::string operator()(const AbandonReduce& x) const { return "AbandonReduce: " + x.why; }
  std::string operator()(const Commit& x) const {
    return fmt::format("Commit {} of {}", text(x.hash), text(x.participants));
  }
  std::string operator()(const Dropped& x) const { return "Dropped: " + x.why; }
  std::string operator()(const Resync& x) const {
    return fmt::format("Resync to {} {}{}, {} sources: {}", x.outer_step, text(x.hashes),
                       x.drops_work ? " without work" : "", x.sources.size(), x.why);
  }
  std::string operator()(const View& x) const {
    return fmt::format("View of {}", x.members.size());
  }
  std::string operator()(const Finish& x) const { return "Finish: " + x.why; }

  std::string operator()(const LogStarted& x) const { return fmt::format("started {}", x.fence); }
  std::string operator()(const LogIsland& x) const {
    return fmt::format("island {} is {}", x.island, x.name);
  }
  std::string operator()(const LogLease& x) const {
    return fmt::format("lease to {} {}", x.island, text(x.ranges));
  }
  std::string operator()(const LogReturn& x) const {
    return fmt::format("return of {} {}", x.island, text(x.ranges));
  }
  std::string operator()(const LogReduce& x) const {
    std::string all = fmt::format("reduce {}.{}", x.outer_step, x.attempt);
    for (const LogContribution& c : x.contributions) {
      all += fmt::format(" {}:{}", c.participant.island, text(c.consumed));
    }
    return all;
  }
  std::string operator()(const LogCommit& x) const {
    return fmt::format("commit {}.{} {}", x.outer_step, x.attempt, text(x.hash));
  }
  std::string operator()(const LogVoid& x) const {
    return fmt::format("void from {}", x.first_outer_step);
  }
  std::string operator()(const LogFinished&) const { return "finished"; }
  std::string operator()(const LogPolicy& x) const { return "policy " + x.plan.policy; }
};

}  // namespace

std::string describe(const MessageFromIsland& message) {
  return fmt::format("{} {}", text(message.stamp), std::visit(Describer(), message.body));
}

std::string describe(const MessageToIsland& message) {
  return fmt::format("{} {}", text(message.stamp), std::visit(Describer(), message.body));
}

std::string describe(const LogBody& body) {
  return std::visit(Describer(), body);
}

}  // namespace atl::island
