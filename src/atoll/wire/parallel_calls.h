#pragma once

// What fetching and putting have in common: the missing chunks, dealt out to several calls that run
// side by side. Only for the .cpp files here.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "atoll/wire/blob_transfer.h"
#include "atoll/wire/blobs.h"
#include "atoll/wire/client_connector.h"
#include "wire/wire.grpc.pb.h"

namespace atl::wire {

/// A connection each; shared by the transfers that use them at a time.
using Stubs = std::vector<std::shared_ptr<proto::Wire::Stub>>;

/// One call and its chunks.
struct ParallelCall {
  grpc::ClientContext context;
  std::shared_ptr<proto::Wire::Stub> stub;
  std::vector<std::uint64_t> chunks;
  bool has_asked = false;  ///< it has sent its request, or ended before that
};

/// How a call ended; `status` counts when it is not OK.
struct CallEnd {
  grpc::Status status;
  bool is_damaged = false;
  std::string why;  ///< if it was ended on this side
};

/// One transfer. The calls' threads call done() for each chunk.
class ParallelCalls {
 public:
  ParallelCalls(const BlobTransfer& transfer, std::vector<bool>& done,
                const ClientConnector& client, TrafficCounters* traffic);

  std::uint64_t num_missing() const { return missing_.size(); }

  /// Runs `body` in a thread for each stub, as many as there are chunks for, and says how it went.
  TransferResult run(const Stubs& stubs, const std::function<CallEnd(ParallelCall&)>& body);

  const BlobTransfer& transfer() const { return transfer_; }
  const ClientConnector& client() const { return client_; }
  TrafficCounters* traffic() const { return traffic_; }
  std::size_t chunk_size(std::uint64_t chunk) const;
  /// To be called when the call has sent its request.
  void asked(ParallelCall& call);
  void done(std::uint64_t chunk);

 private:
  void run_call(ParallelCall& call, const std::function<CallEnd(ParallelCall&)>& body);
  void wait();
  void cancel_all();
  TransferResult result();
  TransferResult failure();

  const BlobTransfer& transfer_;
  std::vector<bool>& done_;
  const ClientConnector& client_;
  TrafficCounters* traffic_;
  std::vector<std::uint64_t> missing_;
  std::list<ParallelCall> calls_;  // a context cannot move

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t num_running_ = 0;
  std::size_t num_to_ask_ = 0;
  std::uint64_t moved_bytes_ = 0;
  std::uint64_t num_done_ = 0;
  std::chrono::steady_clock::time_point progress_;
  bool is_cancelled_ = false;
  bool is_stalled_ = false;
  std::exception_ptr error_;
  std::vector<CallEnd> failures_;
};

}  // namespace atl::wire
