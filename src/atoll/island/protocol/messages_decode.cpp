#include <type_traits>

#include "atoll/base/error.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/messages_check.h"
#include "island/protocol/messages.pb.h"

namespace atl::island {

namespace {

// get(x): messages.proto to protocol.h, of messages in which no fault was found.

StateHash get(const proto::Hash& x) {
  return {.high = x.high(), .low = x.low()};
}

BatchRange get(const proto::Range& x) {
  return {.begin = x.begin(), .end = x.end()};
}

Stamp get(const proto::Stamp& x) {
  return {.fence = x.fence(),
          .view = x.view(),
          .outer_step = x.outer_step(),
          .attempt = x.attempt(),
          .sender = x.sender(),
          .sequence = x.sequence()};
}

RunIdentity get(const proto::Identity& x) {
  return {.run = x.run(),
          .version = x.version(),
          .model = x.model(),
          .tokenizer = x.tokenizer(),
          .data = x.data(),
          .settings = x.settings()};
}

RoundSchedule get(const proto::Schedule& x) {
  return {.inner_steps = x.inner_steps(),
          .overlap = x.overlap(),
          .codec = x.codec(),
          .outer_lr = x.outer_lr(),
          .predicted_seconds = x.predicted_seconds()};
}

PolicyPlan get(const proto::Policy& x) {
  return {.policy = x.policy(),
          .base = get(x.base()),
          .min_inner_steps = x.min_inner_steps(),
          .max_inner_steps = x.max_inner_steps(),
          .may_overlap = x.may_overlap(),
          .may_change_codec = x.may_change_codec(),
          .may_change_lr = x.may_change_lr(),
          .qsr_alpha = x.qsr_alpha(),
          .round_bytes = x.round_bytes(),
          .day_bytes = x.day_bytes(),
          .parameters = x.parameters(),
          .fragments = x.fragments()};
}

RunPlan get(const proto::Plan& x) {
  std::vector<std::uint64_t> state_sizes;
  for (const proto::StateSize& size : x.state_sizes()) state_sizes.push_back(size.bytes());
  return {.num_fragments = x.num_fragments(),
          .inner_steps = x.inner_steps(),
          .total_batches = x.total_batches(),
          .min_islands = x.min_islands(),
          .quorum = x.quorum(),
          .grace_seconds = x.grace_seconds(),
          .is_private = x.is_private(),
          .state_sizes = std::move(state_sizes),
          .policy = get(x.policy()),
          .is_async = x.is_async(),
          .is_gossip = x.is_gossip()};
}

Source get(const proto::Source& x) {
  return {.island = x.island(), .address = x.address()};
}

Participant get(const proto::Participant& x) {
  return {.island = x.island(), .address = x.address(), .weight = x.weight(), .tokens = x.tokens()};
}

View::MemberInfo get(const proto::Member& x) {
  return {.island = x.island(),
          .name = x.name(),
          .address = x.address(),
          .state = x.state(),
          .peer_token = x.peer_token()};
}

LinkMeasurement get(const proto::Link& x) {
  return {.island = x.island(),
          .bytes_per_second = x.bytes_per_second(),
          .round_trip_seconds = x.round_trip_seconds()};
}

template <typename Values>
auto get_all(const Values& values) {
  std::vector<std::decay_t<decltype(get(*values.begin()))>> all;
  all.reserve(static_cast<std::size_t>(values.size()));
  for (const auto& value : values) all.push_back(get(value));
  return all;
}

Join get(const proto::Join& x) {
  return {.name = x.name(),
          .identity = get(x.identity()),
          .plan = get(x.plan()),
          .address = x.address(),
          .outer_step = x.outer_step(),
          .hashes = get_all(x.hashes()),
          .holds = get_all(x.holds()),
          .relay_token = x.relay_token(),
          .peer_token = x.peer_token(),
          .prepared = get(x.prepared())};
}

Synced get(const proto::Synced& x) {
  return {.outer_step = x.outer_step(),
          .hashes = get_all(x.hashes()),
          .holds = get_all(x.holds()),
          .answers = x.answers()};
}

Heartbeat get(const proto::Heartbeat& x) {
  return {.inner_steps = x.inner_steps(),
          .batches_per_second = x.batches_per_second(),
          .sent = x.sent(),
          .heard = {x.heard().begin(), x.heard().end()}};
}

Measurements get(const proto::Measurements& x) {
  return {.step_seconds = x.step_seconds(),
          .learning_rate = x.learning_rate(),
          .exchange_seconds = x.exchange_seconds(),
          .codec_bytes_per_second = x.codec_bytes_per_second(),
          .mean_norm = x.mean_norm(),
          .links = get_all(x.links())};
}

Ready get(const proto::Ready& x) {
  return {.base_hash = get(x.base_hash()),
          .tokens = x.tokens(),
          .consumed = get_all(x.consumed()),
          .norm = x.norm(),
          .is_finite = x.is_finite(),
          .loss = x.loss(),
          .encoded_bytes = x.encoded_bytes(),
          .chunk_bytes = x.chunk_bytes(),
          .codec = x.codec(),
          .measured = get(x.measured())};
}

ReduceFailed get(const proto::ReduceFailed& x) {
  return {.unreachable = {x.unreachable().begin(), x.unreachable().end()}, .why = x.why()};
}

Prepared get(const proto::Prepared& x) {
  return {.hash = get(x.hash())};
}

Leave get(const proto::Leave& x) {
  return {.why = x.why()};
}

Welcome get(const proto::Welcome& x) {
  return {.island = x.island(),
          .outer_step = x.outer_step(),
          .hashes = get_all(x.hashes()),
          .must_sync = x.must_sync(),
          .sources = get_all(x.sources()),
          .holds = get_all(x.holds()),
          .contributed = x.contributed(),
          .schedule = get(x.schedule())};
}

Refused get(const proto::Refused& x) {
  return {.why = x.why(), .is_final = x.is_final()};
}

Lease get(const proto::Lease& x) {
  return {.ranges = get_all(x.ranges()),
          .inner_steps = x.inner_steps(),
          .round_begin = x.round_begin(),
          .round_batches = x.round_batches()};
}

Reduce get(const proto::Reduce& x) {
  return {.fragment = x.fragment(),
          .participants = get_all(x.participants()),
          .is_star = x.is_star(),
          .schedule = get(x.schedule()),
          .arrivals = x.arrivals()};
}

AbandonReduce get(const proto::AbandonReduce& x) {
  return {.why = x.why()};
}

Commit get(const proto::Commit& x) {
  return {.fragment = x.fragment(),
          .hash = get(x.hash()),
          .participants = get_all(x.participants()),
          .next = get(x.next())};
}

Dropped get(const proto::Dropped& x) {
  return {.why = x.why()};
}

Resync get(const proto::Resync& x) {
  return {.outer_step = x.outer_step(),
          .hashes = get_all(x.hashes()),
          .sources = get_all(x.sources()),
          .drops_work = x.drops_work(),
          .why = x.why(),
          .schedule = get(x.schedule()),
          .contributed = x.contributed()};
}

View get(const proto::View& x) {
  return {.members = get_all(x.members())};
}

PutState get(const proto::PutState& x) {
  return {.hashes = get_all(x.hashes())};
}

Finish get(const proto::Finish& x) {
  return {.why = x.why(), .is_done = x.is_done()};
}

FromIsland get_body(const proto::FromIsland& x) {
  switch (x.body_case()) {
    case proto::FromIsland::kJoin:
      return get(x.join());
    case proto::FromIsland::kSynced:
      return get(x.synced());
    case proto::FromIsland::kHeartbeat:
      return get(x.heartbeat());
    case proto::FromIsland::kReady:
      return get(x.ready());
    case proto::FromIsland::kReduceFailed:
      return get(x.reduce_failed());
    case proto::FromIsland::kPrepared:
      return get(x.prepared());
    case proto::FromIsland::kLeave:
      return get(x.leave());
    case proto::FromIsland::BODY_NOT_SET:
      break;
  }
  throw damaged_error("a message has no known body");
}

ToIsland get_body(const proto::ToIsland& x) {
  switch (x.body_case()) {
    case proto::ToIsland::kWelcome:
      return get(x.welcome());
    case proto::ToIsland::kRefused:
      return get(x.refused());
    case proto::ToIsland::kLease:
      return get(x.lease());
    case proto::ToIsland::kReduce:
      return get(x.reduce());
    case proto::ToIsland::kAbandonReduce:
      return get(x.abandon_reduce());
    case proto::ToIsland::kCommit:
      return get(x.commit());
    case proto::ToIsland::kDropped:
      return get(x.dropped());
    case proto::ToIsland::kResync:
      return get(x.resync());
    case proto::ToIsland::kView:
      return get(x.view());
    case proto::ToIsland::kFinish:
      return get(x.finish());
    case proto::ToIsland::kPutState:
      return get(x.put_state());
    case proto::ToIsland::BODY_NOT_SET:
      break;
  }
  throw damaged_error("a message has no known body");
}

template <typename Message>
Message parse(std::string_view bytes) {
  if (bytes.size() > kMaxMessageBytes) {
    throw damaged_error("a message has {} bytes, {} are allowed", bytes.size(), kMaxMessageBytes);
  }
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw damaged_error("a message of {} bytes is not one of atoll's islands", bytes.size());
  }
  const std::string fault = find_fault(message);
  if (!fault.empty()) throw damaged_error("a message is refused: {}", fault);
  return message;
}

}  // namespace

MessageFromIsland decode_from_island(std::string_view bytes) {
  const auto message = parse<proto::FromIsland>(bytes);
  return {get(message.stamp()), get_body(message)};
}

MessageToIsland decode_to_island(std::string_view bytes) {
  const auto message = parse<proto::ToIsland>(bytes);
  return {get(message.stamp()), get_body(message)};
}

}  // namespace atl::island
