#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/island/client/rank_orders.h"

namespace atl::train {

/// How the rank that leads an island orders the others what to do of its exchanges while all of
/// them train: a thread of each rank makes collectives on a channel that nothing else uses. The
/// leading rank begins each of them when it has orders, looks for answers while some are missing,
/// and once a second otherwise, so that nobody's collective runs into its timeout.
class RankLink final : public island::OtherRanks {
 public:
  /// `group`: all ranks of the island, the leading one first, on a channel of its own.
  explicit RankLink(std::unique_ptr<comm::Group> group);
  ~RankLink() override;
  /// Ends this rank's thread: the leading one's at once, others' at its next turn. Nothing is
  /// handed to `take` any more.
  void stop();

  // Of the leading rank.
  std::uint64_t send(std::string order, bool wants_answers) override;
  std::vector<std::string> answers(std::uint64_t number) override;
  void give_up() override;

  // Of the others.
  using Take = std::function<void(std::uint64_t number, const std::string& order)>;
  /// Hands each order to `take`, from a thread, from now on.
  void begin(Take take);
  void answer(std::uint64_t number, const std::string& text);

 private:
  struct Message {
    std::uint64_t number = 0;
    std::string text;
  };
  static void append(std::string& bytes, const Message& message);
  static std::vector<Message> messages_in(const std::string& bytes);

  bool leads() const { return group_->rank() == 0; }
  void run();
  void lead();
  void follow();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void hear(const std::vector<std::string>& texts);

  std::unique_ptr<comm::Group> group_;
  Take take_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string outgoing_;  // messages: orders, or answers
  std::uint64_t num_orders_ = 0;
  // Of orders that are to be answered: by rank, those that have come.
  std::map<std::uint64_t, std::map<int, std::string>> answers_;
  int wait_ms_ = 1;  // before the leading rank looks for answers again
  bool is_stopping_ = false, gives_up_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace atl::train
