#include "atoll/launch/watched.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "atoll/base/processes/process.h"

namespace atl::launch {

namespace {

ChildOptions options_of(const RankProcess& process) {
  const bool first = process.rank == 0;
  switch (process.reach) {
    case Reach::kHere:
      return {.argv = process.argv,
              .shows_output = process.shows_output,
              .shows_errors = first,
              .has_report_pipe = true};
    case Reach::kSsh:
      return {.argv = process.argv, .shows_output = process.shows_output, .has_input = true};
    case Reach::kMpirun:
      // An mpirun that gets SIGTERM ends its ranks too.
      return {.argv = process.argv, .shows_output = process.shows_output, .death_signal = SIGTERM};
    case Reach::kAgent:
      break;
  }
  return {};
}

// A child of this process: a rank, ssh or mpirun.
class LocalProcess final : public WatchedProcess {
 public:
  explicit LocalProcess(const RankProcess& process)
      : reach_(process.reach), child_(options_of(process)) {}

  pid_t pid() const override { return child_.pid(); }
  bool running() const override { return child_.running(); }

  void watch(std::vector<pollfd>& polls) const override {
    if (child_.running()) polls.push_back({.fd = child_.pid_fd(), .events = POLLIN});
    for (const Fd* fd : {&child_.errors(), &child_.reports()}) {
      if (fd->open()) polls.push_back({.fd = fd->get(), .events = POLLIN});
    }
  }

  void listen(const LineTaker& take) override {
    errors_.read(child_.errors(), take);
    reports_.read(child_.reports(), take);
  }

  void signal(int number, bool again) override {
    switch (reach_) {
      case Reach::kSsh: {
        const std::string order = fmt::format("signal {}\n", number);
        if (child_.input().open() &&
            ::write(child_.input().get(), order.data(), order.size()) < 0) {
          child_.input().close();
        }
        break;
      }
      case Reach::kMpirun:
        // mpirun itself would give its ranks one second; these it passes on as they are.
        child_.signal(again ? SIGTERM : number == SIGINT || number == SIGUSR2 ? SIGUSR2 : SIGUSR1);
        break;
      case Reach::kHere:
      case Reach::kAgent:
        child_.signal(number);
        break;
    }
  }

  void kill() override {
    child_.input().close();
    // mpirun that is killed cannot end its ranks.
    if (reach_ == Reach::kMpirun && !std::exchange(was_asked_, true)) {
      child_.signal(SIGTERM);
    } else {
      child_.kill();
    }
  }

  std::optional<ProcessEnd> reap(const LineTaker& take) override {
    int status = 0;
    if (!child_.running() || !child_.reap(status)) return std::nullopt;
    listen(take);
    errors_.finish(take);
    reports_.finish(take);
    return ProcessEnd{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                      .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  }

 private:
  Reach reach_;
  Child child_;
  LineReader errors_, reports_;
  bool was_asked_ = false;
};

}  // namespace

std::unique_ptr<WatchedProcess> start_process(const RankProcess& process) {
  if (process.start) return process.start();
  return std::make_unique<LocalProcess>(process);
}

}  // namespace atl::launch
