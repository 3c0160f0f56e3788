#include "atoll/watch/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/append_file.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"
#include "atoll/http/access.h"
#include "atoll/http/server.h"
#include "atoll/metrics/prometheus_text.h"
#include "atoll/metrics/record.h"
#include "atoll/watch/assets.h"
#include "atoll/watch/json_text.h"
#include "atoll/watch/run_table.h"

namespace atl::watch {

namespace fs = std::filesystem;
using http::Reply;
using http::Request;
using http::Response;

namespace {

constexpr std::chrono::milliseconds kBusyTick{250};  // while a page is open
constexpr std::chrono::milliseconds kIdleTick{2000};
constexpr std::chrono::seconds kPingEvery{15};
constexpr std::size_t kMaxStreams = 64;
constexpr std::size_t kMaxPoints = 20'000;
constexpr std::size_t kMaxNames = 200;
constexpr std::size_t kMaxNoteBytes = 10'000;
constexpr std::uint64_t kMaxTraceBytes = std::uint64_t{256} << 20;

void protect(Response& response) {
  response
      .add("Content-Security-Policy",
           "default-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'")
      .add("X-Content-Type-Options", "nosniff")
      .add("Referrer-Policy", "no-referrer")
      .add("Cross-Origin-Resource-Policy", "same-origin")
      .add("Cache-Control", "no-store");
}

Response json(std::string text) {
  return Response::of("application/json", std::move(text));
}

// A number from the query; `otherwise` where it is absent. Throws Error(kUser) for anything else.
template <typename T>
T number_of(const Request& request, std::string_view name, T otherwise) {
  const std::string* text = request.parameter(name);
  if (text == nullptr || text->empty()) return otherwise;
  T number{};
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (code != std::errc() || end != text->data() + text->size()) {
    throw user_error("{} is no number", name);
  }
  return number;
}

Axis axis_of(const Request& request) {
  const std::string* name = request.parameter("axis");
  if (name == nullptr || *name == "step") return Axis::kStep;
  if (*name == "tokens") return Axis::kTokens;
  if (*name == "time") return Axis::kTime;
  if (*name == "active") return Axis::kActive;
  throw user_error("axis is step, tokens, time or active");
}

SeriesQuery query_of(const Request& request) {
  SeriesQuery query{.axis = axis_of(request)};
  for (const auto& [name, value] : request.parameters) {
    if (name == "name" && query.names.size() < kMaxNames) query.names.push_back(value);
  }
  query.from = number_of(request, "from", query.from);
  query.to = number_of(request, "to", query.to);
  query.points = std::clamp<std::size_t>(number_of(request, "points", query.points), 1, kMaxPoints);
  query.since = number_of(request, "since", query.since);
  query.size = number_of(request, "size", query.size);
  return query;
}

}  // namespace

class Service::State {
 public:
  explicit State(const ServiceOptions& options)
      : options_(options),
        token_(options.token.empty() ? http::new_token() : options.token),
        table_(options.roots, options.cache_bytes),
        server_({.host = options.host, .port = options.port, .tls = options.tls},
                [this](const Request& request, const Reply& reply) { answer(request, reply); }) {
    reader_ = std::thread([this] { read(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    reader_.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int port() const { return server_.port(); }
  const std::string& token() const { return token_; }
  const ServiceOptions& options() const { return options_; }

 private:
  // --- Reading: a thread of its own

  void read() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    auto pinged_at = std::chrono::steady_clock::now();
    for (;;) {
      std::set<std::string> changed;
      try {
        changed = table_.update();
      } catch (const std::exception& error) {
        log::warning("watch: {}", error.what());
      }
      if (!changed.empty()) tell(changed);
      const auto now = std::chrono::steady_clock::now();
      if (now - pinged_at >= kPingEvery) {
        publish(": ping\n\n");
        pinged_at = now;
      }
      std::unique_lock lock(mutex_);
      if (ends_) return;
      const bool reads_on = table_.has_more();
      const auto tick = reads_on ? std::chrono::milliseconds(1)
                                 : (streams_.empty() && !asked_ ? kIdleTick : kBusyTick);
      asked_ = false;
      changed_.wait_for(lock, tick, [this] { return ends_ || asked_; });
    }
  }

  void tell(const std::set<std::string>& changed) {
    for (const std::string& id : changed) {
      WatchedRun run;
      if (id.empty()) {
        publish(http::event_text("list", "", "{}"));
      } else if (table_.find(id, run)) {
        publish(http::event_text("run", "", summary_json(run)));
      }
    }
  }

  void publish(const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const Reply& stream) { return !stream.write(text); });
  }

  // --- Answering: the server's thread

  void answer(const Request& request, const Reply& reply) {
    {
      const std::lock_guard lock(mutex_);
      ++requests_;
      asked_ = true;
    }
    if (table_is_stale()) changed_.notify_all();
    Response response;
    try {
      if (request.path == "/api/stream" && refusal_of(request).status == 0) {
        stream(reply);
        return;
      }
      response = respond(request);
    } catch (const Error& error) {
      response = Response::plain(error.kind() == ErrorKind::kUser ? 400 : 500, error.what());
    }
    protect(response);
    reply.send(std::move(response));
  }

  // Without open pages the reader is slow, so the table may be seconds old.
  bool table_is_stale() {
    const std::lock_guard lock(mutex_);
    return streams_.empty();
  }

  void stream(const Reply& reply) {
    Response head = Response::of("text/event-stream", "");
    protect(head);
    head.add("X-Accel-Buffering", "no");
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [](const Reply& stream) { return !stream.is_open(); });
    if (streams_.size() >= kMaxStreams) {
      reply.send(Response::plain(503, "too many pages are open").add("Retry-After", "30"));
      return;
    }
    reply.begin(std::move(head));
    reply.write("retry: 1000\n\n");
    streams_.push_back(reply);
  }

