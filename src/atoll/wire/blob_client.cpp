#include "atoll/wire/blob_client.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/wire/parallel_calls.h"

namespace atl::wire {

namespace {

// Reads the server's answer to a call that has just begun: why the server is not to be trusted, or
// "".
std::string refuse(const ParallelCalls& calls, ParallelCall& call) {
  if (!ClientConnector::is_greeted(call.context)) return "";  // the status will tell
  return calls.client().objection(call.context);
}

CallEnd untrusted(std::string why) {
  return {.status = {grpc::StatusCode::UNAUTHENTICATED, why}, .why = why};
}

std::string chunk_problem(const ParallelCalls& calls, const ParallelCall& call,
                          std::size_t position, const proto::Chunk& chunk) {
  const std::string& data = chunk.data();
  if (position == call.chunks.size()) return "a chunk came that was not asked for";
  const std::uint64_t expected = call.chunks[position];
  if (chunk.index() != expected || data.size() != calls.chunk_size(expected)) {
    return fmt::format("chunk {} came with {} bytes instead of chunk {} with {}", chunk.index(),
                       data.size(), expected, calls.chunk_size(expected));
  }
  if (XXH3_64bits(data.data(), data.size()) != chunk.checksum()) {
    return fmt::format("chunk {} is damaged", expected);
  }
  return "";
}

CallEnd fetch_lane(ParallelCalls& calls, ParallelCall& call, const Writer& write) {
  const BlobTransfer& transfer = calls.transfer();
  proto::FetchRequest request;
  request.set_key(transfer.key);
  request.mutable_chunks()->resize(call.chunks.back() / 8 + 1);
  for (const std::uint64_t index : call.chunks) {
    char& bits = (*request.mutable_chunks())[index / 8];
    bits = static_cast<char>(static_cast<unsigned char>(bits) | (1U << (index % 8)));
  }
  request.set_blob_bytes(transfer.bytes);
  request.set_chunk_bytes(transfer.chunk_bytes);
  calls.client().introduce(call.context);
  const auto reader = call.stub->Fetch(&call.context, request);  // returns when it is sent
  calls.asked(call);
  reader->WaitForInitialMetadata();
  if (std::string why = refuse(calls, call); !why.empty()) return untrusted(std::move(why));
  proto::Chunk chunk;
  std::size_t position = 0;
  CallEnd end;
  while (reader->Read(&chunk)) {
    if (calls.traffic() != nullptr) calls.traffic()->received_bytes += chunk.data().size();
    const std::string problem = chunk_problem(calls, call, position, chunk);
    if (!problem.empty()) {
      end.is_damaged = true;
      end.why = fmt::format("{} from {}: {}", transfer.key, calls.client().address(), problem);
      break;
    }
    write(chunk.index() * transfer.chunk_bytes, std::as_bytes(std::span(chunk.data())));
    calls.done(chunk.index());
    ++position;
  }
  if (end.is_damaged) call.context.TryCancel();
  end.status = reader->Finish();
  return end;
}

using PutStream = grpc::ClientReaderWriter<proto::Chunk, proto::PutAck>;

// Answers come in the order of the chunks, while those are still on their way.
void read_acks(ParallelCalls& calls, const ParallelCall& call, PutStream& stream) {
  proto::PutAck ack;
  std::size_t position = 0;
  while (stream.Read(&ack)) {
    if (position == call.chunks.size() || ack.index() != call.chunks[position]) continue;
    calls.done(ack.index());
    ++position;
  }
}

void write_chunks(ParallelCalls& calls, ParallelCall& call, PutStream& stream, const Reader& read) {
  const BlobTransfer& transfer = calls.transfer();
  proto::Chunk chunk;
  for (const std::uint64_t index : call.chunks) {
    std::string& data = *chunk.mutable_data();
    data.resize(calls.chunk_size(index));
    read(index * transfer.chunk_bytes, std::as_writable_bytes(std::span(data)));
    chunk.set_index(index);
    chunk.set_checksum(XXH3_64bits(data.data(), data.size()));
    if (index == call.chunks.front()) {
      chunk.set_key(transfer.key);
      chunk.set_blob_bytes(transfer.bytes);
      chunk.set_chunk_bytes(transfer.chunk_bytes);
    } else {
      chunk.clear_key();
    }
    if (!stream.Write(chunk)) return;
    if (calls.traffic() != nullptr) calls.traffic()->sent_bytes += data.size();
  }
  stream.WritesDone();
}

CallEnd put_lane(ParallelCalls& calls, ParallelCall& call, const Reader& read) {
  calls.client().introduce(call.context);
  const auto stream = call.stub->Put(&call.context);
  stream->WaitForInitialMetadata();
  if (std::string why = refuse(calls, call); !why.empty()) return untrusted(std::move(why));
  std::exception_ptr error;
  {
    const std::jthread acks([&] { read_acks(calls, call, *stream); });
    try {
      write_chunks(calls, call, *stream, read);
    } catch (...) {
      error = std::current_exception();
      call.context.TryCancel();
    }
  }
  const grpc::Status status = stream->Finish();
  if (error != nullptr) std::rethrow_exception(error);
  return {.status = status};
}

}  // namespace

struct BlobClient::State {
  explicit State(const BlobClientOptions& options)
      : client(options.address, options.identity, options.secret, options.server_name,
               options.connect_timeout_ms, options.keepalive, kMaxChunkBytes),
        traffic(options.traffic),
        access_token(options.access_token),
        bytes_per_stream(options.bytes_per_stream) {
    ATOLL_CHECK(access_token.size() <= kMaxAccessTokenBytes, "an access token of {} bytes",
                access_token.size());
    ATOLL_CHECK(options.streams >= 1 && options.streams <= 64, "{} streams", options.streams);
    num_streams = options.streams;
    ATOLL_CHECK(options.bytes_per_stream > 0, "0 bytes a stream");
  }

