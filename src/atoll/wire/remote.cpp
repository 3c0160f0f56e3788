#include "atoll/wire/remote.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/wire/lanes.h"

namespace atl::wire {

namespace {

// The server's answer to a call that has just begun: "" or why it is not to be trusted.
std::string refuse(const Lanes& lanes, Lane& lane) {
  if (!Client::is_greeted(lane.context)) return "";  // the status will tell
  return lanes.client().objection(lane.context);
}

LaneEnd untrusted(std::string why) {
  return {.status = {grpc::StatusCode::UNAUTHENTICATED, why}, .why = why};
}

std::string chunk_problem(const Lanes& lanes, const Lane& lane, std::size_t position,
                          const proto::Chunk& chunk) {
  const std::string& data = chunk.data();
  if (position == lane.chunks.size()) return "a chunk came that was not asked for";
  const std::uint64_t expected = lane.chunks[position];
  if (chunk.index() != expected || data.size() != lanes.chunk_size(expected)) {
    return fmt::format("chunk {} came with {} bytes instead of chunk {} with {}", chunk.index(),
                       data.size(), expected, lanes.chunk_size(expected));
  }
  if (XXH3_64bits(data.data(), data.size()) != chunk.checksum()) {
    return fmt::format("chunk {} is damaged", expected);
  }
  return "";
}

LaneEnd fetch_lane(Lanes& lanes, Lane& lane, const Writer& write) {
  const Transfer& transfer = lanes.transfer();
  proto::FetchRequest request;
  request.set_key(transfer.key);
  request.mutable_chunks()->resize(lane.chunks.back() / 8 + 1);
  for (const std::uint64_t index : lane.chunks) {
    char& bits = (*request.mutable_chunks())[index / 8];
    bits = static_cast<char>(static_cast<unsigned char>(bits) | (1U << (index % 8)));
  }
  request.set_blob_bytes(transfer.bytes);
  request.set_chunk_bytes(transfer.chunk_bytes);
  lanes.client().introduce(lane.context);
  const auto reader = lane.stub->Fetch(&lane.context, request);  // returns when it is sent
  lanes.asked(lane);
  reader->WaitForInitialMetadata();
  if (std::string why = refuse(lanes, lane); !why.empty()) return untrusted(std::move(why));
  proto::Chunk chunk;
  std::size_t position = 0;
  LaneEnd end;
  while (reader->Read(&chunk)) {
    if (lanes.traffic() != nullptr) lanes.traffic()->received_bytes += chunk.data().size();
    const std::string problem = chunk_problem(lanes, lane, position, chunk);
    if (!problem.empty()) {
      end.is_damaged = true;
      end.why = fmt::format("{} from {}: {}", transfer.key, lanes.client().address(), problem);
      break;
    }
    write(chunk.index() * transfer.chunk_bytes, std::as_bytes(std::span(chunk.data())));
    lanes.done(chunk.index());
    ++position;
  }
  if (end.is_damaged) lane.context.TryCancel();
  end.status = reader->Finish();
  return end;
}

using PutStream = grpc::ClientReaderWriter<proto::Chunk, proto::PutAck>;

// Answers come in the order of the chunks, while those are still on their way.
void read_acks(Lanes& lanes, const Lane& lane, PutStream& stream) {
  proto::PutAck ack;
  std::size_t position = 0;
  while (stream.Read(&ack)) {
    if (position == lane.chunks.size() || ack.index() != lane.chunks[position]) continue;
    lanes.done(ack.index());
    ++position;
  }
}

void write_chunks(Lanes& lanes, Lane& lane, PutStream& stream, const Reader& read) {
  const Transfer& transfer = lanes.transfer();
  proto::Chunk chunk;
  for (const std::uint64_t index : lane.chunks) {
    std::string& data = *chunk.mutable_data();
    data.resize(lanes.chunk_size(index));
    read(index * transfer.chunk_bytes, std::as_writable_bytes(std::span(data)));
    chunk.set_index(index);
    chunk.set_checksum(XXH3_64bits(data.data(), data.size()));
    if (index == lane.chunks.front()) {
      chunk.set_key(transfer.key);
      chunk.set_blob_bytes(transfer.bytes);
      chunk.set_chunk_bytes(transfer.chunk_bytes);
    } else {
      chunk.clear_key();
    }
    if (!stream.Write(chunk)) return;
    if (lanes.traffic() != nullptr) lanes.traffic()->sent_bytes += data.size();
  }
  stream.WritesDone();
}

LaneEnd put_lane(Lanes& lanes, Lane& lane, const Reader& read) {
  lanes.client().introduce(lane.context);
  const auto stream = lane.stub->Put(&lane.context);
  stream->WaitForInitialMetadata();
  if (std::string why = refuse(lanes, lane); !why.empty()) return untrusted(std::move(why));
  std::exception_ptr error;
  {
    const std::jthread acks([&] { read_acks(lanes, lane, *stream); });
    try {
      write_chunks(lanes, lane, *stream, read);
    } catch (...) {
      error = std::current_exception();
      lane.context.TryCancel();
    }
  }
  const grpc::Status status = stream->Finish();
  if (error != nullptr) std::rethrow_exception(error);
  return {.status = status};
}

}  // namespace

const char* to_string(TransferEnd end) {
  switch (end) {
    case TransferEnd::kDone:
      return "done";
    case TransferEnd::kUnreachable:
      return "unreachable";
    case TransferEnd::kGone:
      return "gone";
    case TransferEnd::kRefused:
      return "refused";
    case TransferEnd::kCancelled:
      return "cancelled";
    case TransferEnd::kDamaged:
      return "damaged";
  }
  return "?";
}

struct Remote::State {
  explicit State(const RemoteOptions& options)
      : client(options.address, options.identity, options.secret, options.server_name,
               options.connect_timeout_ms, options.keepalive, kMaxChunkBytes),
        traffic(options.traffic),
        pass(options.pass),
        bytes_per_stream(options.bytes_per_stream) {
    ATOLL_CHECK(pass.size() <= kMaxPassBytes, "a pass of {} bytes", pass.size());
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

  TransferResult run(const Transfer& transfer, std::vector<bool>& done,
                     const std::function<LaneEnd(Lanes&, Lane&)>& body) {
    Lanes lanes(transfer, done, client, traffic);
    if (lanes.num_missing() == 0) return {};
    const Stubs all = connect();
    if (all.empty()) {
      const ProbeResult found = client.explain(
          {grpc::StatusCode::UNAVAILABLE, "the host cannot be looked up"}, transfer.cancel);
      return {TransferEnd::kUnreachable, found.why};
    }
    const std::uint64_t missing = lanes.num_missing() * transfer.chunk_bytes;
    const std::uint64_t worth = std::min<std::uint64_t>(
        all.size(), missing / bytes_per_stream + (missing > bytes_per_stream / 4 ? 2 : 1));
    const Stubs used(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(worth));
    const TransferResult result = lanes.run(used, [&](Lane& lane) {
      if (!pass.empty()) lane.context.AddMetadata(kPassKey, pass);
      return body(lanes, lane);
    });
    if (result.end == TransferEnd::kUnreachable) forget(all);
    return result;
  }

  Client client;
  Traffic* traffic;
  std::string pass;
  std::uint64_t bytes_per_stream;
  int num_streams = 0;
  std::mutex mutex;
  Stubs stubs;
};

Remote::Remote(const RemoteOptions& options) : state_(std::make_unique<State>(options)) {}
Remote::~Remote() = default;

TransferResult Remote::fetch(const Transfer& transfer, std::vector<bool>& done,
                             const Writer& write) {
  return state_->run(transfer, done,
                     [&](Lanes& lanes, Lane& lane) { return fetch_lane(lanes, lane, write); });
}

TransferResult Remote::put(const Transfer& transfer, std::vector<bool>& done, const Reader& read) {
  return state_->run(transfer, done,
                     [&](Lanes& lanes, Lane& lane) { return put_lane(lanes, lane, read); });
}

}  // namespace atl::wire
