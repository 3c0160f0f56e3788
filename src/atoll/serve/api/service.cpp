#include "atoll/serve/api/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/threads/task_thread.h"
#include "atoll/http/access.h"
#include "atoll/http/server.h"
#include "atoll/serve/api/adapters/adapter_routes.h"
#include "atoll/serve/api/answer_list.h"
#include "atoll/serve/api/embeddings.h"
#include "atoll/serve/api/generation.h"
#include "atoll/serve/api/openapi.h"
#include "atoll/serve/api/token_routes.h"
#include "atoll/serve/page_assets.h"

namespace atl::serve::api {

using http::Reply;
using http::Request;
using http::Response;

namespace {

constexpr std::size_t kMaxConnections = 4096;
// Bytes from which on a body takes noticeably long to read: tokenizing takes about 0.1 us a byte.
constexpr std::size_t kLongBody = std::size_t{128} << 10;
constexpr const char* kJsonType = "application/json";
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr const char* kLoadPath = "/v1/load_lora_adapter";
constexpr const char* kUnloadPath = "/v1/unload_lora_adapter";

const std::vector<RouteInfo>& routes() {
  static const std::vector<RouteInfo> list = {
      {.method = "post",
       .path = "/v1/chat/completions",
       .summary = "Answers a conversation.",
       .rules = chat_rules()},
      {.method = "post",
       .path = "/v1/completions",
       .summary = "Continues texts.",
       .rules = completion_rules()},
      {.method = "post",
       .path = "/v1/embeddings",
       .summary = "Vectors that stand for texts.",
       .rules = embedding_rules()},
      {.method = "post",
       .path = "/tokenize",
       .summary = "The tokens of a text or a conversation.",
       .rules = tokenize_rules()},
      {.method = "post",
       .path = "/detokenize",
       .summary = "The text of tokens.",
       .rules = detokenize_rules()},
      {.method = "post",
       .path = kLoadPath,
       .summary = "Serves one adapter more.",
       .rules = load_adapter_rules()},
      {.method = "post",
       .path = kUnloadPath,
       .summary = "Serves an adapter no more.",
       .rules = unload_adapter_rules()},
      {.path = "/v1/models", .summary = "The models that answer."},
      {.path = "/v1/models/{model}", .summary = "One of them."},
      {.path = "/health",
       .summary = "Whether requests are served: 200, or 503 until they are.",
       .needs_key = false},
      {.path = "/metrics",
       .summary = "Counters, gauges and histograms for Prometheus.",
       .answer_type = "text/plain"},
      {.path = "/openapi.json", .summary = "This document.", .needs_key = false},
  };
  return list;
}

Json model_json(const ServedModel& model, const std::string& name, std::int64_t created_s) {
  return {
      {"id", name},
      {"object", "model"},
      {"created", created_s},
      {"owned_by", "atoll"},
      {"max_model_len", model.generator->max_tokens()},
      {"atoll", {{"chat", model.chat.has_value()}, {"max_tokens", model.generator->max_tokens()}}}};
}

void protect(Response& response) {
  response.add("Content-Security-Policy", std::string(kPagePolicy))
      .add("X-Content-Type-Options", "nosniff")
      .add("Referrer-Policy", "no-referrer")
      .add("Cross-Origin-Resource-Policy", "same-origin")
      .add("Cache-Control", "no-store");
}

// The path of a route as openapi.json has it, for the path of a request; empty: there is none.
std::string_view route_of(std::string_view path) {
  const bool is_model = path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size();
  if (is_model) return "/v1/models/{model}";
  for (const RouteInfo& route : routes()) {
    if (route.path == path) return route.path;
  }
  return "";
}

bool is_post(std::string_view path) {
  return std::any_of(routes().begin(), routes().end(), [&](const RouteInfo& route) {
    return route.path == path && std::string_view(route.method) == "post";
  });
}

}  // namespace

class Service::State {
 public:
  explicit State(ServiceOptions options)
      : options_(std::move(options)),
        created_s_(static_cast<std::int64_t>(std::time(nullptr))),
        answers_(options_.ping_every),
        server_(std::make_unique<http::Server>(
            http::ServerOptions{.host = options_.host,
                                .port = options_.port,
                                .tls = options_.tls,
                                .max_connections = kMaxConnections,
                                .refusal =
                                    [](int status, std::string_view why) {
                                      return error_response(ApiError(status, std::string(why)));
                                    }},
            [this](const Request& request, const Reply& reply) { answer(request, reply); })),
        port_(server_->port()) {}

