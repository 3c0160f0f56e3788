#include "atoll/comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include "atoll/base/hash.h"
#include "atoll/comm/rendezvous/deadline.h"
#include "atoll/comm/world.h"

namespace atl::comm {

using namespace rendezvous;

namespace {

constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr auto kSlowPoll = std::chrono::milliseconds(50);

/// Serializes the calls of several threads.
class LockedRendezvous : public Rendezvous {
 public:
  explicit LockedRendezvous(std::unique_ptr<Rendezvous> inner) : inner_(std::move(inner)) {}

  void set(const std::string& key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    inner_->set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return inner_->get(key);
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    inner_->remove(key);
  }
  std::string local_address() const override { return inner_->local_address(); }

 private:
  std::mutex mutex_;
  std::unique_ptr<Rendezvous> inner_;
};

std::string random_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

/// One rank's part in gather(). Every rank writes a random name of its own. Rank 0 writes the list
/// of all names, again whenever a name changes. Every other rank confirms the list that has its own
/// name. Then rank 0 writes that the list is complete. Nobody confirms a list with names that a
/// former run left behind.
class GatherRound {
 public:
  GatherRound(Rendezvous& rendezvous, int rank, int size, int generation)
      : rendezvous_(rendezvous), rank_(rank), size_(size), generation_(generation) {}

  /// The hash of the list once it is complete; nothing before.
  std::optional<std::string> step() { return rank_ == 0 ? lead() : follow(); }
  void begin() { rendezvous_.set(key("here", rank_), own_); }
  std::vector<int> missing() const { return missing_; }

 private:
  std::string key(const char* what, int rank) const {
    return fmt::format("gather/{}/{}/{}", generation_, what, rank);
  }
  static std::string hash(const std::string& names) {
    return to_hex(hash_bytes(names.data(), names.size()));
  }

  std::optional<std::string> lead() {
    missing_.clear();
    std::string names;
    for (int r = 0; r < size_; ++r) {
      const auto name = r == 0 ? own_ : rendezvous_.get(key("here", r));
      if (!name || name->size() != own_.size()) missing_.push_back(r);
      names += name.value_or("") + "\n";
    }
    if (!missing_.empty()) return std::nullopt;
    if (names != names_) rendezvous_.set(key("names", 0), names_ = names);
    for (int r = 1; r < size_; ++r)
      if (rendezvous_.get(key("seen", r)) != hash(names)) missing_.push_back(r);
    if (!missing_.empty()) return std::nullopt;
    rendezvous_.set(key("complete", 0), hash(names));
    return hash(names);
  }

  std::optional<std::string> follow() {
    missing_ = {0};
    const auto names = rendezvous_.get(key("names", 0));
    if (!names || names->find(own_) == std::string::npos) return std::nullopt;
    if (*names != names_) rendezvous_.set(key("seen", rank_), hash(names_ = *names));
    if (rendezvous_.get(key("complete", 0)) != hash(names_)) return std::nullopt;
    return hash(names_);
  }

  Rendezvous& rendezvous_;
  int rank_, size_, generation_;
  std::string own_ = random_name();
  std::string names_;
  std::vector<int> missing_;
};

}  // namespace

std::string Rendezvous::wait(const std::string& key, double timeout_s) {
  const Clock::time_point deadline = after(timeout_s);
  for (int polls = 0;; ++polls) {
    if (auto value = get(key)) return *value;
    if (Clock::now() >= deadline)
      throw make_error(ErrorKind::kPeer, "rendezvous: nobody set {} within {} s", key, timeout_s);
    std::this_thread::sleep_for(polls < 200 ? kPoll : kSlowPoll);
  }
}

std::unique_ptr<Rendezvous> for_threads(std::unique_ptr<Rendezvous> rendezvous) {
  return std::make_unique<LockedRendezvous>(std::move(rendezvous));
}

std::string gather(Rendezvous& rendezvous, int rank, int size, int generation, double timeout_s) {
  GatherRound round(rendezvous, rank, size, generation);
  round.begin();
  const Clock::time_point deadline = after(timeout_s);
  for (int polls = 0;; ++polls) {
    if (auto name = round.step()) return *name;
    if (Clock::now() >= deadline) {
      const std::vector<int> missing = round.missing();
      throw PeerError(
          missing.front(),
          fmt::format("rank{} {} of {} did not come to the rendezvous within {} s",
                      missing.size() > 1 ? "s" : "", fmt::join(missing, ", "), size, timeout_s));
    }
    std::this_thread::sleep_for(polls < 200 ? kPoll : kSlowPoll);
  }
}

}  // namespace atl::comm