  std::string cookie_name() const { return fmt::format("atoll-{}", server_.port()); }

  bool shows_token(const Request& request) const {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string* field = request.field("authorization");
    if (field != nullptr && field->starts_with(kBearer)) {
      return http::is_same_secret(std::string_view(*field).substr(kBearer.size()), token_);
    }
    const auto cookie = request.cookie(cookie_name());
    return cookie && http::is_same_secret(*cookie, token_);
  }

  // The response that refuses a request; status 0: the request may be served.
  Response refusal_of(const Request& request) const {
    Response none{.status = 0};
    if (!http::is_known_host(request, options_.names)) {
      return Response::plain(421, "this server is not called by that name; --name adds one");
    }
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (!reads && request.method != "POST") {
      return Response::plain(405, "GET, HEAD and POST are served").add("Allow", "GET, HEAD, POST");
    }
    if (!reads && !http::is_own_origin(request)) {
      return Response::plain(403, "the page that asks is not of this server");
    }
    const bool needs_token = !reads || options_.reading_needs_token;
    if (needs_token && !shows_token(request)) {
      return Response::plain(401, "open the address with its token, as atoll has printed it")
          .add("WWW-Authenticate", "Bearer");
    }
    return none;
  }

  // Answers the URL with the token: stores the token as a cookie that no script and no other site
  // can read.
  Response log_in(const Request& request) const {
    if (!http::is_known_host(request, options_.names)) return refusal_of(request);
    if (!http::is_same_secret(*request.parameter("token"), token_)) {
      return Response::plain(401,
                             "that is not the token; open the address as atoll has printed it");
    }
    Response response = Response::plain(303, "welcome");
    response.add("Location", "/");
    response.add("Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict{}",
                                           cookie_name(), token_, options_.tls ? "; Secure" : ""));
    return response;
  }

  Response respond(const Request& request) {
    if (request.path == "/" && request.parameter("token") != nullptr) return log_in(request);
    Response refusal = refusal_of(request);
    if (refusal.status != 0) return refusal;
    if (request.method == "POST") {
      if (request.path == "/api/note") return add_note(request);
      return Response::plain(404, "nothing is written there");
    }
    if (request.path == "/metrics") return Response::of(metrics::kPrometheusType, metrics_page());
    if (request.path.starts_with("/api/")) return respond_api(request);
    const http::Asset* asset = http::find_asset(assets(), request.path);
    if (asset == nullptr) return Response::plain(404, "there is no such page");
    return Response::of(asset->type, std::string(asset->text));
  }

  // The page for Prometheus, about this server only: each run serves its own metrics.
  std::string metrics_page() {
    metrics::PrometheusText page;
    std::array<int, kNumRunStates> states = {};
    double records = 0, left_out = 0;
    for (const WatchedRun& run : table_.runs()) {
      ++states.at(static_cast<std::size_t>(run.state));
      const RunLog::Summary summary = run.log->summary();
      records += static_cast<double>(summary.num_records);
      left_out += static_cast<double>(summary.bad_lines);
    }
    page.family("atoll_watch_runs", metrics::PrometheusType::kGauge,
                "Runs that are shown, by state.");
    for (std::size_t i = 0; i < states.size(); ++i) {
      page.sample(states[i], {{"state", name_of(static_cast<RunState>(i))}});
    }
    const auto add = [&](const char* name, metrics::PrometheusType type, const char* help,
                         double value) {
      if (page.family(name, type, help)) page.sample(value);
    };
    add("atoll_watch_records", metrics::PrometheusType::kGauge,
        "Records of metrics.jsonl in these.", records);
    add("atoll_watch_damaged_lines", metrics::PrometheusType::kGauge,
        "Lines there that are no records.", left_out);
    {
      const std::lock_guard lock(mutex_);
      add("atoll_watch_pages", metrics::PrometheusType::kGauge, "Pages that are open.",
          static_cast<double>(streams_.size()));
      add("atoll_watch_requests_total", metrics::PrometheusType::kCounter, "Requests that came.",
          static_cast<double>(requests_));
    }
    add_process(page);
    return page.text();
  }

