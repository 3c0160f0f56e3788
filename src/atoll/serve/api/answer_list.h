#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "atoll/serve/api/open_answer.h"

namespace atl::serve::api {

/// The answers that are under way, and a thread that pings those that have nothing to say.
class AnswerList {
 public:
  explicit AnswerList(std::chrono::milliseconds ping_every);
  ~AnswerList();
  AnswerList(const AnswerList&) = delete;
  AnswerList& operator=(const AnswerList&) = delete;

  void add(const std::shared_ptr<OpenAnswer>& answer);
  /// Ends all of them with this error.
  void refuse_all(const ApiError& error);

 private:
  void ping();
  std::vector<std::shared_ptr<OpenAnswer>> living();

  const std::chrono::milliseconds ping_every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::vector<std::weak_ptr<OpenAnswer>> answers_;
  std::thread thread_;
};

}  // namespace atl::serve::api
