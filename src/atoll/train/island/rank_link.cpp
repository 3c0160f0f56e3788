#include "atoll/train/island/rank_link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/parallel/layout/gather_text.h"

namespace atl::train {

namespace {

constexpr std::chrono::seconds kTellEvery{1};
// Short beside an exchange over a link, long beside the collectives that it takes.
constexpr int kMostWaitMs = 20;

}  // namespace

RankLink::RankLink(std::unique_ptr<comm::Group> group) : group_(std::move(group)) {
  if (leads()) thread_ = std::thread([this] { run(); });
}

RankLink::~RankLink() {
  stop();
}

void RankLink::give_up() {
  {
    const std::lock_guard lock(mutex_);
    gives_up_ = true;
  }
  changed_.notify_all();
}

void RankLink::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RankLink::begin(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void RankLink::run() {
  try {
    leads() ? lead() : follow();
  } catch (...) {  // a rank is lost: the trainers' own collectives say so too
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

std::uint64_t RankLink::send(std::string order, bool wants_answers) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++num_orders_;
    append(outgoing_, {number, std::move(order)});
    if (wants_answers) answers_[number];
    wait_ms_ = 1;
  }
  changed_.notify_all();
  return number;
}

std::vector<std::string> RankLink::answers(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  const auto others = static_cast<std::size_t>(group_->size() - 1);
  changed_.wait(lock,
                [&] { return failure_ || gives_up_ || answers_.at(number).size() == others; });
  if (failure_) std::rethrow_exception(failure_);
  if (answers_.at(number).size() < others) {
    throw make_error(ErrorKind::kPeer, "this rank ends before the others have answered");
  }
  std::vector<std::string> all;
  for (auto& [rank, text] : answers_.at(number)) all.push_back(std::move(text));
  answers_.erase(number);
  return all;
}

void RankLink::answer(std::uint64_t number, const std::string& text) {
  const std::lock_guard lock(mutex_);
  append(outgoing_, {number, text});
}

// Until there are orders, or it is time to look for answers, or to show that this rank lives.
void RankLink::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto is_missing = [&](const auto& order) {
    return order.second.size() + 1 < static_cast<std::size_t>(group_->size());
  };
  const auto is_due = [&] { return is_stopping_ || !outgoing_.empty(); };
  if (!std::any_of(answers_.begin(), answers_.end(), is_missing)) {
    changed_.wait_for(lock, kTellEvery, is_due);
    return;
  }
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms_), is_due);
  wait_ms_ = std::min(kMostWaitMs, 2 * wait_ms_);
}

// A turn: how many bytes of orders, whether answers are asked for, whether this is the last; then
// the orders, and the answers.
void RankLink::lead() {
  for (;;) {
    std::string orders;
    std::array<std::int64_t, 3> head = {};
    {
      std::unique_lock lock(mutex_);
      wait_for_work(lock);
      orders = std::exchange(outgoing_, {});
      head = {static_cast<std::int64_t>(orders.size()), answers_.empty() ? 0 : 1,
              is_stopping_ ? 1 : 0};
    }
    group_->broadcast({head.data(), {Dtype::kI64, {head.size()}}}, 0);
    if (!orders.empty()) group_->broadcast({orders.data(), {Dtype::kU8, {head[0]}}}, 0);
    if (head[1] != 0) hear(parallel::gather_text(group_.get(), ""));
    if (head[2] != 0) return;
  }
}

void RankLink::hear(const std::vector<std::string>& texts) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
      for (Message& message : messages_in(texts[rank])) {
        const auto order = answers_.find(message.number);
        if (order == answers_.end()) continue;  // an order that wants none, and could not be done
        order->second[static_cast<int>(rank)] = std::move(message.text);
        wait_ms_ = 1;
      }
    }
  }
  changed_.notify_all();
}

void RankLink::follow() {
  for (;;) {
    std::array<std::int64_t, 3> head = {};
    group_->broadcast({head.data(), {Dtype::kI64, {head.size()}}}, 0);
    std::string orders(static_cast<std::size_t>(head[0]), '\0');
    if (!orders.empty()) group_->broadcast({orders.data(), {Dtype::kU8, {head[0]}}}, 0);
    for (const Message& message : messages_in(orders)) take_(message.number, message.text);
    std::string answers;
    bool is_leaving = false;
    {
      const std::lock_guard lock(mutex_);
      if (head[1] != 0) answers = std::exchange(outgoing_, {});
      is_leaving = is_stopping_;
    }
    if (head[1] != 0) parallel::gather_text(group_.get(), answers);
    // This rank ends before the leading one only with an error, which the others learn of.
    if (head[2] != 0 || is_leaving) return;
  }
}

void RankLink::append(std::string& bytes, const Message& message) {
  const std::array<std::uint64_t, 2> head = {message.number, message.text.size()};
  bytes.append(reinterpret_cast<const char*>(head.data()), sizeof(head));
  bytes += message.text;
}

std::vector<RankLink::Message> RankLink::messages_in(const std::string& bytes) {
  std::vector<Message> all;
  for (std::size_t at = 0; at < bytes.size();) {
    std::array<std::uint64_t, 2> head = {};
    ATOLL_CHECK(bytes.size() - at >= sizeof(head), "{} bytes of a message", bytes.size() - at);
    std::memcpy(head.data(), bytes.data() + at, sizeof(head));
    at += sizeof(head);
    ATOLL_CHECK(bytes.size() - at >= head[1], "{} bytes of {}", bytes.size() - at, head[1]);
    all.push_back({head[0], bytes.substr(at, head[1])});
    at += head[1];
  }
  return all;
}

}  // namespace atl::train
