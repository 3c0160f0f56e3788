#include "atoll/launch/group_outcome.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>

#include "atoll/base/processes/stop_signals.h"

namespace atl::launch {

namespace {

using Kind = GroupOutcome::Kind;

constexpr int kSshFailed = 255;

bool vanished(const RankEnd& end) {
  return !end.host.empty() && !end.has_lost_agent && end.exit_code == kSshFailed &&
         end.signal == 0 && !end.report;
}

bool ended_badly(const RankEnd& end) {
  return !end.ended_by_us && (end.signal != 0 || end.exit_code != 0 || end.has_lost_agent);
}

std::string name_of(const RankEnd& end) {
  return end.host.empty() ? fmt::format("rank {} (pid {})", end.rank, end.pid)
                          : fmt::format("rank {} on {}", end.rank, end.host);
}

std::string when(const GroupEnd& end) {
  return end.last_step() <= 0 ? "before its first step was done"
                              : fmt::format("after step {}", end.last_step());
}

// "a; b; c" of at most three, and how many more.
std::string join(const std::vector<std::string>& parts) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kShown); ++i) {
    text += (i == 0 ? "" : "; ") + parts[i];
  }
  if (parts.size() > kShown) text += fmt::format("; and {} more", parts.size() - kShown);
  return text;
}

const RankEnd* first(const GroupEnd& end, const std::function<bool(const RankEnd&)>& matches) {
  const auto found = std::find_if(end.ranks.begin(), end.ranks.end(), matches);
  return found == end.ranks.end() ? nullptr : &*found;
}

// Ranks that a signal killed, and hosts that are gone.
GroupOutcome deaths_outcome(const GroupEnd& end) {
  GroupOutcome outcome;
  std::vector<std::string> parts;
  for (const RankEnd& rank : end.ranks) {
    if (!ended_badly(rank)) continue;
    if (rank.signal == 0 && !rank.has_lost_agent && !vanished(rank)) continue;
    if (rank.signal != 0 && rank.signal == end.stop_signal) continue;
    if (rank.signal != 0) {
      parts.push_back(fmt::format("{} was killed by {}", name_of(rank), signal_text(rank.signal)));
    } else if (rank.has_lost_agent) {
      parts.push_back(fmt::format("{}: the agent there is gone", name_of(rank)));
    } else {
      parts.push_back(fmt::format("{}: ssh has lost it{}{}", name_of(rank),
                                  rank.last_line.empty() ? "" : ": ", rank.last_line));
      if (std::find(outcome.gone.begin(), outcome.gone.end(), rank.host) == outcome.gone.end()) {
        outcome.gone.push_back(rank.host);
      }
    }
    outcome.lost.push_back(rank.rank);
  }
  if (parts.empty()) return outcome;
  std::sort(outcome.lost.begin(), outcome.lost.end());
  outcome.kind = Kind::kFailed;
  outcome.exit_code = 1;
  outcome.cause = join(parts) + " " + when(end);
  return outcome;
}

// The cause for a rank that ended with an error of its own: its report, or else its last line.
GroupOutcome failure_outcome(const RankEnd& rank) {
  GroupOutcome outcome = {.kind = Kind::kFailed, .exit_code = 1};
  if (rank.report) {
    outcome.cause = fmt::format("rank {}: {}", rank.rank, rank.report->error);
  } else {
    outcome.cause = fmt::format("{} ended with exit code {}{}{}", name_of(rank), rank.exit_code,
                                rank.last_line.empty() ? "" : ": ", rank.last_line);
  }
  return outcome;
}

// The cause when ranks only report that they miss others: the ranks that had to be killed were
// hanging.
GroupOutcome silence_outcome(const GroupEnd& end, const RankEnd& witness) {
  GroupOutcome outcome = failure_outcome(witness);
  for (const RankEnd& rank : end.ranks) {
    if (rank.ended_by_us) outcome.lost.push_back(rank.rank);
  }
  const int accused = witness.report->peer;
  const bool is_one = accused >= 0 && accused < static_cast<int>(end.ranks.size());
  if (outcome.lost.empty() && is_one) outcome.lost.push_back(accused);
  std::sort(outcome.lost.begin(), outcome.lost.end());
  return outcome;
}

}  // namespace

std::string signal_text(int signal) {
  const char* text = ::strsignal(signal);
  return fmt::format("signal {} ({})", signal, text == nullptr ? "unknown" : text);
}

GroupOutcome outcome_of(const GroupEnd& end) {
  if (const RankEnd* rank = first(
          end, [](const RankEnd& r) { return r.report && r.report->kind == ErrorKind::kUser; })) {
    return {.kind = Kind::kMistake, .exit_code = 2, .cause = rank->report->error};
  }
  GroupOutcome deaths = deaths_outcome(end);
  if (deaths.kind != Kind::kDone) return deaths;
  const auto is_witness = [](const RankEnd& r) {
    return r.report && r.report->kind == ErrorKind::kPeer;
  };
  // The signal ended a rank before the ranks agreed on a last step, so the others miss it.
  const bool is_cut_short =
      end.stop_signal != 0 && first(end, [&end](const RankEnd& r) {
                                return !r.ended_by_us && r.signal == end.stop_signal;
                              }) != nullptr;
  const auto failed = [&](const RankEnd& r) {
    if (is_cut_short && is_witness(r)) return false;
    return ended_badly(r) && !is_stop_code(r.exit_code) &&
           (r.signal == 0 || r.signal != end.stop_signal);
  };
  if (const RankEnd* rank =
          first(end, [&](const RankEnd& r) { return failed(r) && !is_witness(r); })) {
    return failure_outcome(*rank);
  }
  if (const RankEnd* rank = first(end, failed)) return silence_outcome(end, *rank);
  // What is left are ranks that came to the end, or stopped because they were asked to.
  if (is_cut_short) return {.kind = Kind::kStopped, .exit_code = 128 + end.stop_signal};
  if (const RankEnd* rank = first(end, ended_badly)) {
    return {.kind = Kind::kStopped,
            .exit_code = rank->signal != 0 ? 128 + rank->signal : rank->exit_code};
  }
  // All that were left had to be killed: the signal came again, and wants no more patience.
  if (end.stop_signal != 0 && first(end, [](const RankEnd& r) { return r.ended_by_us; })) {
    return {.kind = Kind::kStopped, .exit_code = 128 + end.stop_signal};
  }
  return {};
}

}  // namespace atl::launch
