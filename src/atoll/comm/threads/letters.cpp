#include "atoll/comm/threads/letters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "atoll/comm/world.h"

namespace atl::comm {

namespace {

std::string describe(std::size_t bytes, const std::optional<Spec>& spec) {
  return spec ? spec->to_string() : fmt::format("{} bytes", bytes);
}

}  // namespace

void Letters::clear() {
  sent_.clear();
  awaited_.clear();
}

void Letters::send(int to, const void* data, std::size_t bytes, std::optional<Spec> spec) {
  Mailbox& mailbox = presence_.hub().mailbox(presence_.rank(), to);
  {
    const std::lock_guard lock(mailbox.mutex);
    mailbox.letters.push_back({data, bytes, spec});
  }
  sent_.push_back({to, mailbox.num_posted.fetch_add(1, std::memory_order_release) + 1});
  presence_.hub().rank(to).news.bump();
}

void Letters::receive(int from, void* data, std::size_t bytes, std::optional<Spec> spec) {
  awaited_.push_back({from, data, bytes, spec});
}

void Letters::move() {
  presence_.wait_for([this] { return make_progress(); });
}

int Letters::make_progress() {
  // Of each peer in order; a peer whose first letter has not come holds up only its own.
  std::fill(is_late_.begin(), is_late_.end(), 0);
  std::erase_if(awaited_, [&](const Awaited& awaited) {
    char& late = is_late_[static_cast<std::size_t>(awaited.from)];
    if (late == 0 && take(awaited)) return true;
    late = 1;
    return false;
  });
  std::erase_if(sent_, [&](const Sent& sent) {
    const Mailbox& mailbox = presence_.hub().mailbox(presence_.rank(), sent.to);
    return mailbox.num_taken.load(std::memory_order_acquire) >= sent.number;
  });
  if (!awaited_.empty()) {
    check_not_in_collective(awaited_.front().from);
    return awaited_.front().from;
  }
  if (sent_.empty()) return -1;
  check_not_in_collective(sent_.front().to);
  return sent_.front().to;
}

bool Letters::take(const Awaited& awaited) {
  Mailbox& mailbox = presence_.hub().mailbox(awaited.from, presence_.rank());
  const std::uint64_t taken = mailbox.num_taken.load(std::memory_order_relaxed);
  if (mailbox.num_posted.load(std::memory_order_acquire) == taken) return false;
  Letter letter;
  {
    const std::lock_guard lock(mailbox.mutex);
    letter = mailbox.letters[mailbox.first];
  }
  const bool same_dtype =
      !letter.spec || !awaited.spec || letter.spec->dtype == awaited.spec->dtype;
  if (letter.bytes != awaited.bytes || !same_dtype) {
    throw PeerError(awaited.from,
                    fmt::format("rank {} sends {} where rank {} expects {}", awaited.from,
                                describe(letter.bytes, letter.spec), presence_.rank(),
                                describe(awaited.bytes, awaited.spec)));
  }
  {
    const Presence::Touch touch(presence_);
    if (letter.bytes != 0) std::memcpy(awaited.data, letter.data, letter.bytes);
  }
  {
    const std::lock_guard lock(mailbox.mutex);
    if (++mailbox.first == mailbox.letters.size()) {
      mailbox.letters.clear();
      mailbox.first = 0;
    }
  }
  mailbox.num_taken.fetch_add(1, std::memory_order_release);
  presence_.hub().rank(awaited.from).news.bump();
  return true;
}

// A rank that is in a collective with this one waits there for ever when this one waits for it
// here. It may have sent or taken what this one waits for before, so that is looked at once more.
void Letters::check_not_in_collective(int rank) {
  Hub& hub = presence_.hub();
  const std::uint64_t mine =
      hub.meeting(presence_.rank(), rank).count.load(std::memory_order_relaxed);
  if (hub.meeting(rank, presence_.rank()).count.load(std::memory_order_acquire) <= mine) return;
  const bool first_is_here =
      !awaited_.empty() && hub.mailbox(rank, presence_.rank()).num_posted.load() !=
                               hub.mailbox(rank, presence_.rank()).num_taken.load();
  const bool sent_is_taken =
      awaited_.empty() &&
      hub.mailbox(presence_.rank(), rank).num_taken.load() >= sent_.front().number;
  if (first_is_here || sent_is_taken) return;
  throw PeerError(rank, fmt::format("rank {} waits elsewhere for this rank: {}", rank,
                                    presence_.last_call_of(rank)));
}

}  // namespace atl::comm
