#include "atoll/wire/blob_service.h"

#include <xxhash.h>

#include "atoll/base/log.h"
#include "atoll/wire/tls.h"

namespace atl::wire {

namespace {

using grpc::Status;
using grpc::StatusCode;

Status to_status(const BlobReply& reply) {
  switch (reply.answer) {
    case BlobAnswer::kOk:
      return Status::OK;
    case BlobAnswer::kGone:
      return {StatusCode::NOT_FOUND, reply.why};
    case BlobAnswer::kRefused:
      return {StatusCode::FAILED_PRECONDITION, reply.why};
    case BlobAnswer::kCancelled:
      return {StatusCode::UNAVAILABLE, reply.why};
    case BlobAnswer::kFailed:
      log::error("a transfer failed: {}", reply.why);
      return {StatusCode::ABORTED, reply.why};
  }
  return {StatusCode::INTERNAL, "no such answer"};
}

// The access token that the call shows beside its certificate; "": none, or one that is too long.
std::string access_token_of(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kAccessTokenKey);
  if (found == metadata.end() || found->second.size() > kMaxAccessTokenBytes) return "";
  return {found->second.data(), found->second.size()};
}

Status not_authenticated(const Caller& caller) {
  return {StatusCode::PERMISSION_DENIED,
          fmt::format("{} has not joined the run here, or not by this process",
                      caller.name.empty() ? "this caller" : caller.name)};
}

}  // namespace

grpc::Status BlobService::objection(const Requester& requester) {
  if (is_stopping_) return {StatusCode::UNAVAILABLE, "the server stops"};
  const std::string objection = admission_.objection(requester.checked);
  if (!objection.empty()) return {StatusCode::UNAUTHENTICATED, objection};
  return blobs_->authenticate(requester.caller) == requester.peer
             ? Status::OK
             : not_authenticated(requester.caller);
}

template <typename Call>
grpc::Status BlobService::serve(grpc::ServerContext& context, const Call& call) {
  CheckedPeer checked;
  Status status = admission_.admit(context, checked);
  if (!status.ok()) return status;
  if (blobs_ == nullptr) return {StatusCode::UNIMPLEMENTED, "there are no blobs at this address"};
  Caller caller = {checked.peer.name, access_token_of(context)};
  const std::optional<std::string> peer = blobs_->authenticate(caller);
  if (!peer) return not_authenticated(caller);
  status = limit_.enter(checked.peer.name);
  if (!status.ok()) return status;
  context.AddInitialMetadata(kGreetingKey, kGreeting);
  const Requester requester = {std::move(checked), std::move(caller), *peer};
  status = call(requester);
  limit_.leave(requester.checked.peer.name);
  return status;
}

grpc::Status BlobService::fetch(grpc::ServerContext& context, const proto::FetchRequest& request,
                                grpc::ServerWriter<proto::Chunk>& out) {
  return serve(context, [&](const Requester& requester) -> Status {
    const BlobCall call{request.key(), request.blob_bytes(), request.chunk_bytes(), requester.peer};
    BlobReply reply = blobs_->check_fetch(call);
    if (!reply.ok()) return to_status(reply);
    out.SendInitialMetadata();
    // A wait also ends when its caller has gone.
    const auto is_cancelled = [&] { return context.IsCancelled() || !objection(requester).ok(); };
    proto::Chunk chunk;
    for (std::uint64_t index = 0; index / 8 < request.chunks().size(); ++index) {
      const auto bits = static_cast<unsigned char>(request.chunks()[index / 8]);
      if (((bits >> (index % 8)) & 1U) == 0) continue;
      reply = blobs_->read(call, index, is_cancelled, *chunk.mutable_data());
      Status status = objection(requester);
      if (!status.ok()) return status;
      if (!reply.ok()) return to_status(reply);
      chunk.set_index(index);
      chunk.set_checksum(XXH3_64bits(chunk.data().data(), chunk.data().size()));
      if (!out.Write(chunk)) return {StatusCode::UNAVAILABLE, "the connection broke"};
      traffic_.sent_bytes += chunk.data().size();
    }
    return Status::OK;
  });
}

grpc::Status BlobService::put(grpc::ServerContext& context,
                              grpc::ServerReaderWriter<proto::PutAck, proto::Chunk>& stream) {
  return serve(context, [&](const Requester& requester) -> Status {
    stream.SendInitialMetadata();
    proto::Chunk chunk;
    if (!stream.Read(&chunk)) return {StatusCode::INVALID_ARGUMENT, "a Put without a chunk"};
    const BlobCall call{chunk.key(), chunk.blob_bytes(), chunk.chunk_bytes(), requester.peer};
    BlobReply reply = blobs_->check_put(call);
    if (!reply.ok()) return to_status(reply);
    do {
      Status status = objection(requester);
      if (!status.ok()) return status;
      const std::string& data = chunk.data();
      if (XXH3_64bits(data.data(), data.size()) != chunk.checksum()) {
        return {StatusCode::DATA_LOSS,
                fmt::format("chunk {} of {} is damaged", chunk.index(), call.key)};
      }
      traffic_.received_bytes += data.size();
      reply = blobs_->write(call, chunk.index(), std::as_bytes(std::span(data)));
      if (!reply.ok()) return to_status(reply);
      proto::PutAck ack;
      ack.set_index(chunk.index());
      if (!stream.Write(ack)) return {StatusCode::UNAVAILABLE, "the connection broke"};
    } while (stream.Read(&chunk));
    return Status::OK;
  });
}

}  // namespace atl::wire
