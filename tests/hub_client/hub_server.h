#pragma once

// A server that speaks the protocol of the Hugging Face hub, and fails when it is told to.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/processes/process.h"
#include "atoll/http/request.h"
#include "atoll/hub/name.h"

namespace atl::hub {

/// One request that came.
struct SeenRequest {
  std::string method;
  std::string target;
  std::string range;  ///< of the field Range; empty: none
  std::string authorization;
  bool is_of_storage = false;    ///< to the other port, where large files are
  std::uint64_t body_bytes = 0;  ///< of the answer, as far as it is sent if nobody hangs up
};

/// What a server does in place of the right answer.
struct Fault {
  int status = 0;                                                ///< 0: the right one
  std::vector<std::pair<std::string, std::string>> fields = {};  ///< besides the right ones
  std::optional<std::size_t> cut_after = std::nullopt;  ///< bytes of the body, then it hangs up
  std::optional<std::string> body = std::nullopt;       ///< in place of the right one
  bool ignores_range = false;
  std::string etag = {};        ///< in place of the right one
  std::size_t piece_bytes = 0;  ///< sent at a time, with a moment between; 0: all at once
};

/// A repository at one commit.
struct ServedRepo {
  std::map<std::string, std::string> files;  ///< by path
  std::map<std::string, bool> is_large;      ///< in large file storage, at the other port
  std::string commit = std::string(40, 'c');
  std::string token;  ///< that may read it; empty: any may
  bool is_gated = false;
};

/// Answers at two ports of 127.0.0.1: the hub's own, and that of the storage of large files, to
/// which the hub's answers lead. A thread for each connection.
class HubServer {
 public:
  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string endpoint() const;
  int storage_port() const { return storage_.port; }

  /// Puts a file into a repository, which is made if it is not there.
  void add(const std::string& key, const std::string& path, std::string content,
           bool is_large = false);
  /// The repository of a key: "models/org/name" or "datasets/org/name".
  ServedRepo& repo(const std::string& key) { return repos_[key]; }
  /// Files in a page of a list.
  void set_page_size(std::size_t size) { page_size_ = size; }
  /// Asked for each request; `count` requests of the same target came before.
  void set_faults(std::function<Fault(const SeenRequest& request, int count)> faults);
  /// Told of each request, before it is answered.
  void set_log(std::function<void(const SeenRequest& request)> log) { log_ = std::move(log); }

  /// Told, before each piece of a file's body, how many bytes of files were sent since this call.
  void set_on_sent(std::function<void(std::uint64_t bytes)> on_sent);

  std::vector<SeenRequest> seen() const;
  void forget_seen();
  /// Bytes of files that were sent, of lists none.
  std::uint64_t file_bytes() const;

 private:
  struct Listener {
    Fd fd;
    int port = 0;
    std::thread thread;
  };
  struct Answer {
    int status = 200;
    std::vector<std::pair<std::string, std::string>> fields;
    std::string body;
  };
  void listen(Listener& listener);
  void accept_all(const Listener& listener, bool is_storage);
  void serve(Fd connection, bool is_storage);
  Answer answer(const http::Request& request, const Fault& fault, bool is_storage);
  Answer answer_api(const http::Request& request, const std::string& kind, std::string_view rest);
  Answer answer_file(const http::Request& request, const std::string& key, std::string_view rest,
                     const Fault& fault);
  Answer answer_storage(const http::Request& request, const Fault& fault);
  std::optional<Answer> refuse(const http::Request& request, const std::string& key);
  static void take_range(const http::Request& request, const Fault& fault, Answer& answer);
  bool send(int fd, const Answer& answer, const Fault& fault, const SeenRequest& seen);
  void note(const SeenRequest& seen);

  Listener hub_;
  Listener storage_;
  mutable std::mutex mutex_;
  std::map<std::string, ServedRepo> repos_;
  std::size_t page_size_ = 1000;
  std::function<Fault(const SeenRequest&, int)> faults_;
  std::function<void(const SeenRequest&)> log_;
  std::function<void(std::uint64_t)> on_sent_;
  std::uint64_t sent_ = 0;
  std::vector<SeenRequest> seen_;
  std::map<std::string, int> counts_;
  std::vector<std::thread> threads_;
  std::vector<int> open_;
  std::atomic<bool> ends_{false};
};

/// As the hub names contents: the SHA-1 of Git, and the SHA-256 of large file storage.
std::string git_sha1(const std::string& content);
std::string sha256(const std::string& content);

}  // namespace atl::hub
