#include "atoll/tune/lease_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/process.h"
#include "atoll/base/quantity.h"
#include "atoll/base/thread_pool.h"
#include "atoll/ckpt/run_lock.h"
#include "atoll/train/interrupt.h"
#include "atoll/tune/inputs.h"
#include "atoll/tune/lease_messages.h"
#include "atoll/tune/trial_process.h"
#include "atoll/tune/trial_run.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/session.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{200};
constexpr milliseconds kRetry{500};
constexpr int kFarewellMs = 2000;
constexpr std::size_t kInstanceDigits = 32;
constexpr const char* kIdentityName = "study.identity";

// The same for a worker that is started again in its directory, so that the tuner knows at once
// that the trials of the process before are nobody's any more. Another one where the directory was
// copied to.
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

// Descriptors that wake a poll().
class Bell {
 public:
  Bell() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_.open()) throw io_error("cannot make", "an event", errno);
  }
  int fd() const { return fd_.get(); }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t done = ::write(fd_.get(), &one, sizeof(one));
  }
  void silence() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
  }

 private:
  Fd fd_;
};

// Moves files from and to the tuner, for as long as that takes.
class Courier {
 public:
  explicit Courier(const WorkOptions& options)
      : client_(
            {.address = options.address, .identity = options.identity, .secret = options.secret}) {}

  // Makes `root` have these files; those that it has stay. False: stopped, or no longer offered.
  bool fetch(const std::string& list, const std::vector<FileEntry>& files, const fs::path& root,
             const std::stop_token& stop) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (has_file(root, files[i])) continue;
      if (!fetch_one(file_key(list, i), files[i], root, stop)) return false;
    }
    return true;
  }

  // Gives the tuner those of `files`. False: stopped, or it does not want them any more.
  bool put(const std::string& list, const std::vector<FileEntry>& files,
           const std::vector<int>& wanted, const fs::path& root, const std::stop_token& stop) {
    for (const int index : wanted) {
      const auto i = static_cast<std::size_t>(index);
      if (i >= files.size()) return false;
      if (files[i].bytes == 0) continue;
      const MappedFile file(root / files[i].path);
      const std::span<const std::byte> bytes = file.bytes();
      if (bytes.size() != files[i].bytes) return false;
      const wire::Reader read = [bytes](std::uint64_t offset, std::span<std::byte> out) {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      };
      std::vector<bool> done;
      const bool is_put = persist(stop, [&] {
        return client_.put({.key = file_key(list, i), .bytes = bytes.size(), .cancel = stop}, done,
                           read);
      });
      if (!is_put) return false;
    }
    return true;
  }

 private:
  bool fetch_one(const std::string& key, const FileEntry& file, const fs::path& root,
                 const std::stop_token& stop) {
    const fs::path path = root / file.path;
    const fs::path coming = path.parent_path() / (".coming-" + path.filename().string());
    const FileInPieces pieces(coming, file.bytes);
    std::vector<bool> done;
    const bool is_whole =
        file.bytes == 0 || persist(stop, [&] {
          return client_.fetch({.key = key, .bytes = file.bytes, .cancel = stop}, done,
                               [&](std::uint64_t offset, std::span<const std::byte> data) {
                                 pieces.write(offset, data);
                               });
        });
    if (!is_whole) return false;
    std::error_code failure;
    fs::rename(coming, path, failure);
    if (failure) throw io_error("cannot put in place", path, failure.value());
    if (has_file(root, file)) return true;
    throw damaged_error("{} came from the tuner with another content than it said", path.string());
  }

  template <typename Move>
  static bool persist(const std::stop_token& stop, const Move& move) {
    while (!stop.stop_requested()) {
      const wire::TransferResult result = move();
      switch (result.end) {
        case wire::TransferEnd::kDone:
          return true;
        case wire::TransferEnd::kGone:
        case wire::TransferEnd::kCancelled:
          return false;
        case wire::TransferEnd::kRefused:
          log::warning("the tuner refuses a file: {}", result.why);
          return false;
        case wire::TransferEnd::kUnreachable:
        case wire::TransferEnd::kDamaged:
          std::this_thread::sleep_for(kRetry);
          break;
      }
    }
    return false;
  }

  wire::BlobClient client_;
};