  WatchedRun run_of(const Request& request) const {
    const std::string* id = request.parameter("run");
    WatchedRun run;
    if (id == nullptr || !table_.find(*id, run)) throw user_error("there is no such run");
    return run;
  }

  Response respond_api(const Request& request) {
    if (request.path == "/api/runs") return json(list_json(request));
    if (request.path == "/api/run") return json(detail_json(run_of(request)));
    if (request.path == "/api/series") return series(request);
    if (request.path == "/api/trace") return trace(request);
    if (request.path == "/api/study") return json(read_elsewhere(request, "study"));
    if (request.path == "/api/ledger") return json(read_elsewhere(request, "ledger"));
    return Response::plain(404, "there is no such question");
  }

  Response series(const Request& request) const {
    return json(to_json(run_of(request).log->query(query_of(request))));
  }

  std::string list_json(const Request& request) const {
    std::string text =
        fmt::format("{{\"can_write\":{},\"runs\":[", shows_token(request) ? "true" : "false");
    bool is_first = true;
    for (const WatchedRun& run : table_.runs()) {
      if (!std::exchange(is_first, false)) text += ',';
      text += summary_json(run);
    }
    const auto add = [&](const char* name, const std::map<std::string, fs::path>& list) {
      text += fmt::format("],\"{}\":[", name);
      is_first = true;
      for (const auto& [id, dir] : list) {
        if (!std::exchange(is_first, false)) text += ',';
        append_string(text, id);
      }
    };
    add("studies", options_.study_json ? table_.studies() : std::map<std::string, fs::path>());
    add("ledgers", options_.ledger_json ? table_.ledgers() : std::map<std::string, fs::path>());
    return text + "]}";
  }

  std::string read_elsewhere(const Request& request, std::string_view what) const {
    const bool is_study = what == "study";
    const auto& read = is_study ? options_.study_json : options_.ledger_json;
    const auto list = is_study ? table_.studies() : table_.ledgers();
    const std::string* id = request.parameter("dir");
    const auto found = id == nullptr ? list.end() : list.find(*id);
    if (found == list.end() || !read) throw user_error("there is no such {}", what);
    return read(found->second);
  }

  Response trace(const Request& request) const {
    const fs::path path = run_of(request).trace;
    if (path.empty()) return json("null");
    return json(read_file(path, kMaxTraceBytes));
  }

  Response add_note(const Request& request) const {
    const WatchedRun run = run_of(request);
    const auto body = parse_json(request.body, "the note", {.refusal = ErrorKind::kUser});
    if (!body.is_object() || !body.contains("text") || !body["text"].is_string()) {
      throw user_error("a note is {{\"text\": \"...\"}}");
    }
    const std::string text = body["text"];
    if (text.empty() || text.size() > kMaxNoteBytes) {
      throw user_error("a note has 1 to {} bytes", kMaxNoteBytes);
    }
    const nlohmann::ordered_json line = {{"time", metrics::wall_time_now()}, {"text", text}};
    AppendFile(run.dir / "notes.jsonl")
        .append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return json("{}");
  }

  const ServiceOptions options_;
  const std::string token_;
  RunTable table_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  bool asked_ = false;
  std::uint64_t requests_ = 0;
  std::vector<Reply> streams_;
  http::Server server_;  // after what its thread uses
  std::thread reader_;
};

Service::Service(const ServiceOptions& options) : state_(std::make_unique<State>(options)) {}

Service::~Service() = default;

int Service::port() const {
  return state_->port();
}

const std::string& Service::token() const {
  return state_->token();
}

std::string Service::url() const {
  const ServiceOptions& options = state_->options();
  const bool is_any = options.host == "0.0.0.0" || options.host == "::";
  const std::string host =
      is_any ? (options.names.empty() ? "127.0.0.1" : options.names.front()) : options.host;
  const bool has_colon = host.find(':') != host.npos;
  return fmt::format("{}://{}{}{}:{}/?token={}", options.tls ? "https" : "http",
                     has_colon ? "[" : "", host, has_colon ? "]" : "", port(), token());
}

}  // namespace atl::watch
