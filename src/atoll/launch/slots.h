#pragma once

// Which places for ranks there are while ranks and hosts come and go: what an elastic launch
// decides, apart from how it does it.

#include <string>
#include <vector>

#include "atoll/launch/group_outcome.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

/// What the user allows.
struct ElasticLimits {
  int min_ranks = 1;
  int max_ranks = 1;
  int max_restarts = 3;
};

/// The places for ranks, in the order of hosts. A generation is one start of the group. A rank
/// that dies leaves its place empty in the next generation; it is taken again in the one after, or
/// at once when otherwise fewer than min_ranks would be left. The places of a host that is gone
/// are not taken until return_hosts().
class Slots {
 public:
  /// An empty host name is this machine. Throws Error(kUser) when there are fewer places than
  /// min_ranks, unless more may come (`may_wait`), or the limits contradict each other.
  Slots(const std::vector<Host>& hosts, const ElasticLimits& limits, bool may_wait = false);

  /// The host of each rank of the next generation, or none when fewer than min_ranks are left.
  std::vector<std::string> next();
  /// Marks the places that the present generation has lost.
  void lose(const GroupOutcome& outcome);
  /// Gives back all places but the first `num_ranks` that next() returned.
  void trim(int num_ranks);
  /// The rank at `place` of next() and grow() has ended or never came, and the others go on: ranks
  /// after it move down by one. `is_gone`: its host is gone too.
  void drop(int place, bool is_gone);
  /// Takes up to `most` more places, after the present ones; they need not have been empty for a
  /// generation. Returns their hosts.
  std::vector<std::string> grow(int most);
  /// How many places grow() would find, up to max_ranks.
  int num_free() const;
  /// How many of the num_free() have lost no rank in this generation; grow() takes them first.
  int num_spare() const;
  /// Whether a host that can be reached has a place that no rank of the present generation has.
  bool has_free(const std::string& host) const;
  /// How many ranks a generation would have if it began now.
  int num_next() const;
  /// How many the present one has.
  int num_taken() const { return static_cast<int>(taken_.size()); }
  /// How many places are on hosts that can be reached, whether they may be taken now or not.
  int num_there() const;
  /// The hosts that are gone.
  const std::vector<std::string>& gone() const { return gone_; }
  /// Hosts that can be reached again.
  void return_hosts(const std::vector<std::string>& names);
  /// The hosts have changed to these: new places are added; places that are not among them any more
  /// are not taken again.
  void update(const std::vector<Host>& hosts);

 private:
  struct Place {
    std::string host;
    int empty_until = 0;   // the first generation in which it may be taken again
    bool removed = false;  // no longer in the hostfile
  };
  bool is_there(const Place& place) const;
  bool is_free(std::size_t place) const;
  bool is_spare(std::size_t place) const;
  int count_up_to_most(bool (Slots::*matches)(std::size_t) const) const;
  void lose_host(const std::string& host);

  ElasticLimits limits_;
  std::vector<Place> places_;
  std::vector<std::string> gone_;
  std::vector<std::size_t> taken_;  // by the ranks of the present generation
  int generation_ = 0;              // the present one
};

}  // namespace atl::launch
