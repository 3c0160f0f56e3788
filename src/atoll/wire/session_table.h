#pragma once

// The sessions of a server. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "atoll/wire/admission.h"
#include "atoll/wire/server_options.h"
#include "atoll/wire/session_handler.h"
#include "wire/wire.grpc.pb.h"

namespace atl::wire {

class SessionStream;

/// What a stream of frames is to gRPC.
using SessionReactor = grpc::ServerBidiReactor<proto::Frame, proto::Frame>;

/// All streams of frames that are open, with a thread that ends those that must not go on.
class SessionTable {
 public:
  SessionTable(const ServerOptions& options, SessionHandler* handler, Admission& admission,
               TrafficCounters& traffic);
  ~SessionTable();

  /// Answers a client's call.
  SessionReactor* accept(grpc::CallbackServerContext& context);
  /// As in Server.
  bool send(SessionId session, std::string frame);
  void close(SessionId session, const std::string& why);
  /// Tells all clients that the server stops, and takes no more.
  void stop();

 private:
  friend class SessionStream;
  void sweep();
  void sweep_once();

  const ServerOptions& options_;
  SessionHandler* handler_;
  Admission& admission_;
  TrafficCounters& traffic_;
  CallLimit limit_;
  std::mutex mutex_;  // of the streams' queues too
  std::condition_variable stopped_;
  std::map<SessionId, SessionStream*> streams_;  // each deletes itself when gRPC is done with it
  SessionId last_ = 0;
  bool is_stopping_ = false;
  std::thread sweeper_;
};

}  // namespace atl::wire
