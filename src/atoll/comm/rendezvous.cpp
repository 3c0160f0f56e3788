#include "atoll/comm/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/comm/rendezvous_wire.h"
#include "atoll/comm/world.h"

namespace atl::comm {

namespace fs = std::filesystem;
using namespace rendezvous;

namespace {

constexpr double kReplySeconds = 30;
constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr auto kSlowPoll = std::chrono::milliseconds(50);

Clock::time_point after(double seconds) {
  // A year at most, so that the sum does not overflow.
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, 3.2e7)));
}

void check_lengths(const std::string& key, std::string_view value) {
  if (key.empty() || key.size() > Rendezvous::kLongestKey)
    throw user_error("rendezvous: a key of {} bytes; there may be 1 to {}", key.size(),
                     Rendezvous::kLongestKey);
  if (value.size() > Rendezvous::kLongestValue)
    throw user_error("rendezvous: {} has {} bytes; there may be {}", key, value.size(),
                     Rendezvous::kLongestValue);
}

class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(const std::string& address, double timeout_s) : who_("rendezvous " + address) {
    const Clock::time_point deadline = after(timeout_s);
    socket_ = connect_to(parse_tcp(address), deadline);
    const Clock::time_point soon = std::min(deadline, after(kReplySeconds));
    std::string answer;
    try {
      send_all(socket_, kHello, soon, who_);
      answer = receive_all(socket_, kHello.size(), soon, who_);
    } catch (const Error&) {
      // Another kind of server may listen there: it closes or does not answer.
    }
    if (answer != kHello)
      throw user_error("{}: what answers there is no rendezvous server of this version of atoll",
                       who_);
  }

  void set(const std::string& key, std::string_view value) override {
    check_lengths(key, value);
    std::string ignored;
    if (ask(Verb::kSet, key, value, ignored) == Answer::kFull)
      throw make_error(ErrorKind::kResource, "{} is full", who_);
  }
  std::optional<std::string> get(const std::string& key) override {
    check_lengths(key, {});
    std::string value;
    if (ask(Verb::kGet, key, {}, value) != Answer::kFound) return std::nullopt;
    return value;
  }
  void remove(const std::string& key) override {
    check_lengths(key, {});
    std::string ignored;
    ask(Verb::kRemove, key, {}, ignored);
  }
  std::string local_address() const override { return local_address_of(socket_); }

 private:
  Answer ask(Verb verb, const std::string& key, std::string_view value, std::string& answer) {
    std::string payload;
    payload.push_back(static_cast<char>(verb));
    payload.push_back(static_cast<char>(key.size() & 255));
    payload.push_back(static_cast<char>(key.size() >> 8));
    payload.append(key).append(value);
    const Clock::time_point deadline = after(kReplySeconds);
    send_all(socket_, frame_of(payload), deadline, who_);
    const std::uint32_t length = read_length(receive_all(socket_, 4, deadline, who_));
    if (length == 0 || length > kLongestFrame)
      throw make_error(ErrorKind::kPeer, "{} sends a frame of {} bytes", who_, length);
    answer = receive_all(socket_, length, deadline, who_);
    const auto result = static_cast<Answer>(answer.front());
    answer.erase(0, 1);
    return result;
  }

  std::string who_;
  Socket socket_;
};

class DirectoryRendezvous : public Rendezvous {
 public:
  explicit DirectoryRendezvous(fs::path directory) : directory_(std::move(directory)) {
    std::error_code problem;
    fs::create_directories(directory_, problem);
    if (!fs::is_directory(directory_, problem))
      throw user_error("rendezvous file://{}: it is no directory and cannot be made one",
                       directory_.string());
  }

  void set(const std::string& key, std::string_view value) override {
    check_lengths(key, value);
    write_file(path(key), value);
  }
  std::optional<std::string> get(const std::string& key) override {
    check_lengths(key, {});
    std::error_code problem;
    const auto size = fs::file_size(path(key), problem);
    if (problem) return std::nullopt;
    if (size > kLongestValue)
      throw damaged_error("{} has {} bytes; nothing of a rendezvous is so long", path(key).string(),
                          size);
    return read_file(path(key));
  }
  void remove(const std::string& key) override {
    std::error_code ignored;
    fs::remove(path(key), ignored);
  }

 private:
  // Every key is one file name: what is not a letter, digit or dash is written as hexadecimal.
  fs::path path(const std::string& key) const {
    std::string name = "atoll-";
    for (const char c : key) {
      const bool plain =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
      name += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
    }
    return directory_ / name;
  }

  fs::path directory_;
};

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

std::unique_ptr<Rendezvous> open_rendezvous(const std::string& address, double timeout_s) {
  constexpr std::string_view kFile = "file://";
  if (address.starts_with("tcp://")) return std::make_unique<TcpRendezvous>(address, timeout_s);
  if (!address.starts_with(kFile) || address.size() == kFile.size())
    throw user_error("rendezvous {}: give tcp://HOST:PORT or file:///DIRECTORY", address);
  return std::make_unique<DirectoryRendezvous>(address.substr(kFile.size()));
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
