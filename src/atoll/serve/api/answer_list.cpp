#include "atoll/serve/api/answer_list.h"

#include <csignal>

namespace atl::serve::api {

AnswerList::AnswerList(std::chrono::milliseconds ping_every) : ping_every_(ping_every) {
  thread_ = std::thread([this] {
    sigset_t all;  // signals are the business of the threads that were there before
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    ping();
  });
}

AnswerList::~AnswerList() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AnswerList::add(const std::shared_ptr<OpenAnswer>& answer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(answers_, [](const std::weak_ptr<OpenAnswer>& one) { return one.expired(); });
  answers_.push_back(answer);
}

std::vector<std::shared_ptr<OpenAnswer>> AnswerList::living() {
  std::vector<std::shared_ptr<OpenAnswer>> list;
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<OpenAnswer>& one : answers_) {
    if (auto answer = one.lock()) list.push_back(std::move(answer));
  }
  return list;
}

void AnswerList::refuse_all(const ApiError& error) {
  for (const auto& answer : living()) answer->refuse(error);
}

void AnswerList::ping() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, ping_every_, [this] { return ends_; })) {
    lock.unlock();
    for (const auto& answer : living()) answer->ping();
    lock.lock();
  }
}

}  // namespace atl::serve::api
