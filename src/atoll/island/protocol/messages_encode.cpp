#include "atoll/base/error.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/messages_check.h"
#include "island/protocol/messages.pb.h"

namespace atl::island {

namespace {

// put(x, to): protocol.h to messages.proto.

std::string reason(const std::string& why) {
  return why.size() <= kMaxReason ? why : why.substr(0, kMaxReason - 3) + "...";
}

void put(const StateHash& x, proto::Hash* to) {
  to->set_high(x.high);
  to->set_low(x.low);
}

void put(const BatchRange& x, proto::Range* to) {
  to->set_begin(x.begin);
  to->set_end(x.end);
}

void put(const Stamp& x, proto::Stamp* to) {
  to->set_fence(x.fence);
  to->set_view(x.view);
  to->set_outer_step(x.outer_step);
  to->set_attempt(x.attempt);
  to->set_sender(x.sender);
  to->set_sequence(x.sequence);
}

void put(const RunIdentity& x, proto::Identity* to) {
  to->set_run(x.run);
  to->set_version(x.version);
  to->set_model(x.model);
  to->set_tokenizer(x.tokenizer);
  to->set_data(x.data);
  to->set_settings(x.settings);
}

void put(const RoundSchedule& x, proto::Schedule* to) {
  to->set_inner_steps(x.inner_steps);
  to->set_overlap(x.overlap);
  to->set_codec(x.codec);
  to->set_outer_lr(x.outer_lr);
  to->set_predicted_seconds(x.predicted_seconds);
}

void put(const PolicyPlan& x, proto::Policy* to) {
  to->set_policy(x.policy);
  put(x.base, to->mutable_base());
  to->set_min_inner_steps(x.min_inner_steps);
  to->set_max_inner_steps(x.max_inner_steps);
  to->set_may_overlap(x.may_overlap);
  to->set_may_change_codec(x.may_change_codec);
  to->set_may_change_lr(x.may_change_lr);
  to->set_qsr_alpha(x.qsr_alpha);
  to->set_round_bytes(x.round_bytes);
  to->set_day_bytes(x.day_bytes);
  to->set_parameters(x.parameters);
  to->set_fragments(x.fragments);
}

void put(const RunPlan& x, proto::Plan* to) {
  to->set_num_fragments(x.num_fragments);
  to->set_inner_steps(x.inner_steps);
  to->set_total_batches(x.total_batches);
  to->set_min_islands(x.min_islands);
  to->set_quorum(x.quorum);
  to->set_grace_seconds(x.grace_seconds);
  to->set_is_private(x.is_private);
  for (const std::uint64_t bytes : x.state_sizes) to->add_state_sizes()->set_bytes(bytes);
  put(x.policy, to->mutable_policy());
  to->set_is_async(x.is_async);
  to->set_is_gossip(x.is_gossip);
}

void put(const Source& x, proto::Source* to) {
  to->set_island(x.island);
  to->set_address(x.address);
}

void put(const Participant& x, proto::Participant* to) {
  to->set_island(x.island);
  to->set_address(x.address);
  to->set_weight(x.weight);
  to->set_tokens(x.tokens);
}

void put(const View::MemberInfo& x, proto::Member* to) {
  to->set_island(x.island);
  to->set_name(x.name);
  to->set_address(x.address);
  to->set_state(x.state);
  to->set_peer_token(x.peer_token);
}

void put(const LinkMeasurement& x, proto::Link* to) {
  to->set_island(x.island);
  to->set_bytes_per_second(x.bytes_per_second);
  to->set_round_trip_seconds(x.round_trip_seconds);
}

template <typename T, typename To>
void put_all(const std::vector<T>& values, To* to) {
  for (const T& value : values) put(value, to->Add());
}

void put(const Join& x, proto::Join* to) {
  to->set_name(x.name);
  put(x.identity, to->mutable_identity());
  put(x.plan, to->mutable_plan());
  to->set_address(x.address);
  to->set_outer_step(x.outer_step);
  put_all(x.hashes, to->mutable_hashes());
  put_all(x.holds, to->mutable_holds());
  to->set_relay_token(x.relay_token);
  to->set_peer_token(x.peer_token);
  put(x.prepared, to->mutable_prepared());
}

void put(const Synced& x, proto::Synced* to) {
  to->set_outer_step(x.outer_step);
  to->set_answers(x.answers);
  put_all(x.hashes, to->mutable_hashes());
  put_all(x.holds, to->mutable_holds());
}

void put(const Heartbeat& x, proto::Heartbeat* to) {
  to->set_inner_steps(x.inner_steps);
  to->set_batches_per_second(x.batches_per_second);
  to->set_sent(x.sent);
  for (const IslandId island : x.heard) to->add_heard(island);
}

void put(const Measurements& x, proto::Measurements* to) {
  to->set_step_seconds(x.step_seconds);
  to->set_learning_rate(x.learning_rate);
  to->set_exchange_seconds(x.exchange_seconds);
  to->set_codec_bytes_per_second(x.codec_bytes_per_second);
  to->set_mean_norm(x.mean_norm);
  put_all(x.links, to->mutable_links());
}

void put(const Ready& x, proto::Ready* to) {
  put(x.base_hash, to->mutable_base_hash());
  to->set_tokens(x.tokens);
  put_all(x.consumed, to->mutable_consumed());
  to->set_norm(x.norm);
  to->set_is_finite(x.is_finite);
  to->set_loss(x.loss);
  to->set_encoded_bytes(x.encoded_bytes);
  to->set_chunk_bytes(x.chunk_bytes);
  to->set_codec(x.codec);
  put(x.measured, to->mutable_measured());
}

void put(const ReduceFailed& x, proto::ReduceFailed* to) {
  for (const IslandId island : x.unreachable) to->add_unreachable(island);
  to->set_why(reason(x.why));
}

void put(const Prepared& x, proto::Prepared* to) {
  put(x.hash, to->mutable_hash());
}

void put(const Leave& x, proto::Leave* to) {
  to->set_why(reason(x.why));
}

void put(const Welcome& x, proto::Welcome* to) {
  to->set_island(x.island);
  to->set_outer_step(x.outer_step);
  put_all(x.hashes, to->mutable_hashes());
  to->set_must_sync(x.must_sync);
  to->set_contributed(x.contributed);
  put(x.schedule, to->mutable_schedule());
  put_all(x.sources, to->mutable_sources());
  put_all(x.holds, to->mutable_holds());
}

void put(const Refused& x, proto::Refused* to) {
  to->set_why(reason(x.why));
  to->set_is_final(x.is_final);
}

void put(const Lease& x, proto::Lease* to) {
  put_all(x.ranges, to->mutable_ranges());
  to->set_inner_steps(x.inner_steps);
  to->set_round_begin(x.round_begin);
  to->set_round_batches(x.round_batches);
}

void put(const Reduce& x, proto::Reduce* to) {
  to->set_fragment(x.fragment);
  put_all(x.participants, to->mutable_participants());
  to->set_is_star(x.is_star);
  to->set_arrivals(x.arrivals);
  put(x.schedule, to->mutable_schedule());
}

void put(const AbandonReduce& x, proto::AbandonReduce* to) {
  to->set_why(reason(x.why));
}

void put(const Commit& x, proto::Commit* to) {
  put(x.next, to->mutable_next());
  to->set_fragment(x.fragment);
  put(x.hash, to->mutable_hash());
  put_all(x.participants, to->mutable_participants());
}

void put(const Dropped& x, proto::Dropped* to) {
  to->set_why(reason(x.why));
}

void put(const Resync& x, proto::Resync* to) {
  to->set_outer_step(x.outer_step);
  put_all(x.hashes, to->mutable_hashes());
  put_all(x.sources, to->mutable_sources());
  to->set_why(reason(x.why));
  to->set_drops_work(x.drops_work);
  to->set_contributed(x.contributed);
  put(x.schedule, to->mutable_schedule());
}

void put(const PutState& x, proto::PutState* to) {
  put_all(x.hashes, to->mutable_hashes());
}

void put(const View& x, proto::View* to) {
  put_all(x.members, to->mutable_members());
}

void put(const Finish& x, proto::Finish* to) {
  to->set_why(reason(x.why));
  to->set_is_done(x.is_done);
}

struct BodyPutter {
  proto::FromIsland* from = nullptr;
  proto::ToIsland* to = nullptr;

