#include "atoll/tune/lease_server.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/tune/trial_run.h"
#include "atoll/wire/secret.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> path_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// Reads a file that is opened when it is first asked for, and stays open until it is withdrawn.
class FileReader {
 public:
  explicit FileReader(fs::path path) : path_(std::move(path)) {}
  void read(std::uint64_t offset, std::span<std::byte> out) {
    const int fd = descriptor();
    while (!out.empty()) {
      const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw io_error("cannot read", path_, got < 0 ? errno : EIO);
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  int descriptor() {
    const std::lock_guard lock(mutex_);
    if (!fd_.open()) {
      fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd_.open()) throw io_error("cannot read", path_, errno);
    }
    return fd_.get();
  }

  fs::path path_;
  std::mutex mutex_;
  Fd fd_;
};

// "run/checkpoints/00000020" of a file in a checkpoint; empty: it is in none.
std::string checkpoint_of(const std::string& path) {
  constexpr std::string_view kFolder = "/checkpoints/";
  const std::size_t at = path.find(kFolder);
  if (at == std::string::npos) return "";
  const std::size_t end = path.find('/', at + kFolder.size());
  return end == std::string::npos ? "" : path.substr(0, end);
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_directories(to.parent_path(), failure);
  if (!failure) fs::rename(from, to, failure);
  if (failure) throw io_error("cannot put in place", to, failure.value());
}

}  // namespace

LeaseServer::LeaseServer(const Study& study)
    : study_(study),
      inputs_(inputs_of(study)),
      tokens_(list_files(study.dir() / "data", [](std::string_view) { return true; })),
      patience_(study.settings().lease_s),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.open()) throw io_error("cannot make", "an event", errno);
  welcome_ = {.identity = study.identity(),
              .study = study.to_toml(),
              .recipe = study.recipe_toml(),
              .inputs = {},
              .tokens = tokens_};
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    welcome_.inputs.push_back(inputs_[i].input);
    publish(study_list(i), inputs_[i].input.files, inputs_[i].root, "");
  }
  publish(study_list(inputs_.size()), tokens_, study.dir() / "data", "");
  wire::ServerOptions options;
  options.listen = study.settings().listen;
  options.identity = path_of(study.settings().identity);
  options.secret = path_of(study.settings().secret);
  if (options.secret && !path_exists(*options.secret)) wire::Secret::make(*options.secret);
  // A machine that is gone without a word is noticed within the time of a lease.
  const double lease_ms = 1000 * study.settings().lease_s;
  options.keepalive.interval_ms =
      std::min(options.keepalive.interval_ms, std::max(100, static_cast<int>(lease_ms / 2)));
  options.keepalive.timeout_ms =
      std::min(options.keepalive.timeout_ms, std::max(100, static_cast<int>(lease_ms / 2)));
  server_ =
      std::make_unique<wire::Server>(options, static_cast<wire::SessionHandler*>(this), &blobs_);
}

LeaseServer::~LeaseServer() {
  server_->stop();
}

int LeaseServer::num_workers() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [](const auto& w) { return w.second.is_ready; }));
}

void LeaseServer::opened(wire::SessionId session, const wire::Peer& peer) {
  put({Letter::Kind::kOpened, session, peer.name});
}
void LeaseServer::received(wire::SessionId session, std::string frame) {
  put({Letter::Kind::kReceived, session, std::move(frame)});
}
void LeaseServer::closed(wire::SessionId session, const std::string&) {
  put({Letter::Kind::kClosed, session, ""});
}

void LeaseServer::put(Letter letter) {
  const std::lock_guard lock(mutex_);
  letters_.push_back(std::move(letter));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = ::write(wake_.get(), &one, sizeof(one));
}

void LeaseServer::publish(const std::string& list, const std::vector<FileEntry>& files,
                          const fs::path& root, const std::string& peer) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].bytes == 0) continue;
    const auto reader = std::make_shared<FileReader>(root / files[i].path);
    wire::PublishedBlob blob = {
        .key = file_key(list, i),
        .bytes = files[i].bytes,
        .reader = [reader](std::uint64_t offset,
                           std::span<std::byte> out) { reader->read(offset, out); },
        .is_complete = true};
    if (!peer.empty()) blob.peers = {peer};
    blobs_.publish(std::move(blob));
  }
}

void LeaseServer::expect(const Trial& trial) {
  held_[trial.number] = {.id = {trial.number, trial.starts},
                         .job = {trial.number, trial.target},
                         .reached = trial.reached(),
                         .worker = trial.worker,
                         .is_claimed = false};
}