  ~State() {
    const ApiError ending(503, "the server is ending");
    is_ending_ = true;
    while (num_requests_ > 0) std::this_thread::sleep_for(kTick);
    answers_.refuse_all(ending);
    wait_until_sent();
    server_.reset();  // clients that are left go, which cancels their sequences
    worker_.reset();
    worker_of_long_.reset();
    worker_of_adapters_.reset();
    answers_.refuse_all(ending);
    while (num_sequences_ > 0) std::this_thread::sleep_for(kTick);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void serve(ServedModel model) {
    auto serving = std::make_unique<Serving>(
        Serving{.model = std::move(model), .times = times_, .num_sequences = num_sequences_});
    serving_ = std::move(serving);
    is_ready_ = true;
  }
  void refuse_new() { is_ending_ = true; }
  bool is_idle() const {
    return num_requests_ == 0 && num_sequences_ == 0 && !server_->has_unsent();
  }
  const RequestTimes& times() const { return times_; }
  int port() const { return port_; }
  std::string url() const {
    const bool is_six = options_.host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", options_.tls ? "https" : "http", is_six ? "[" : "",
                       options_.host, is_six ? "]" : "", port_);
  }

 private:
  static constexpr std::chrono::milliseconds kTick{1};

  // Clients that read get their last words; others are not waited for.
  void wait_until_sent() const {
    constexpr int kMostTicks = 500;
    for (int i = 0; i < kMostTicks && server_->has_unsent(); ++i) {
      std::this_thread::sleep_for(kTick);
    }
  }

  // --- The server's thread

  void answer(const Request& request, const Reply& reply) {
    try {
      const std::string asker = admit(request);
      if (request.method == "POST") {
        hand_over(request, reply, asker);
      } else {
        Response response = read(request);
        protect(response);
        reply.send(std::move(response));
      }
    } catch (const ApiError& error) {
      refuse(reply, error);
    }
  }

  static void refuse(const Reply& reply, const ApiError& error) {
    Response response = error_response(error);
    protect(response);
    reply.send(std::move(response));
  }

  // Who asks. Throws ApiError for a request that may not be served.
  std::string admit(const Request& request) const {
    // A page of a stranger whose name points here (DNS rebinding) knows no key.
    if (options_.keys.is_empty() && !http::is_known_host(request, options_.names)) {
      throw ApiError(421, "this server is not called by that name; --name adds one");
    }
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (!reads && request.method != "POST") throw ApiError(405, "GET, HEAD and POST are served");
    if (!reads && !http::is_own_origin(request)) {
      throw ApiError(403, "the page that asks is not of this server");
    }
    if (reads && is_public(request.path)) return "";
    const std::optional<std::string> asker = options_.keys.asker(request);
    if (!asker) {
      throw ApiError(401, "show an API key of this server: Authorization: Bearer KEY", "",
                     "invalid_api_key");
    }
    return *asker;
  }

  // What tells nothing of the model: the page asks for the key itself.
  bool is_public(std::string_view path) const {
    return path == "/health" || path == "/openapi.json" ||
           http::find_asset(options_.assets, path) != nullptr;
  }

  const ServedModel& model() const { return serving().model; }
  Serving& serving() const {
    if (!is_ready_) throw ApiError(503, "the model is being read; ask again later");
    return *serving_;
  }

  Response read(const Request& request) const {
    const std::string_view route = route_of(request.path);
    if (route == "/health") return health();
    if (route == "/metrics") return metrics_page();
    if (route == "/openapi.json") return Response::of(kJsonType, openapi_json(routes()));
    if (route == "/v1/models") return Response::of(kJsonType, models());
    if (route == "/v1/models/{model}") return one_model(request.path.substr(kModelPrefix.size()));
    if (const http::Asset* asset = http::find_asset(options_.assets, request.path)) {
      return Response::of(asset->type, std::string(asset->text));
    }
    if (is_post(request.path)) throw ApiError(405, "this is asked by POST");
    throw ApiError(404, "there is no such route; GET /openapi.json lists them");
  }

  Response health() const {
    if (is_ending_) throw ApiError(503, "the server is ending");
    for (const StageStatus& stage : serving().model.generator->stats().stages) {
      if (stage.is_up) continue;
      throw ApiError(
          503, fmt::format("stage {} (layers {} to {}) is down: {}; answers wait for it",
                           stage.address, stage.first_layer, stage.end_layer - 1, stage.problem));
    }
    return Response::of(kJsonType, R"({"status":"ok"})");
  }

  Response metrics_page() const {
    metrics::PrometheusText page;
    add_metrics(page, times_, is_ready_ ? serving_->model.generator : nullptr);
    metrics::add_process(page);
    return Response::of(metrics::kPrometheusType, page.text());
  }

  std::string models() const {
    Json list = Json::array({model_json(model(), model().name, created_s_)});
    for (const std::string& name : model().generator->adapters()) {
      list.push_back(model_json(model(), name, created_s_));
    }
    return to_text(Json{{"object", "list"}, {"data", list}});
  }

  Response one_model(const std::string& name) const {
    check_model(model(), name);
    return Response::of(kJsonType, to_text(model_json(model(), name, created_s_)));
  }

  // --- Requests with a body: other threads read them, since a long prompt takes long

  void hand_over(const Request& request, const Reply& reply, const std::string& asker) {
    if (!is_post(request.path)) {
      throw ApiError(route_of(request.path).empty() ? 404 : 405,
                     "nothing is asked there by POST; GET /openapi.json lists the routes");
    }
    serving();        // throws while the model is being read
    ++num_requests_;  // before is_ending_ is looked at: an end that is not seen here waits for it
    if (is_ending_) {
      --num_requests_;
      throw ApiError(503, "the server is ending");
    }
    worker_for(request).start([this, path = request.path, body = request.body,
                               from = Asker{reply, asker, Choice::Clock::now()}] {
      if (from.reply.is_open()) work(path, body, from);
      --num_requests_;
    });
  }

  TaskThread& worker_for(const Request& request) {
    if (request.path == kLoadPath || request.path == kUnloadPath) return *worker_of_adapters_;
    return request.body.size() < kLongBody ? *worker_ : *worker_of_long_;
  }

  // What a request gets that is answered at once, when its body has been read.
  std::string answer_to(const std::string& path, const Json& json) const {
    if (path == kLoadPath) return load_adapter(json, model());
    if (path == kUnloadPath) return unload_adapter(json, model());
    return path == "/tokenize" ? tokenize(json, model()) : detokenize(json, model());
  }

  void work(const std::string& path, const std::string& body, const Asker& from) {
    try {
      const Json json = parse_body(body);
      if (path == "/v1/chat/completions") {
        answers_.add(generate(parse_chat(json), serving(), from));
      } else if (path == "/v1/completions") {
        answers_.add(generate(parse_completion(json), serving(), from));
      } else if (path == "/v1/embeddings") {
        answers_.add(embed(json, serving(), from));
      } else {
        Response response = Response::of(kJsonType, answer_to(path, json));
        protect(response);
        from.reply.send(std::move(response));
      }
    } catch (const ApiError& error) {
      refuse(from.reply, error);
    } catch (const std::exception& error) {
      refuse(from.reply, ApiError(500, error.what()));
    }
  }

  const ServiceOptions options_;
  const std::int64_t created_s_;
  RequestTimes times_;
  std::atomic<std::int64_t> num_requests_ = 0;   // with the worker
  std::atomic<std::int64_t> num_sequences_ = 0;  // with the generator
  std::unique_ptr<Serving> serving_;             // once is_ready_
  std::atomic<bool> is_ready_ = false;
  std::atomic<bool> is_ending_ = false;
  AnswerList answers_;
  // Of long bodies another thread, so that they hold up each other alone.
  std::unique_ptr<TaskThread> worker_ = std::make_unique<TaskThread>();
  std::unique_ptr<TaskThread> worker_of_long_ = std::make_unique<TaskThread>();
  std::unique_ptr<TaskThread> worker_of_adapters_ = std::make_unique<TaskThread>();  // reads files
  std::unique_ptr<http::Server> server_;  // after what its thread uses
  int port_;
};

Service::Service(ServiceOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Service::~Service() = default;

void Service::serve(ServedModel model) {
  state_->serve(std::move(model));
}

void Service::refuse_new() {
  state_->refuse_new();
}

bool Service::is_idle() const {
  return state_->is_idle();
}

const RequestTimes& Service::times() const {
  return state_->times();
}

int Service::port() const {
  return state_->port();
}

std::string Service::url() const {
  return state_->url();
}

}  // namespace atl::serve::api
