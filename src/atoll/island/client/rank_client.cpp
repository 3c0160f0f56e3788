#include "atoll/island/client/rank_client.h"

#include <algorithm>
#include <chrono>

#include "atoll/base/check.h"

namespace atl::island {

namespace {

// Orders that go by another way than what the ranks' trainers tell each other come this late only
// where a rank hangs.
constexpr std::chrono::seconds kStateWithin{300};

}  // namespace

RankClient::RankClient(RankExchange& exchange, OuterState& state, Answer answer)
    : exchange_(exchange), state_(state), answer_(std::move(answer)) {
  for (int f = 0; f < state_.num_fragments(); ++f) note_state(f);
  thread_ = std::thread([this] { run(); });
}

RankClient::~RankClient() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (Job& job : jobs_) job.cancel.request_stop();
    reducing_.request_stop();
    fetching_.request_stop();
  }
  changed_.notify_all();
  thread_.join();
  exchange_.stop_upload();
}

void RankClient::take(std::uint64_t number, const std::string& order) {
  Job job = {number, decode_order(order), {}};
  {
    const std::lock_guard lock(mutex_);
    switch (job.order.what) {
      case RankOrder::What::kStopReduce:
        reducing_.request_stop();
        return;
      case RankOrder::What::kStopFetch:
        fetching_.request_stop();
        return;
      case RankOrder::What::kReduce:
        reducing_ = job.cancel;
        break;
      case RankOrder::What::kFetch:
        fetching_ = job.cancel;
        break;
      default:
        break;
    }
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void RankClient::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
      if (is_stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      carry_out(job);
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const Error*>(&error);
      {
        const std::lock_guard lock(mutex_);
        if (!fatal_) fatal_ = known != nullptr ? *known : Error(ErrorKind::kInternal, error.what());
      }
      changed_.notify_all();
      answer(job, {.error = error.what()});
    }
  }
}

void RankClient::carry_out(const Job& job) {
  using What = RankOrder::What;
  const RankOrder& order = job.order;
  switch (order.what) {
    case What::kOffer:
      return offer(job);
    case What::kReduce:
      return reduce(job);
    case What::kFetch:
      return fetch(job);
    case What::kSeal:
      return state_.seal(order.hash);
    case What::kSwap:
      ATOLL_CHECK(state_.swap(order.outer_step, order.fragment, order.hash),
                  "outer step {} was committed and is not beside this rank's part of the state",
                  order.outer_step);
      exchange_.publish(order.fragment);
      if (order.was_mine) exchange_.accept(order.fragment);
      return note_state(order.fragment);
    case What::kReplace:
      state_.replace(order.fragment, order.outer_step, std::move(fetched_.at(order.fragment)),
                     [&](const StateHash&) { return order.hash; });
      fetched_.erase(order.fragment);
      exchange_.publish(order.fragment);
      return note_state(order.fragment);
    case What::kReplaced:
      return state_.set_outer_step(order.outer_step);
    case What::kUpload:
      return exchange_.upload(order.hashes, order.connection);
    case What::kStopReduce:
    case What::kStopFetch:
      return;
  }
}

void RankClient::offer(const Job& job) {
  std::shared_ptr<const std::vector<float>> delta;
  {
    std::unique_lock lock(mutex_);
    const auto find = [&] { return handed_in_.find(job.order.outer_step); };
    changed_.wait(lock, [&] { return is_stopping_ || find() != handed_in_.end(); });
    if (is_stopping_) return;
    delta = std::move(find()->second);
    handed_in_.clear();
  }
  RankAnswer done;
  done.squares =
      exchange_.offer(job.order.outer_step, job.order.fragment, job.order.codec, std::move(delta));
  answer(job, std::move(done));
  exchange_.encode();
}

void RankClient::reduce(const Job& job) {
  fetched_.clear();  // the island is up to date
  RankExchange::Reduced reduced =
      exchange_.reduce(job.order.stamp, job.order.reduce, job.order.self, job.order.contacts,
                       job.cancel.get_token());
  answer(job, {.exchange = std::move(reduced.exchange),
               .hash = reduced.hash,
               .squares = std::move(reduced.squares)});
}

void RankClient::fetch(const Job& job) {
  const int f = job.order.fragment;
  std::vector<float>& values = fetched_[f];
  values.resize(state_.values_size(f));
  RankAnswer done;
  done.exchange = exchange_.fetch(f, job.order.hash, job.order.sources, job.order.contacts, values,
                                  job.cancel.get_token());
  if (done.exchange.is_done) done.hash = state_.part(f).hash(values);
  answer(job, std::move(done));
}

void RankClient::answer(const Job& job, RankAnswer done) {
  done.sent_bytes = exchange_.sent_bytes();
  done.received_bytes = exchange_.received_bytes();
  answer_(job.number, encode(done));
}

void RankClient::note_state(int fragment) {
  {
    const std::lock_guard lock(mutex_);
    if (auto state = state_.current(fragment)) states_[fragment].push_back(std::move(state));
  }
  changed_.notify_all();
}

void RankClient::hand_in(std::int64_t outer_step, std::shared_ptr<const std::vector<float>> delta) {
  {
    const std::lock_guard lock(mutex_);
    handed_in_[outer_step] = std::move(delta);
  }
  changed_.notify_all();
}

std::shared_ptr<const FragmentState> RankClient::state_of(int fragment, const StateHash& hash) {
  std::unique_lock lock(mutex_);
  auto& states = states_[fragment];
  const auto find = [&] {
    return std::find_if(states.begin(), states.end(),
                        [&](const auto& state) { return state->hash == hash; });
  };
  changed_.wait_for(lock, kStateWithin, [&] { return fatal_ || find() != states.end(); });
  if (fatal_) throw Error(*fatal_);
  const auto found = find();
  if (found == states.end()) {
    throw make_error(ErrorKind::kPeer, "the state {} of fragment {} has not come to this rank",
                     to_text(hash), fragment);
  }
  states.erase(states.begin(), found);
  return states.front();
}

}  // namespace atl::island
