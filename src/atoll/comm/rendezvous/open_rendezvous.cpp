#include "atoll/comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "atoll/base/files/file.h"
#include "atoll/comm/rendezvous/rendezvous_wire.h"

namespace atl::comm {

namespace fs = std::filesystem;
using namespace rendezvous;

namespace {

constexpr double kReplySeconds = 30;

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

}  // namespace

std::unique_ptr<Rendezvous> open_rendezvous(const std::string& address, double timeout_s) {
  constexpr std::string_view kFile = "file://";
  if (address.starts_with("tcp://")) return std::make_unique<TcpRendezvous>(address, timeout_s);
  if (!address.starts_with(kFile) || address.size() == kFile.size())
    throw user_error("rendezvous {}: give tcp://HOST:PORT or file:///DIRECTORY", address);
  return std::make_unique<DirectoryRendezvous>(address.substr(kFile.size()));
}

}  // namespace atl::comm