  // The connections, kept from the last transfer; empty when there can be none.
  Stubs connect() {
    const std::lock_guard lock(mutex);
    while (std::ssize(stubs) < num_streams) {
      const std::shared_ptr<grpc::Channel> channel = client.open();
      if (channel == nullptr) return {};
      stubs.push_back(proto::Wire::NewStub(channel));
    }
    return stubs;
  }

  // The host may have another address by now, and gRPC would wait before it tries again.
  void forget(const Stubs& broken) {
    const std::lock_guard lock(mutex);
    if (stubs == broken) stubs.clear();
  }

  TransferResult run(const BlobTransfer& transfer, std::vector<bool>& done,
                     const std::function<CallEnd(ParallelCalls&, ParallelCall&)>& body) {
    ParallelCalls calls(transfer, done, client, traffic);
    if (calls.num_missing() == 0) return {};
    const Stubs all = connect();
    if (all.empty()) {
      const ProbeResult found = client.explain(
          {grpc::StatusCode::UNAVAILABLE, "the host cannot be looked up"}, transfer.cancel);
      return {TransferEnd::kUnreachable, found.why};
    }
    const std::uint64_t missing = calls.num_missing() * transfer.chunk_bytes;
    const std::uint64_t worth = std::min<std::uint64_t>(
        all.size(), missing / bytes_per_stream + (missing > bytes_per_stream / 4 ? 2 : 1));
    const Stubs used(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(worth));
    TransferResult result = calls.run(used, [&](ParallelCall& call) {
      if (!access_token.empty()) call.context.AddMetadata(kAccessTokenKey, access_token);
      return body(calls, call);
    });
    if (result.end == TransferEnd::kUnreachable) forget(all);
    return result;
  }

  ClientConnector client;
  TrafficCounters* traffic;
  std::string access_token;
  std::uint64_t bytes_per_stream;
  int num_streams = 0;
  std::mutex mutex;
  Stubs stubs;
};

BlobClient::BlobClient(const BlobClientOptions& options)
    : state_(std::make_unique<State>(options)) {}
BlobClient::~BlobClient() = default;

TransferResult BlobClient::fetch(const BlobTransfer& transfer, std::vector<bool>& done,
                                 const Writer& write) {
  return state_->run(transfer, done, [&](ParallelCalls& calls, ParallelCall& call) {
    return fetch_lane(calls, call, write);
  });
}

TransferResult BlobClient::put(const BlobTransfer& transfer, std::vector<bool>& done,
                               const Reader& read) {
  return state_->run(transfer, done, [&](ParallelCalls& calls, ParallelCall& call) {
    return put_lane(calls, call, read);
  });
}

}  // namespace atl::wire