  void operator()(const Join& x) const { put(x, from->mutable_join()); }
  void operator()(const Synced& x) const { put(x, from->mutable_synced()); }
  void operator()(const Heartbeat& x) const { put(x, from->mutable_heartbeat()); }
  void operator()(const Ready& x) const { put(x, from->mutable_ready()); }
  void operator()(const ReduceFailed& x) const { put(x, from->mutable_reduce_failed()); }
  void operator()(const Prepared& x) const { put(x, from->mutable_prepared()); }
  void operator()(const Leave& x) const { put(x, from->mutable_leave()); }

  void operator()(const Welcome& x) const { put(x, to->mutable_welcome()); }
  void operator()(const Refused& x) const { put(x, to->mutable_refused()); }
  void operator()(const Lease& x) const { put(x, to->mutable_lease()); }
  void operator()(const Reduce& x) const { put(x, to->mutable_reduce()); }
  void operator()(const AbandonReduce& x) const { put(x, to->mutable_abandon_reduce()); }
  void operator()(const Commit& x) const { put(x, to->mutable_commit()); }
  void operator()(const Dropped& x) const { put(x, to->mutable_dropped()); }
  void operator()(const Resync& x) const { put(x, to->mutable_resync()); }
  void operator()(const View& x) const { put(x, to->mutable_view()); }
  void operator()(const Finish& x) const { put(x, to->mutable_finish()); }
  void operator()(const PutState& x) const { put(x, to->mutable_put_state()); }
};

std::string serialize(const google::protobuf::Message& message) {
  const std::string fault = find_fault(message);
  if (!fault.empty()) throw user_error("a message cannot be sent: {}", fault);
  std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxMessageBytes) {
    throw user_error("a message cannot be sent: it has {} bytes, {} are allowed", bytes.size(),
                     kMaxMessageBytes);
  }
  return bytes;
}

}  // namespace

std::string encode(const MessageFromIsland& message) {
  proto::FromIsland to;
  put(message.stamp, to.mutable_stamp());
  std::visit([&](const auto& body) { BodyPutter{.from = &to}(body); }, message.body);
  return serialize(to);
}

std::string encode(const MessageToIsland& message) {
  proto::ToIsland to;
  put(message.stamp, to.mutable_stamp());
  std::visit([&](const auto& body) { BodyPutter{.to = &to}(body); }, message.body);
  return serialize(to);
}

}  // namespace atl::island
