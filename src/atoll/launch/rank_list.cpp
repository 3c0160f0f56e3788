#include "atoll/launch/rank_list.h"

#include <algorithm>
#include <charconv>

#include "atoll/base/error.h"

namespace atl::launch {

namespace {

constexpr double kServerSeconds = 10;  // it is a thread of this process

}  // namespace

std::string rank_list_key(int generation) {
  return fmt::format("launch/processes/{}", generation);
}

std::string ready_key(int number) {
  return fmt::format("launch/ready/{}", number);
}

std::string here_key(int generation, int number) {
  return fmt::format("launch/here/{}/{}", generation, number);
}

std::string settled_key(int generation) {
  return fmt::format("launch/settled/{}", generation);
}

std::string agreement_key() {
  return "launch/agreement";
}

std::string format_rank_list(const std::vector<ListedRank>& ranks) {
  std::string text;
  for (const ListedRank& rank : ranks) text += fmt::format("{} {}\n", rank.number, rank.host);
  return text;
}

std::vector<ListedRank> parse_rank_list(std::string_view text) {
  std::vector<ListedRank> ranks;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const std::size_t space = line.find(' ');
    ListedRank rank;
    const char* const stop = line.data() + std::min(space, line.size());
    const auto [stopped, error] = std::from_chars(line.data(), stop, rank.number);
    if (end == text.npos || space == line.npos || error != std::errc() || stopped != stop ||
        rank.number < 0) {
      throw damaged_error("the rendezvous has a list of ranks whose line {} is '{}'",
                          ranks.size() + 1, line);
    }
    rank.host = line.substr(space + 1);
    ranks.push_back(std::move(rank));
    text.remove_prefix(end + 1);
  }
  return ranks;
}

RankList::RankList(const std::string& rendezvous)
    : rendezvous_(comm::open_rendezvous(rendezvous, kServerSeconds)) {}

void RankList::write() {
  const std::vector<ListedRank> ranks(processes_.begin(), processes_.begin() + num_ranks_);
  rendezvous_->set(rank_list_key(++generation_), format_rank_list(ranks));
}

void RankList::begin(const std::vector<std::string>& hosts) {
  processes_.clear();
  next_number_ = 0;
  for (const std::string& host : hosts) processes_.push_back({next_number_++, host});
  num_ranks_ = num_processes();
  write();
}

int RankList::expect(const std::string& host) {
  const int number = next_number_++;
  // A process of an earlier group may have had the same number.
  rendezvous_->remove(ready_key(number));
  processes_.push_back({number, host});
  return number;
}

int RankList::admit() {
  const int before = num_ranks_;
  while (num_ranks_ < num_processes() &&
         rendezvous_->get(ready_key(processes_[static_cast<std::size_t>(num_ranks_)].number))) {
    ++num_ranks_;
  }
  if (num_ranks_ > before) write();
  return num_ranks_ - before;
}

void RankList::remove(int number) {
  const int place = place_of(number);
  if (place < 0) return;
  processes_.erase(processes_.begin() + place);
  if (place >= num_ranks_) return;
  --num_ranks_;
  write();
}

void RankList::dissolve() {
  rendezvous_->set(rank_list_key(++generation_), "");
}

bool RankList::is_settled() const {
  return rendezvous_->get(settled_key(generation_)).has_value();
}

int RankList::rank_of(int number) const {
  const int place = place_of(number);
  return place < num_ranks_ ? place : -1;
}

int RankList::place_of(int number) const {
  const auto found =
      std::find_if(processes_.begin(), processes_.end(),
                   [number](const ListedRank& listed) { return listed.number == number; });
  return found == processes_.end() ? -1 : static_cast<int>(found - processes_.begin());
}

std::string RankList::host_of(int number) const {
  const int place = place_of(number);
  return place < 0 ? "" : processes_[static_cast<std::size_t>(place)].host;
}

}  // namespace atl::launch
