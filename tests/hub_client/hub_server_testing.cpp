#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "atoll/http/request_parser.h"
#include "hub_server.h"

namespace atl::hub {

namespace {

std::string digest(const EVP_MD* kind, const std::string& content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_Digest(content.data(), content.size(), bytes.data(), &size, kind, nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string field_of(const http::Request& request, const char* name) {
  const std::string* value = request.field(name);
  return value == nullptr ? "" : *value;
}

// What stands before `end`, which is taken off with it.
std::string take_until(std::string_view& rest, char end) {
  const std::size_t at = std::min(rest.find(end), rest.size());
  const std::string word(rest.substr(0, at));
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return word;
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

std::string git_sha1(const std::string& content) {
  std::string all = "blob " + std::to_string(content.size());
  all += '\0';
  return digest(EVP_sha1(), all + content);
}

std::string sha256(const std::string& content) {
  return digest(EVP_sha256(), content);
}

HubServer::HubServer() {
  listen(hub_);
  listen(storage_);
  hub_.thread = std::thread([this] { accept_all(hub_, false); });
  storage_.thread = std::thread([this] { accept_all(storage_, true); });
}

HubServer::~HubServer() {
  ends_ = true;
  for (Listener* listener : {&hub_, &storage_}) {
    ::shutdown(listener->fd.get(), SHUT_RDWR);
    listener->thread.join();
  }
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

std::string HubServer::endpoint() const {
  return "http://127.0.0.1:" + std::to_string(hub_.port);
}

void HubServer::add(const std::string& key, const std::string& path, std::string content,
                    bool is_large) {
  const std::lock_guard lock(mutex_);
  repos_[key].files[path] = std::move(content);
  repos_[key].is_large[path] = is_large;
}

void HubServer::set_faults(std::function<Fault(const SeenRequest&, int)> faults) {
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
  counts_.clear();
}

void HubServer::set_on_sent(std::function<void(std::uint64_t)> on_sent) {
  const std::lock_guard lock(mutex_);
  on_sent_ = std::move(on_sent);
  sent_ = 0;
}

std::vector<SeenRequest> HubServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void HubServer::forget_seen() {
  const std::lock_guard lock(mutex_);
  seen_.clear();
}

std::uint64_t HubServer::file_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const SeenRequest& request : seen_) {
    if (!request.target.starts_with("/api/")) bytes += request.body_bytes;
  }
  return bytes;
}

void HubServer::listen(Listener& listener) {
  listener.fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.fd.get(), plain, size) != 0 || ::listen(listener.fd.get(), 64) != 0 ||
      ::getsockname(listener.fd.get(), plain, &size) != 0) {
    throw std::runtime_error("the server of tests cannot listen");
  }
  listener.port = ntohs(address.sin_port);
}

void HubServer::accept_all(const Listener& listener, bool is_storage) {
  while (!ends_) {
    Fd connection(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.open()) continue;
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    open_.push_back(connection.get());
    threads_.emplace_back(
        [this, is_storage, fd = connection.release()] { serve(Fd(fd), is_storage); });
  }
}

void HubServer::serve(Fd connection, bool is_storage) {
  http::RequestParser parser;
  std::array<char, 8192> buffer{};
  bool goes_on = true;
  while (goes_on && !ends_) {
    if (parser.state() != http::RequestParser::State::kWhole) {
      const ssize_t count = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      if (parser.feed({buffer.data(), static_cast<std::size_t>(count)}) ==
          http::RequestParser::State::kRefused) {
        break;
      }
      if (parser.state() != http::RequestParser::State::kWhole) continue;
    }
    const http::Request& request = parser.request();
    SeenRequest seen{.method = request.method,
                     .target = request.target,
                     .range = field_of(request, "range"),
                     .authorization = field_of(request, "authorization"),
                     .is_of_storage = is_storage};
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      const int count = counts_[seen.method + seen.target]++;
      if (faults_) fault = faults_(seen, count);
    }
    Answer full = answer(request, fault, is_storage);
    if (fault.body) full.body = *fault.body;
    if (request.method != "HEAD") {
      seen.body_bytes = std::min(full.body.size(), fault.cut_after.value_or(full.body.size()));
    }
    note(seen);
    goes_on = send(connection.get(), full, fault, seen);
    parser.next();
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, connection.get());
  connection.close();
}

void HubServer::note(const SeenRequest& seen) {
  const std::lock_guard lock(mutex_);
  seen_.push_back(seen);
  if (log_) log_(seen);
}

bool HubServer::send(int fd, const Answer& answer, const Fault& fault, const SeenRequest& seen) {
  std::string head =
      fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n",
                  fault.status == 0 ? answer.status : fault.status, answer.body.size());
  for (const auto& [name, value] : answer.fields) head += name + ": " + value + "\r\n";
  for (const auto& [name, value] : fault.fields) head += name + ": " + value + "\r\n";
  if (!send_all(fd, head + "\r\n")) return false;
  if (seen.method == "HEAD") return true;
  std::string_view rest = std::string_view(answer.body).substr(0, seen.body_bytes);
  const bool is_cut = rest.size() < answer.body.size();
  while (!rest.empty()) {
    const std::size_t size = fault.piece_bytes == 0 ? rest.size() : fault.piece_bytes;
    const std::string_view piece = rest.substr(0, size);
    if (!seen.target.starts_with("/api/")) {
      const std::lock_guard lock(mutex_);
      if (on_sent_) on_sent_(sent_);
      sent_ += piece.size();
    }
    if (ends_ || !send_all(fd, piece)) return false;
    rest.remove_prefix(piece.size());
    if (fault.piece_bytes > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (is_cut) ::shutdown(fd, SHUT_RDWR);
  return !is_cut;
}

HubServer::Answer HubServer::answer(const http::Request& request, const Fault& fault,
                                    bool is_storage) {
  const std::lock_guard lock(mutex_);
  if (is_storage) return answer_storage(request, fault);
  std::string_view rest = request.path;
  rest.remove_prefix(1);
  if (rest.starts_with("api/")) {
    rest.remove_prefix(4);
    const std::string kind = take_until(rest, '/');
    return answer_api(request, kind, rest);
  }
  std::string kind = "models";
  if (rest.starts_with("datasets/")) kind = take_until(rest, '/');
  const std::string owner = take_until(rest, '/');
  const std::string key = kind + "/" + owner + "/" + take_until(rest, '/');
  if (auto refusal = refuse(request, key)) return *refusal;
  if (take_until(rest, '/') != "resolve") return {.status = 404};
  return answer_file(request, key, rest, fault);
}

std::optional<HubServer::Answer> HubServer::refuse(const http::Request& request,
                                                   const std::string& key) {
  const auto at = repos_.find(key);
  if (at == repos_.end()) {
    return Answer{.status = 401, .fields = {{"X-Error-Code", "RepoNotFound"}}};
  }
  const std::string wanted = "Bearer " + at->second.token;
  if (at->second.token.empty() || field_of(request, "authorization") == wanted) {
    return std::nullopt;
  }
  return at->second.is_gated ? Answer{.status = 403,
                                      .fields = {{"X-Error-Code", "GatedRepo"},
                                                 {"X-Error-Message", "Access is restricted."}}}
                             : Answer{.status = 401, .fields = {{"X-Error-Code", "RepoNotFound"}}};
}

HubServer::Answer HubServer::answer_api(const http::Request& request, const std::string& kind,
                                        std::string_view rest) {
  const std::string owner = take_until(rest, '/');
  const std::string key = kind + "/" + owner + "/" + take_until(rest, '/');
  if (auto refusal = refuse(request, key)) return *refusal;
  const ServedRepo& repo = repos_[key];
  const std::string verb = take_until(rest, '/');
  std::string revision = verb.empty() ? "main" : std::string(rest);
  if (revision != "main" && revision != "v1/x" && revision != repo.commit) {
    return {.status = 404, .fields = {{"X-Error-Code", "RevisionNotFound"}}};
  }
  nlohmann::json body;
  Answer answer{.fields = {{"Content-Type", "application/json"}}};
  if (verb.empty() || verb == "revision") {
    body = {{"id", key.substr(key.find('/') + 1)},
            {"sha", repo.commit},
            {"private", false},
            {"gated", false},
            {"disabled", false},
            {"downloads", 0},
            {"likes", 0},
            {"tags", nlohmann::json::array()},
            {"siblings", nlohmann::json::array()}};
    for (const auto& [path, content] : repo.files)
      body["siblings"].push_back({{"rfilename", path}});
  } else {
    const std::string* cursor = request.parameter("cursor");
    const std::size_t first = cursor == nullptr ? 0 : std::stoul(*cursor);
    body = nlohmann::json::array();
    std::size_t i = 0;
    for (const auto& [path, content] : repo.files) {
      const std::size_t place = i++;
      if (place < first || place >= first + page_size_) continue;
      nlohmann::json entry = {
          {"type", "file"}, {"path", path}, {"size", content.size()}, {"oid", git_sha1(content)}};
      if (repo.is_large.at(path)) {
        entry["oid"] = git_sha1("pointer of " + content);
        entry["lfs"] = {{"oid", sha256(content)}, {"size", content.size()}, {"pointerSize", 134}};
      }
      body.push_back(std::move(entry));
    }
    body.push_back(
        {{"type", "directory"}, {"path", "d"}, {"oid", std::string(40, 'd')}, {"size", 0}});
    if (first + page_size_ < repo.files.size()) {
      answer.fields.emplace_back(
          "Link", fmt::format("<{}{}?recursive=true&cursor={}>; rel=\"next\"", endpoint(),
                              request.path, first + page_size_));
    }
  }
  answer.body = body.dump();
  return answer;
}

HubServer::Answer HubServer::answer_file(const http::Request& request, const std::string& key,
                                         std::string_view rest, const Fault& fault) {
  const ServedRepo& repo = repos_[key];
  const std::string revision = take_until(rest, '/');
  if (revision != "main" && revision != repo.commit) {
    return {.status = 404, .fields = {{"X-Error-Code", "RevisionNotFound"}}};
  }
  const auto at = repo.files.find(std::string(rest));
  Answer answer{.fields = {{"X-Repo-Commit", repo.commit}}};
  if (at == repo.files.end()) {
    answer.status = 404;
    answer.fields.emplace_back("X-Error-Code", "EntryNotFound");
    return answer;
  }
  const std::string& content = at->second;
  if (repo.is_large.at(at->first)) {
    const std::string hash = sha256(content);
    answer.status = 302;
    answer.fields.emplace_back("X-Linked-Etag",
                               "\"" + (fault.etag.empty() ? hash : fault.etag) + "\"");
    answer.fields.emplace_back("X-Linked-Size", std::to_string(content.size()));
    answer.fields.emplace_back(
        "Location", fmt::format("http://127.0.0.1:{}/{}?Signature=x", storage_.port, hash));
    return answer;
  }
  answer.fields.emplace_back("ETag",
                             "\"" + (fault.etag.empty() ? git_sha1(content) : fault.etag) + "\"");
  answer.body = content;
  take_range(request, fault, answer);
  return answer;
}

HubServer::Answer HubServer::answer_storage(const http::Request& request, const Fault& fault) {
  for (const auto& [key, repo] : repos_) {
    for (const auto& [path, content] : repo.files) {
      if (!repo.is_large.at(path) || request.path != "/" + sha256(content)) continue;
      Answer answer{.fields = {{"ETag", "\"of-the-storage\""}}, .body = content};
      take_range(request, fault, answer);
      return answer;
    }
  }
  return {.status = 404};
}

void HubServer::take_range(const http::Request& request, const Fault& fault, Answer& answer) {
  const std::string range = field_of(request, "range");
  if (range.empty() || fault.ignores_range) return;
  const std::size_t size = answer.body.size();
  const std::size_t begin = std::stoul(range.substr(std::string("bytes=").size()));
  if (begin >= size) {
    answer.status = 416;
    answer.fields.emplace_back("Content-Range", fmt::format("bytes */{}", size));
    answer.body.clear();
    return;
  }
  answer.status = 206;
  answer.fields.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", begin, size - 1, size));
  answer.body = answer.body.substr(begin);
}

}  // namespace atl::hub