// A lease and the thread that works on it: fetches, trains, and gives back what came of it.
class LeasedTrial {
 public:
  LeasedTrial(const Study& study, Lease lease, Courier& courier, const Bell& bell,
              const std::string& program, std::int64_t threads)
      : study_(study),
        lease_(std::move(lease)),
        courier_(courier),
        bell_(bell),
        program_(program),
        threads_(threads),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  const LeaseId& id() const { return lease_.id; }
  // What the tuner is to be told now, again after each new connection.
  std::optional<LeaseMessage> news() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return Ended{lease_.id, code_, line_, files_};
    if (state_ == State::kPut) return Delivered{lease_.id};
    return std::nullopt;
  }
  // Whether there is something that was not said yet, and takes it as said.
  bool take_news() {
    const std::lock_guard lock(mutex_);
    return std::exchange(has_news_, false);
  }
  // A new connection: the tuner may be another process, which knows of no file.
  void connected() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kPut) state_ = State::kEnded;
    has_news_ = state_ == State::kEnded;
  }
  void want(const std::vector<int>& files) {
    {
      const std::lock_guard lock(mutex_);
      if (state_ == State::kWorking) return;
      wanted_ = files;
      state_ = State::kPutting;
    }
    changed_.notify_all();
  }
  // Ends it at once: the trial is another's now, or this process ends.
  void stop() { thread_.request_stop(); }
  // What went wrong here, for which the trial is not to blame.
  std::optional<Error> failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  enum class State { kWorking, kEnded, kPutting, kPut };

  void run(const std::stop_token& stop) {
    try {
      if (!prepare(stop) || !train(stop)) return;
      give_back(stop);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      failure_ = error;
      bell_.ring();
    }
  }

  fs::path dir() const { return trial_dir(study_, lease_.id.trial); }

  // Makes the trial's directory what the tuner has, and no more: what was here may be of a lease
  // that no longer counted.
  bool prepare(const std::stop_token& stop) {
    std::set<std::string> wanted;
    for (const FileEntry& file : lease_.files) wanted.insert(file.path);
    for (const FileEntry& file : list_files(dir(), travels)) {
      if (wanted.contains(file.path)) continue;
      std::error_code failure;
      fs::remove(dir() / file.path, failure);
      if (failure) throw io_error("cannot remove", dir() / file.path, failure.value());
    }
    remove_empty(dir());
    std::error_code failure;
    fs::create_directories(dir(), failure);
    if (failure) throw io_error("cannot make", dir(), failure.value());
    return courier_.fetch(key_of(lease_.id), lease_.files, dir(), stop);
  }

  static void remove_empty(const fs::path& root) {
    if (!directory_exists(root)) return;
    std::vector<fs::path> directories;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_directory()) directories.push_back(entry.path());
    }
    std::error_code ignored;  // those that are not empty stay
    for (auto at = directories.rbegin(); at != directories.rend(); ++at) {
      if (fs::is_empty(*at, ignored)) fs::remove(*at, ignored);
    }
  }

  bool train(const std::stop_token& stop) {
    Trial trial = {.number = lease_.id.trial, .settings = lease_.settings, .target = lease_.step};
    if (lease_.reached > 0) trial.measured.push_back({.step = lease_.reached});
    TrialProcess process(study_, trial, lease_.step, program_, threads_);
    std::optional<int> code;
    while (!(code = process.step())) {
      if (stop.stop_requested()) {
        process.kill();
        return false;
      }
      std::vector<pollfd> polls;
      process.watch(polls);
      ::poll(polls.data(), polls.size(), static_cast<int>(kPoll.count()));
    }
    if (stop.stop_requested()) return false;
    const std::lock_guard lock(mutex_);
    code_ = *code;
    line_ = process.last_line();
    return true;
  }

  void give_back(const std::stop_token& stop) {
    std::vector<FileEntry> files = list_files(dir(), travels);
    std::unique_lock lock(mutex_);
    files_ = std::move(files);
    set(State::kEnded);
    while (changed_.wait(lock, stop, [&] { return state_ == State::kPutting; })) {
      const std::vector<int> wanted = wanted_;
      lock.unlock();
      const bool is_put = courier_.put(back_list(lease_.id), files_, wanted, dir(), stop);
      lock.lock();
      // A tuner that was started anew in between does not know of the files: it is told again.
      if (state_ == State::kPutting) set(is_put ? State::kPut : State::kEnded);
    }
  }
  void set(State state) {
    state_ = state;
    has_news_ = true;
    bell_.ring();
  }

  const Study& study_;
  const Lease lease_;
  Courier& courier_;
  const Bell& bell_;
  const std::string& program_;
  const std::int64_t threads_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  State state_ = State::kWorking;
  bool has_news_ = false;
  int code_ = 0;
  std::string line_;
  std::vector<FileEntry> files_;
  std::vector<int> wanted_;
  std::optional<Error> failure_;
  std::jthread thread_;  // last: it uses the rest
};

class WorkerMain {
 public:
  explicit WorkerMain(const WorkOptions& options)
      : options_(options),
        lock_(made(options.dir)),
        instance_(instance_of(options.dir)),
        courier_(options) {
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
      pollfd fd = {.fd = bell_.fd(), .events = POLLIN};
      ::poll(&fd, 1, static_cast<int>(kPoll.count()));
      bell_.silence();
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
    bell_.ring();
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
    leased_.erase(lease.id.trial);  // an older lease of it does not count any more
    log::info("trial {}, to step {}", lease.id.trial, lease.step);
    leased_.emplace(lease.id.trial, std::make_unique<LeasedTrial>(*study_, lease, courier_, bell_,
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
    const fs::path identity = dir / kIdentityName;
    if (path_exists(identity) && read_file(identity) != welcome.identity) {
      throw user_error("{} is of another study; name another directory with --dir", dir.string());
    }
    if (path_exists(dir / "study.sqlite")) {
      throw user_error("{} is the directory of a study itself; name another one with --dir",
                       dir.string());
    }
    write_file(identity, welcome.identity);
    const std::stop_token never;
    bool is_whole = true;
    for (std::size_t i = 0; i < welcome.inputs.size(); ++i) {
      const Input& input = welcome.inputs[i];
      is_whole &= courier_.fetch(study_list(i), input.files, input_root(dir, i, input), never);
    }
    is_whole &=
        courier_.fetch(study_list(welcome.inputs.size()), welcome.tokens, dir / "data", never);
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
  train::InterruptGuard interrupt_;
  Bell bell_;
  Courier courier_;
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