std::optional<std::string> LeaseServer::free_worker() const {
  std::map<std::string, int> busy;
  for (const auto& [trial, held] : held_) ++busy[held.worker];
  std::optional<std::string> best;
  int most = 0;
  for (const auto& [instance, worker] : workers_) {
    if (!worker.is_ready) continue;
    const auto found = busy.find(instance);
    const int free = worker.slots - (found == busy.end() ? 0 : found->second);
    if (free <= most) continue;
    most = free;
    best = instance;
  }
  return best;
}

void LeaseServer::lease(const std::string& instance, const Trial& trial, const Job& job) {
  const Worker& worker = workers_.at(instance);
  prepare_run(study_, trial, job.step);
  const LeaseId id = {trial.number, trial.starts};
  Lease message = {.id = id,
                   .step = job.step,
                   .reached = trial.reached(),
                   .settings = trial.settings,
                   .files = list_files(trial_dir(study_, trial.number), travels)};
  publish(key_of(id), message.files, trial_dir(study_, trial.number), worker.peer);
  held_[trial.number] = {.id = id, .job = job, .reached = trial.reached(), .worker = instance};
  send(instance, message);
}

std::vector<LeaseServer::Outcome> LeaseServer::step() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  std::deque<Letter> letters;
  {
    const std::lock_guard lock(mutex_);
    letters.swap(letters_);
  }
  std::vector<Outcome> outcomes;
  for (const Letter& letter : letters) take(letter, outcomes);
  const Clock::time_point now = Clock::now();
  std::vector<std::string> lost;
  for (const auto& [instance, worker] : workers_) {
    if (!worker.session && now - worker.gone_since > patience_) lost.push_back(instance);
  }
  if (now - began_ > patience_) {
    for (const auto& [trial, held] : held_) {
      if (!held.is_claimed && !workers_.contains(held.worker)) lost.push_back(held.worker);
    }
  }
  for (const std::string& instance : lost) {
    const std::string name = name_of(instance);
    workers_.erase(instance);
    give_up(instance, fmt::format("{} was not there for {} s", name, study_.settings().lease_s),
            outcomes);
  }
  return outcomes;
}

void LeaseServer::finish() {
  for (const auto& [session, instance] : instances_) {
    send(session, Over{});
    server_->close(session, "the study is over");
  }
}

void LeaseServer::take(const Letter& letter, std::vector<Outcome>& outcomes) {
  if (letter.kind == Letter::Kind::kOpened) {
    peers_[letter.session] = letter.text;
    return;
  }
  const auto known = instances_.find(letter.session);
  const std::string instance = known == instances_.end() ? "" : known->second;
  const auto found = workers_.find(instance);
  Worker* const worker =
      found == workers_.end() || found->second.session != letter.session ? nullptr : &found->second;
  if (letter.kind == Letter::Kind::kClosed) {
    peers_.erase(letter.session);
    instances_.erase(letter.session);
    if (worker == nullptr) return;
    worker->session.reset();
    worker->is_ready = false;
    worker->gone_since = Clock::now();
    return;
  }
  if (!peers_.contains(letter.session)) return;  // it was refused
  try {
    take(worker, letter.session, decode(letter.text), outcomes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged && error.kind() != ErrorKind::kUser) throw;
    // The session ends; a worker that says no nonsense next time keeps its leases.
    log::warning("{} is refused: {}", worker == nullptr ? "a worker" : worker->name, error.what());
    send(letter.session, Refused{error.what()});
    server_->close(letter.session, error.what());
    peers_.erase(letter.session);
  }
}

void LeaseServer::take(Worker* worker, wire::SessionId session, const LeaseMessage& message,
                       std::vector<Outcome>& outcomes) {
  if (const auto* first = std::get_if<Hello>(&message)) {
    if (worker != nullptr) throw damaged_error("it says hello twice");
    hello(session, *first);
    return;
  }
  if (worker == nullptr) throw damaged_error("it does not say hello first");
  const std::string instance = instances_.at(session);
  if (const auto* m = std::get_if<Ready>(&message)) {
    ready(instance, *m, outcomes);
  } else if (const auto* m = std::get_if<Ended>(&message)) {
    ended(instance, *m, outcomes);
  } else if (const auto* m = std::get_if<Delivered>(&message)) {
    delivered(instance, *m, outcomes);
  } else if (std::holds_alternative<Leaving>(message)) {
    const std::string name = worker->name;
    workers_.erase(instance);
    instances_.erase(session);
    give_up(instance, name + " has left", outcomes);
    log::info("{} has left", name);
  } else {
    throw damaged_error("a worker does not send that");
  }
}

