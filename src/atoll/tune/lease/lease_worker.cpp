#include "atoll/tune/lease/lease_worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <utility>
#include <variant>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/run_lock.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/tune/lease/file_transfer.h"
#include "atoll/tune/lease/inputs.h"
#include "atoll/tune/lease/lease_messages.h"
#include "atoll/tune/lease/leased_trial.h"
#include "atoll/tune/lease/wake_event.h"
#include "atoll/tune/trial/store.h"
#include "atoll/wire/session.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{200};
constexpr int kFarewellMs = 2000;
constexpr std::size_t kInstanceDigits = 32;

// The instance of the worker in `dir`. A worker that is started again there has the same instance,
// so that the tuner knows at once that no process trains its earlier leases any more. A copy of the
// directory gets another instance: host and path are compared.
std::string instance_of(const fs::path& dir) {
  const fs::path path = dir / "worker.id";
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, HOST_NAME_MAX);
  const std::string place =
      fmt::format("{} {}\n", static_cast<const char*>(host), real_path(dir).string());
  if (path_exists(path)) {
    const std::string content = read_file(path);
    const std::size_t end = content.find('\n');
    if (end == kInstanceDigits && content.substr(end + 1) == place) return content.substr(0, end);
  }
  std::random_device device;
  std::string instance;
  while (instance.size() < kInstanceDigits) instance += fmt::format("{:08x}", device());
  write_file(path, instance + "\n" + place);
  return instance;
}

class WorkerMain {
 public:
  explicit WorkerMain(const WorkOptions& options)
      : options_(options),
        lock_(made(options.dir)),
        instance_(instance_of(options.dir)),
        transfer_(
            {.address = options.address, .identity = options.identity, .secret = options.secret}) {
    session_.emplace(
        wire::SessionOptions{.address = options.address,
                             .identity = options.identity,
                             .secret = options.secret,
                             .max_backoff_ms = 1000},
        wire::Session::Events{
            .connected =
                [this] {
                  put({Letter::Kind::kConnected, ""});
                },
            .received =
                [this](std::string frame) {
                  put({Letter::Kind::kReceived, std::move(frame)});
                },
            .disconnected =
                [this](const std::string& why, bool is_final) {
                  put({is_final ? Letter::Kind::kRefused : Letter::Kind::kBroken, why});
                }});
  }

  int run() {
    while (!is_over_) {
      if (const int signal = interrupt_.signal(); signal != 0) {
        leave();
        return signal;
      }
      pollfd fd = {.fd = wake_.fd(), .events = POLLIN};
      ::poll(&fd, 1, static_cast<int>(kPoll.count()));
      wake_.clear();
      for (const Letter& letter : take()) handle(letter);
      look_after();
    }
    log::info("the study is over");
    return 0;
  }

 private:
  struct Letter {
    enum class Kind { kConnected, kReceived, kBroken, kRefused } kind;
    std::string text;
  };

  static const fs::path& made(const fs::path& dir) {
    std::error_code failure;
    fs::create_directories(dir, failure);
    if (failure) throw io_error("cannot make", dir, failure.value());
    return dir;
  }

