#pragma once

// A server's side of blobs. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "atoll/wire/admission.h"
#include "atoll/wire/blob_store.h"
#include "atoll/wire/blob_table.h"
#include "atoll/wire/server_options.h"
#include "wire/wire.grpc.pb.h"

namespace atl::wire {

/// Answers Fetch and Put, each call in a thread of its own for as long as it takes.
class BlobService {
 public:
  BlobService(const ServerOptions& options, BlobStore* blobs, Admission& admission,
              TrafficCounters& traffic)
      : blobs_(blobs != nullptr ? &blobs->table() : nullptr),
        admission_(admission),
        traffic_(traffic),
        limit_("transfers", options.max_transfers, options.max_transfers_per_peer) {}

  grpc::Status fetch(grpc::ServerContext& context, const proto::FetchRequest& request,
                     grpc::ServerWriter<proto::Chunk>& out);
  grpc::Status put(grpc::ServerContext& context,
                   grpc::ServerReaderWriter<proto::PutAck, proto::Chunk>& stream);
  /// Ends what is under way at the next chunk.
  void stop() { is_stopping_ = true; }

 private:
  /// Admits, counts and runs a call.
  template <typename Call>
  grpc::Status serve(grpc::ServerContext& context, const Call& call);
  // Who calls, and as whom it is served.
  struct Requester {
    CheckedPeer checked;
    Caller caller;
    std::string peer;
  };
  grpc::Status objection(const Requester& requester);

  BlobTable* blobs_;
  Admission& admission_;
  TrafficCounters& traffic_;
  CallLimit limit_;
  std::atomic<bool> is_stopping_{false};
};

}  // namespace atl::wire