void LeaseServer::hello(wire::SessionId session, const Hello& hello) {
  if (hello.protocol != kLeaseProtocol) {
    throw user_error(
        "{} speaks version {} of the protocol, and this tuner {}; take the same atoll on both",
        hello.name, hello.protocol, kLeaseProtocol);
  }
  if (hello.instance.empty()) throw damaged_error("it does not say which process it is");
  const std::string& peer = peers_.at(session);
  Worker& worker = workers_[hello.instance];
  if (!worker.name.empty() && worker.peer != peer) {
    throw user_error("another machine has introduced itself as {}", hello.name);
  }
  if (worker.session) {
    // Its old connection is dead, and this side has not noticed yet.
    const wire::SessionId old = *worker.session;
    instances_.erase(old);
    peers_.erase(old);
    server_->close(old, "it has connected again");
  }
  const bool is_new = worker.name.empty();
  worker.name = hello.name.empty() ? "a worker" : hello.name;
  worker.peer = peer;
  worker.slots = hello.slots;
  worker.session = session;
  worker.is_ready = false;
  instances_[session] = hello.instance;
  if (is_new) {
    log::info("{} joins with {} at a time", worker.name, counted(worker.slots, "trial"));
  }
  send(session, welcome_);
}

void LeaseServer::ready(const std::string& instance, const Ready& ready,
                        std::vector<Outcome>& outcomes) {
  std::set<LeaseId> said(ready.held.begin(), ready.held.end());
  std::vector<int> forgotten;
  for (auto& [trial, held] : held_) {
    if (held.worker != instance) continue;
    if (said.erase(held.id) > 0) {
      if (!held.is_claimed) log::info("{} still has trial {}", name_of(instance), trial);
      held.is_claimed = true;
    } else {
      forgotten.push_back(trial);
    }
  }
  for (const LeaseId& lease : said) {
    send(instance, Settled{lease, "the trial is not with this worker any more"});
  }
  for (const int trial : forgotten) {
    const Held held = std::move(held_.at(trial));
    close(trial);
    outcomes.push_back({.job = held.job,
                        .worker = name_of(instance),
                        .code = std::nullopt,
                        .line = name_of(instance) + " does not know of it"});
  }
  workers_.at(instance).is_ready = true;
}

void LeaseServer::ended(const std::string& instance, const Ended& ended,
                        std::vector<Outcome>& outcomes) {
  Held* const held = find(instance, ended.lease);
  if (held == nullptr) return;
  held->code = ended.code;
  held->line = ended.line;
  held->files = ended.files;
  // What a process that failed has left is looked at only for why: a loss that is not finite.
  const bool has_results = ended.code == 0 || ended.code == 1;
  for (const FileEntry& file : held->files) {
    if (!travels(file.path)) throw damaged_error("\"{}\" is no file of a trial", file.path);
  }
  if (has_results) {
    ask_for(*held);
    return;
  }
  outcomes.push_back(
      {.job = held->job, .worker = name_of(instance), .code = held->code, .line = held->line});
  close(ended.lease.trial);
  send(instance, Settled{ended.lease, ""});
}

void LeaseServer::ask_for(Held& held) {
  blobs_.withdraw(back_list(held.id) + "/");
  held.pieces.clear();
  held.wanted.clear();
  const fs::path root = trial_dir(study_, held.id.trial);
  const fs::path staged = staging(held.id);
  std::error_code failure;
  fs::remove_all(staged, failure);
  if (failure) throw io_error("cannot remove", staged, failure.value());
  const std::string& peer = workers_.at(held.worker).peer;
  for (std::size_t i = 0; i < held.files.size(); ++i) {
    const FileEntry& file = held.files[i];
    if (has_file(root, file)) continue;
    held.wanted.push_back(static_cast<int>(i));
    held.pieces.push_back(std::make_unique<FileInPieces>(staged / file.path, file.bytes));
    if (file.bytes == 0) continue;
    blobs_.allow_put(
        {.key = file_key(back_list(held.id), i),
         .bytes = file.bytes,
         .writer = [pieces = held.pieces.back().get()](
                       std::uint64_t offset,
                       std::span<const std::byte> data) { pieces->write(offset, data); },
         .peer = peer});
  }
  send(held.worker, Want{held.id, held.wanted});
}