  void put(Letter letter) {
    {
      const std::lock_guard lock(mutex_);
      letters_.push_back(std::move(letter));
    }
    wake_.wake();
  }
  std::deque<Letter> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(letters_, {});
  }

  void send(const LeaseMessage& message) {
    std::string frame = encode(message);
    if (frame.size() > wire::kMaxFrameBytes) {
      throw make_error(ErrorKind::kIo, "a trial has too many files for one message: {} MB",
                       frame.size() >> 20);
    }
    session_->send(std::move(frame));
  }

  void handle(const Letter& letter) {
    switch (letter.kind) {
      case Letter::Kind::kConnected:
        gone_since_ = Clock::time_point::max();
        send(Hello{.version = options_.version,
                   .name = options_.name,
                   .instance = instance_,
                   .slots = options_.slots});
        return;
      case Letter::Kind::kReceived:
        std::visit([this](const auto& message) { received(message); }, decode(letter.text));
        return;
      case Letter::Kind::kBroken:
        is_ready_ = false;
        if (gone_since_ == Clock::time_point::max() || !was_told_) {
          log::warning("no tuner at {}: {}; it is tried again for {:g} s", options_.address,
                       letter.text, options_.patience_s);
          was_told_ = true;
        }
        if (gone_since_ == Clock::time_point::max()) gone_since_ = Clock::now();
        return;
      case Letter::Kind::kRefused:
        throw user_error("the tuner at {} refuses this worker: {}", options_.address, letter.text);
    }
  }

  void received(const Welcome& welcome) {
    if (!study_) {
      open_study(welcome);
    } else if (study_identity_ != welcome.identity) {
      throw user_error(
          "the tuner at {} has another study now; start the worker anew, with another "
          "--dir",
          options_.address);
    }
    Ready ready;
    for (const auto& [trial, leased] : leased_) ready.held.push_back(leased->id());
    send(ready);
    for (const auto& [trial, leased] : leased_) leased->connected();
    is_ready_ = true;
    was_told_ = false;
  }
  void received(const Lease& lease) {
    leased_.erase(lease.id.trial);  // an older lease of the trial no longer counts
    log::info("trial {}, to step {}", lease.id.trial, lease.step);
    leased_.emplace(lease.id.trial, std::make_unique<LeasedTrial>(*study_, lease, transfer_, wake_,
                                                                  options_.program, threads_));
  }
  void received(const Want& want) {
    const auto found = leased_.find(want.lease.trial);
    if (found != leased_.end() && found->second->id() == want.lease) {
      found->second->want(want.files);
    }
  }
  void received(const Settled& settled) {
    const auto found = leased_.find(settled.lease.trial);
    if (found == leased_.end() || found->second->id() != settled.lease) return;
    if (!settled.why.empty()) log::warning("trial {}: {}", settled.lease.trial, settled.why);
    leased_.erase(found);
  }
  void received(const Refused& refused) {
    throw user_error("the tuner at {} refuses this worker: {}", options_.address, refused.why);
  }
  void received(const Over&) { is_over_ = true; }
  template <typename Other>
  void received(const Other&) {
    throw damaged_error("{} is no tuner of this version of atoll", options_.address);
  }

  void open_study(const Welcome& welcome) {
    const fs::path& dir = options_.dir;
    const fs::path identity = dir / kWorkerFile;
    if (path_exists(identity) && read_file(identity) != welcome.identity) {
      throw user_error("{} is of another study; name another directory with --dir", dir.string());
    }
    if (path_exists(dir / kStudyFile)) {
      throw user_error("{} is the directory of a study itself; name another one with --dir",
                       dir.string());
    }
    write_file(identity, welcome.identity);
    const std::stop_token never;
    bool is_whole = true;
    for (std::size_t i = 0; i < welcome.inputs.size(); ++i) {
      const Input& input = welcome.inputs[i];
      is_whole &= transfer_.fetch(study_list(i), input.files, input_root(dir, i, input), never);
    }
    is_whole &=
        transfer_.fetch(study_list(welcome.inputs.size()), welcome.tokens, dir / "data", never);
    if (!is_whole) throw make_error(ErrorKind::kPeer, "the tuner does not give the study's files");
    write_file(dir / "study.toml", welcome.study);
    write_file(dir / "sent-recipe.toml", welcome.recipe);
    std::vector<std::string> overrides = input_overrides(dir, welcome.inputs);
    overrides.push_back("--study.dir=" + dir.string());
    overrides.push_back("--study.recipe=" + (dir / "sent-recipe.toml").string());
    study_ = std::make_unique<Study>(dir / "study.toml", overrides);
    write_file(dir / "recipe.toml", study_->recipe_toml());
    study_identity_ = welcome.identity;
    threads_ = options_.threads > 0 ? options_.threads
                                    : std::max<std::int64_t>(1, available_cpus() / options_.slots);
  }

  void look_after() {
    for (const auto& [trial, leased] : leased_) {
      if (const std::optional<Error> failure = leased->failure()) throw Error(*failure);
      if (!is_ready_ || !leased->take_news()) continue;
      if (const std::optional<LeaseMessage> news = leased->news()) send(*news);
    }
    const std::chrono::duration<double> away = Clock::now() - gone_since_;
    if (gone_since_ == Clock::time_point::max() || away.count() <= options_.patience_s) return;
    throw make_error(ErrorKind::kPeer,
                     "no tuner at {} for {:g} s; trials that it had leased to this worker are lost "
                     "from their last rung on, and it leases them again when it is there",
                     options_.address, options_.patience_s);
  }

  void leave() {
    for (const auto& [trial, leased] : leased_) leased->stop();
    leased_.clear();
    if (!is_ready_) return;
    send(Leaving{});
    session_->finish(kFarewellMs);
  }

  const WorkOptions& options_;
  ckpt::RunLock lock_;
  const std::string instance_;
  train::InterruptGuard interrupt_{"this worker gives its trials back and ends"};
  WakeEvent wake_;
  FileTransfer transfer_;
  std::mutex mutex_;
  std::deque<Letter> letters_;
  bool is_ready_ = false;
  bool is_over_ = false;
  bool was_told_ = false;
  Clock::time_point gone_since_ = Clock::now();
  std::unique_ptr<Study> study_;
  std::string study_identity_;
  std::int64_t threads_ = 1;
  std::map<int, std::unique_ptr<LeasedTrial>> leased_;
  std::optional<wire::Session> session_;  // last: its thread uses the rest
};

}  // namespace

int work(const WorkOptions& options) {
  WorkerMain worker(options);
  return worker.run();
}

}  // namespace atl::tune
