#pragma once

// Which ranks are in a group whose ranks come and go: the launch writes the list at the rendezvous,
// and the ranks read it (docs/decisions/0015).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"

namespace atl::launch {

/// One process of a rank list. Its place there is its rank.
struct ListedRank {
  int number = 0;    ///< stays the same while the process lives
  std::string host;  ///< empty: that of the launch

  bool operator==(const ListedRank&) const = default;
};

/// Where the rank list of a generation is: the ranks that are to gather as that generation.
std::string rank_list_key(int generation);
/// Set by a process that is prepared to join.
std::string ready_key(int number);
/// Set by a process that has come to gather as that generation.
std::string here_key(int generation, int number);
/// Set by the lead of that generation once its ranks have taken a step together.
std::string settled_key(int generation);
/// What the ranks of the group have agreed on, for those that join.
std::string agreement_key();

/// A rank list as text.
std::string format_rank_list(const std::vector<ListedRank>& ranks);
/// The rank list of a text. Throws Error(kDamaged) naming the line that is none.
std::vector<ListedRank> parse_rank_list(std::string_view text);

/// The lists of a launch, on the side that writes them.
class RankList {
 public:
  /// `rendezvous`: the address of the server that all ranks use.
  explicit RankList(const std::string& rendezvous);

  /// Lists the ranks that a group begins with, one on each of `hosts`, with numbers from 0.
  void begin(const std::vector<std::string>& hosts);
  /// The number of a process that is about to be started on `host`, to join.
  int expect(const std::string& host);
  /// Lists the expected processes that are ready, after the present ranks and in the order of
  /// expect(); returns how many.
  int admit();
  /// Takes a process out, and lists the others anew when it was listed.
  void remove(int number);
  /// Writes an empty list: all ranks end. They keep their places in this object.
  void dissolve();

  /// Whether the ranks of the last generation have redistributed their state and taken a step.
  /// Before that, a rank that ends takes its part of the state with it.
  bool is_settled() const;
  /// The last generation that was listed.
  int generation() const { return generation_; }
  /// The rank of the process; -1: it is not listed.
  int rank_of(int number) const;
  /// Its place among the ranks and, after them, the expected processes; -1: it is in neither.
  int place_of(int number) const;
  /// Its host; empty: this one, or it is not known.
  std::string host_of(int number) const;
  int num_ranks() const { return num_ranks_; }
  /// The number of ranks and of expected processes.
  int num_processes() const { return static_cast<int>(processes_.size()); }

 private:
  void write();

  std::unique_ptr<comm::Rendezvous> rendezvous_;
  std::vector<ListedRank> processes_;  // the first num_ranks_ are listed
  int num_ranks_ = 0;
  int next_number_ = 0;
  int generation_ = -1;
};

}  // namespace atl::launch
