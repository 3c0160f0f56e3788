#include "atoll/wire/server.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/wire/address.h"
#include "atoll/wire/blob_service.h"
#include "atoll/wire/identity.h"
#include "atoll/wire/session_table.h"
#include "atoll/wire/tls.h"

namespace atl::wire {

namespace {

// Sessions never block a thread and so use callbacks; transfers wait for chunks and disks.
class Service : public proto::Wire::WithCallbackMethod_Attend<proto::Wire::Service> {
 public:
  Service(SessionTable& sessions, BlobService& transfers)
      : sessions_(sessions), transfers_(transfers) {}

  SessionReactor* Attend(grpc::CallbackServerContext* context) override {
    return sessions_.accept(*context);
  }
  grpc::Status Fetch(grpc::ServerContext* context, const proto::FetchRequest* request,
                     grpc::ServerWriter<proto::Chunk>* out) override {
    return transfers_.fetch(*context, *request, *out);
  }
  grpc::Status Put(grpc::ServerContext* context,
                   grpc::ServerReaderWriter<proto::PutAck, proto::Chunk>* stream) override {
    return transfers_.put(*context, *stream);
  }

 private:
  SessionTable& sessions_;
  BlobService& transfers_;
};

// Plaintext listens at a number, so that a name cannot mean something else when gRPC looks it up.
HostPort listening_address(const ServerOptions& options) {
  HostPort address = parse_address(options.listen, "the address to listen at");
  if (options.identity) return address;
  if (!is_loopback(address.host)) {
    throw user_error(
        "{} can be reached from other machines, and without a certificate everything would be "
        "readable there; give an identity (`atoll certs issue`) or listen at 127.0.0.1",
        options.listen);
  }
  address.host = resolve(address, nullptr).front().host();
  return address;
}

// Why this process cannot listen there; gRPC does not say.
std::string bind_problem(const HostPort& address) {
  std::string why;
  const std::vector<SocketAddress> all = resolve(address, &why);
  for (const SocketAddress& one : all) {
    const int fd = ::socket(one.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const auto* where = reinterpret_cast<const sockaddr*>(&one.storage);
    if (fd < 0 || ::bind(fd, where, one.size) != 0 || ::listen(fd, 1) != 0) {
      why = std::strerror(errno);
    }
    if (fd >= 0) ::close(fd);
  }
  return why.empty() ? "gRPC gives no reason" : why;
}

void apply_settings(grpc::ServerBuilder& builder, const ServerOptions& options) {
  const auto most =
      static_cast<int>(std::max(options.max_frame_bytes, kMaxChunkBytes) + kEnvelopeBytes);
  builder.SetMaxReceiveMessageSize(most);
  builder.SetMaxSendMessageSize(most);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive.interval_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive.timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20);
  // Limits the memory for callers that have not shown a certificate yet.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8192);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
  grpc::ResourceQuota quota("wire");
  // Many times what transfers need; what is beyond it is a peer's attempt to fill this machine.
  quota.Resize(std::size_t{1} << 30);
  quota.SetMaxThreads(options.max_transfers + 16);
  builder.SetResourceQuota(quota);
}

}  // namespace

struct Server::State {
  State(const ServerOptions& settings, SessionHandler* handler, BlobStore* blobs)
      : options(settings),
        identity(settings.identity ? std::optional(load_identity(*settings.identity))
                                   : std::nullopt),
        admission(identity, secret_beside(settings.secret, settings.identity), settings.kept_list),
        sessions(options, handler, admission, traffic),
        transfers(options, blobs, admission, traffic),
        service(sessions, transfers) {}

  ServerOptions options;
  std::optional<Identity> identity;
  Admission admission;
  TrafficCounters traffic;
  SessionTable sessions;
  BlobService transfers;
  Service service;
  HostPort address;
  std::unique_ptr<grpc::Server> server;
};

Server::Server(const ServerOptions& options, SessionHandler* handler, BlobStore* blobs)
    : state_(std::make_unique<State>(options, handler, blobs)) {
  state_->address = listening_address(options);
  grpc::ServerBuilder builder;
  apply_settings(builder, options);
  int port = 0;
  builder.AddListeningPort(to_string(state_->address), server_credentials(state_->identity), &port);
  builder.RegisterService(&state_->service);
  state_->server = builder.BuildAndStart();
  if (state_->server == nullptr || port == 0) {
    throw user_error("cannot listen at {}: {}", options.listen, bind_problem(state_->address));
  }
  state_->address.port = port;
  state_->admission.set_port(port);
}

Server::~Server() {
  stop();
}

std::string Server::address() const {
  return to_string(state_->address);
}

bool Server::send(SessionId session, std::string frame) {
  return state_->sessions.send(session, std::move(frame));
}

void Server::close(SessionId session, const std::string& why) {
  state_->sessions.close(session, why);
}

void Server::stop() {
  if (state_->server == nullptr) return;
  state_->sessions.stop();
  state_->transfers.stop();
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  state_->server->Wait();
  state_->server.reset();
}

const TrafficCounters& Server::traffic() const {
  return state_->traffic;
}

}  // namespace atl::wire
