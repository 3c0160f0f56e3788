#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// One exchange with the heads of all slices: a request to each, and what makes it done there.
struct Exchange {
  std::function<Message(std::uint32_t slice)> request;
  /// Whether this reply of the slice's head is the one that was waited for.
  std::function<bool(std::uint32_t slice, const Message& reply)> accept;
};

/// The side of a worker: what it was told by the scheduler, and one exchange at a time. A state
/// machine without clock or socket. Requests are asked again when a slice gets another head, or the
/// link to its server was broken: all are such that asking twice does no harm.
class Worker {
 public:
  Worker(std::int64_t number, std::string identity);

  struct Send {
    bool to_scheduler = false;
    ServerId server = kNobody;
    Message message;
  };

  WorkerHello hello() const;
  /// The connection to the scheduler is there, for the first time or again.
  void connected_to_scheduler();
  /// Throw Error(kDamaged) for what the other side does not send.
  void received_from_scheduler(const Message& message);
  void received_from_server(ServerId server, const Message& message);
  /// The link to a server is there, for the first time or again.
  void connected(ServerId server);
  /// To be called now and then: asks again what a server did not take, as it had not heard yet that
  /// it is the head.
  void retry();

  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }

  /// Of the lead, before it loads: what the run is.
  void offer(RunSpec spec);
  /// Begins an exchange with the heads of `num_slices` slices, in place of the one before.
  void begin(std::size_t num_slices, Exchange exchange);
  bool is_exchanged() const { return exchange_.has_value() && left_ == 0; }
  void cancel() { exchange_.reset(); }

  /// Whether the scheduler has asked for the state from the lead since the last call. It asks again
  /// where servers were lost meanwhile, and then wants all of it.
  bool take_shall_load();
  void loaded();
  /// Whether training has begun, and at which step this worker came in.
  std::optional<std::int64_t> begun() const { return begun_; }
  /// The lanes that this worker has, with the next step of each.
  const std::map<std::int64_t, std::int64_t>& lanes() const { return lanes_; }
  /// The lane with the lowest step among those that may go on; nothing: there is none now.
  std::optional<LaneAt> next_lane() const;
  /// The lane has made its push of `step` - 1.
  void done(std::int64_t lane, std::int64_t step);
  /// A checkpoint of this step is wanted; nothing: none is.
  std::optional<std::int64_t> shall_save() const { return save_; }
  void saved(std::int64_t step);
  /// Asks the scheduler to end the run.
  void ask_to_stop();
  /// Why the run has ended; "" when all steps are done. Nothing: it has not.
  const std::optional<std::string>& ended() const { return ended_; }
  /// Why the scheduler does not take this worker; "" it does.
  const std::string& refusal() const { return refusal_; }

  const std::vector<ServerEntry>& servers() const { return view_.servers; }

 private:
  enum class Progress : std::uint8_t { kWaiting, kSent, kRefused, kDone };

  ServerId head_of(std::uint32_t slice) const;
  void take(const Welcome& welcome);
  void take(const View& view);
  void take(const Assign& assign);
  void ask();
  void say_clocks();
  void say_clocks(ServerId server);
  void tell(Message message) { sends_.push_back({true, kNobody, std::move(message)}); }

  std::int64_t number_;
  std::string identity_;
  std::optional<RunSpec> spec_;  // that this worker offers
  std::vector<Send> sends_;
  View view_;
  std::map<std::int64_t, std::int64_t> lanes_;
  std::int64_t until_ = 0;
  Term term_;  // of the newest scheduler that has let it begin
  bool has_asked_to_stop_ = false;
  std::int64_t saved_ = -1;  // the last step of which it said so
  bool shall_load_ = false;
  std::uint64_t loading_view_ = 0;  // that it knew when it last began to give the state
  std::optional<std::int64_t> begun_;
  std::optional<std::int64_t> save_;
  std::optional<std::string> ended_;
  std::string refusal_;

  std::optional<Exchange> exchange_;
  std::vector<Progress> progress_;    // of each slice
  std::map<ServerId, int> num_sent_;  // requests that a server has not answered
  std::size_t left_ = 0;
};

}  // namespace atl::param_server