void LeaseServer::delivered(const std::string& instance, const Delivered& done,
                            std::vector<Outcome>& outcomes) {
  Held* const held = find(instance, done.lease);
  if (held == nullptr) return;
  const fs::path staged = staging(held->id);
  bool is_whole = true;
  for (const int index : held->wanted) {
    const auto i = static_cast<std::size_t>(index);
    const FileEntry& file = held->files[i];
    is_whole &= file.bytes == 0 || blobs_.is_put(file_key(back_list(held->id), i));
  }
  if (is_whole) {
    blobs_.withdraw(back_list(held->id) + "/");
    for (const auto& pieces : held->pieces) pieces->sync();
    held->pieces.clear();
    is_whole = std::all_of(held->wanted.begin(), held->wanted.end(), [&](int index) {
      return has_file(staged, held->files[static_cast<std::size_t>(index)]);
    });
  }
  if (!is_whole) {
    log::warning("what {} has sent of trial {} is not what it said; it is asked for it again",
                 name_of(instance), held->id.trial);
    ask_for(*held);
    return;
  }
  install(*held);
  outcomes.push_back(
      {.job = held->job, .worker = name_of(instance), .code = held->code, .line = held->line});
  close(done.lease.trial);
  send(instance, Settled{done.lease, ""});
}

// Checkpoints last and whole: a tuner that is killed in between finds records without a
// checkpoint, as of a run that was killed, and never the reverse.
void LeaseServer::install(const Held& held) const {
  const fs::path root = trial_dir(study_, held.id.trial);
  const fs::path staged = staging(held.id);
  std::set<std::string> checkpoints, names;
  for (const int index : held.wanted) {
    const std::string& path = held.files[static_cast<std::size_t>(index)].path;
    if (const std::string checkpoint = checkpoint_of(path); !checkpoint.empty()) {
      checkpoints.insert(checkpoint);
    } else {
      move_file(staged / path, root / path);
    }
  }
  std::error_code failure;
  for (const FileEntry& file : held.files) {
    names.insert(file.path);
    if (!checkpoints.contains(checkpoint_of(file.path)) || path_exists(staged / file.path)) {
      continue;
    }
    move_file(root / file.path, staged / file.path);
  }
  for (const std::string& checkpoint : checkpoints) {
    fs::remove_all(root / checkpoint, failure);
    if (failure) throw io_error("cannot remove", root / checkpoint, failure.value());
    move_file(staged / checkpoint, root / checkpoint);
    sync_directory((root / checkpoint).parent_path());
  }
  // What the run itself has removed: older checkpoints.
  std::set<std::string> gone;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = entry.path().lexically_relative(root).generic_string();
    const std::string checkpoint = checkpoint_of(path);
    if (!checkpoint.empty() && entry.is_regular_file() && travels(path) && !names.contains(path)) {
      gone.insert(checkpoint);
    }
  }
  for (const std::string& checkpoint : gone) {
    const bool is_kept = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return checkpoint_of(name) == checkpoint;
    });
    if (!is_kept) fs::remove_all(root / checkpoint, failure);
  }
  fs::remove_all(staged, failure);
}

LeaseServer::Held* LeaseServer::find(const std::string& instance, const LeaseId& lease) {
  const auto found = held_.find(lease.trial);
  if (found != held_.end() && found->second.id == lease && found->second.worker == instance) {
    return &found->second;
  }
  send(instance, Settled{lease, "the trial is not with this worker any more"});
  return nullptr;
}

void LeaseServer::give_up(const std::string& instance, const std::string& why,
                          std::vector<Outcome>& outcomes) {
  std::vector<int> trials;
  for (const auto& [trial, held] : held_) {
    if (held.worker == instance) trials.push_back(trial);
  }
  for (const int trial : trials) {
    outcomes.push_back(
        {.job = held_.at(trial).job, .worker = instance, .code = std::nullopt, .line = why});
    close(trial);
  }
}

void LeaseServer::close(int trial) {
  const auto found = held_.find(trial);
  if (found == held_.end()) return;
  blobs_.withdraw(key_of(found->second.id) + "/");
  std::error_code ignored;
  fs::remove_all(staging(found->second.id), ignored);
  held_.erase(found);
}

void LeaseServer::send(wire::SessionId session, const LeaseMessage& message) {
  std::string frame = encode(message);
  if (frame.size() > wire::kMaxFrameBytes) {
    throw user_error("{} has too many files to be sent to workers: their list is {} MB",
                     study_.dir().string(), frame.size() >> 20);
  }
  server_->send(session, std::move(frame));
}

void LeaseServer::send(const std::string& instance, const LeaseMessage& message) {
  const auto found = workers_.find(instance);
  if (found == workers_.end() || !found->second.session) return;
  send(*found->second.session, message);
}

std::string LeaseServer::name_of(const std::string& instance) const {
  const auto found = workers_.find(instance);
  return found == workers_.end() ? "its worker" : found->second.name;
}

fs::path LeaseServer::staging(const LeaseId& lease) const {
  return trial_dir(study_, lease.trial) / fmt::format(".incoming-{}", lease.number);
}

}  // namespace atl::tune
