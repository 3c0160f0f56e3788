#include "atoll/tune/lease/lease_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/tune/trial/trial_run.h"
#include "atoll/wire/secret.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> path_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace

LeaseServer::LeaseServer(const Study& study)
    : study_(study),
      inputs_(inputs_of(study)),
      tokens_(list_files(study.dir() / "data", [](std::string_view) { return true; })),
      patience_(study.settings().lease_s),
      files_(study) {
  welcome_ = {.identity = study.identity(),
              .study = study.to_toml(),
              .recipe = study.recipe_toml(),
              .inputs = {},
              .tokens = tokens_};
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    welcome_.inputs.push_back(inputs_[i].input);
    files_.publish(study_list(i), inputs_[i].input.files, inputs_[i].root, "");
  }
  files_.publish(study_list(inputs_.size()), tokens_, study.dir() / "data", "");
  wire::ServerOptions options;
  options.listen = study.settings().listen;
  options.identity = path_of(study.settings().identity);
  options.secret = path_of(study.settings().secret);
  if (options.secret && !path_exists(*options.secret)) wire::Secret::make(*options.secret);
  // So that a machine that fails without closing its connection is noticed within lease_s.
  const double lease_ms = 1000 * study.settings().lease_s;
  options.keepalive.interval_ms =
      std::min(options.keepalive.interval_ms, std::max(100, static_cast<int>(lease_ms / 2)));
  options.keepalive.timeout_ms =
      std::min(options.keepalive.timeout_ms, std::max(100, static_cast<int>(lease_ms / 2)));
  server_ = std::make_unique<wire::Server>(options, static_cast<wire::SessionHandler*>(this),
                                           &files_.blobs());
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
  wake_.wake();
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
  files_.publish(key_of(id), message.files, trial_dir(study_, trial.number), worker.peer);
  held_[trial.number] = {.id = id, .job = job, .reached = trial.reached(), .worker = instance};
  send(instance, message);
}

std::vector<LeaseServer::Outcome> LeaseServer::step() {
  wake_.clear();
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
    give_up(instance, fmt::format("{} was not connected for {} s", name, study_.settings().lease_s),
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
  if (!peers_.contains(letter.session)) return;  // the session was refused or replaced
  try {
    take(worker, letter.session, decode(letter.text), outcomes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged && error.kind() != ErrorKind::kUser) throw;
    // Only the session ends: the worker keeps its leases when it connects again and is accepted.
    log::warning("{} is refused: {}", worker == nullptr ? "a worker" : worker->name, error.what());
    send(letter.session, Refused{error.what()});
    server_->close(letter.session, error.what());
    peers_.erase(letter.session);
  }
}

void LeaseServer::take(Worker* worker, wire::SessionId session, const LeaseMessage& message,
                       std::vector<Outcome>& outcomes) {
  if (const auto* first = std::get_if<Hello>(&message)) {
    if (worker != nullptr) throw damaged_error("the worker has sent Hello twice on one connection");
    hello(session, *first);
    return;
  }
  if (worker == nullptr) {
    throw damaged_error(
        "the worker's first message is not Hello; run the same version of atoll on both machines");
  }
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
    throw damaged_error(
        "the worker has sent a message that only a tuner sends; run the same version of atoll on "
        "both machines");
  }
}

void LeaseServer::hello(wire::SessionId session, const Hello& hello) {
  if (hello.protocol != kLeaseProtocol) {
    throw user_error(
        "the worker \"{}\" speaks version {} of the protocol, and this tuner speaks version {}; "
        "run the same version of atoll on both machines",
        hello.name, hello.protocol, kLeaseProtocol);
  }
  if (hello.instance.empty()) throw damaged_error("the Hello of {} has no instance", hello.name);
  const std::string& peer = peers_.at(session);
  Worker& worker = workers_[hello.instance];
  if (!worker.name.empty() && worker.peer != peer) {
    throw user_error(
        "{} had the certificate of {} before, and has that of {} now; use the earlier certificate, "
        "or start the worker with another --dir",
        worker.name, worker.peer, peer);
  }
  if (worker.session) {
    // The worker has lost its old connection, and this side has not noticed yet.
    const wire::SessionId old = *worker.session;
    instances_.erase(old);
    peers_.erase(old);
    server_->close(old, "the worker has connected again");
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
    send(instance, Settled{lease, "the trial is no longer leased to this worker"});
  }
  for (const int trial : forgotten) {
    const Held held = std::move(held_.at(trial));
    close(trial);
    outcomes.push_back({.job = held.job,
                        .worker = name_of(instance),
                        .code = std::nullopt,
                        .line = name_of(instance) + " does not know the lease"});
  }
  workers_.at(instance).is_ready = true;
}

void LeaseServer::ended(const std::string& instance, const Ended& ended,
                        std::vector<Outcome>& outcomes) {
  Held* const held = find(instance, ended.lease);
  if (held == nullptr) return;
  held->code = ended.code;
  held->line = ended.line;
  // Exit status 1 may mean a loss that is not finite, which the trial's files show. The files of
  // any other failure are not needed.
  const bool has_results = ended.code == 0 || ended.code == 1;
  for (const FileEntry& file : ended.files) {
    if (!travels(file.path)) throw damaged_error("\"{}\" is not a file of a trial", file.path);
  }
  if (has_results) {
    held->files = ended.files;
    ask_for(*held);
    return;
  }
  outcomes.push_back(
      {.job = held->job, .worker = name_of(instance), .code = held->code, .line = held->line});
  close(ended.lease.trial);
  send(instance, Settled{ended.lease, ""});
}

void LeaseServer::ask_for(const Held& held) {
  const std::string& peer = workers_.at(held.worker).peer;
  send(held.worker, Want{held.id, files_.expect(held.id, held.files, peer)});
}

void LeaseServer::delivered(const std::string& instance, const Delivered& done,
                            std::vector<Outcome>& outcomes) {
  const Held* const held = find(instance, done.lease);
  if (held == nullptr) return;
  if (!files_.is_expected(held->id)) {
    // The tuner's previous process had asked for the files. The worker sends Ended again when it
    // connects again.
    server_->close(*workers_.at(instance).session,
                   "the tuner was restarted and has not asked for these files");
    return;
  }
  if (!files_.install(held->id)) {
    log::warning("trial {}: files from {} are missing or damaged; the tuner asks for them again",
                 held->id.trial, name_of(instance));
    ask_for(*held);
    return;
  }
  outcomes.push_back(
      {.job = held->job, .worker = name_of(instance), .code = held->code, .line = held->line});
  close(done.lease.trial);
  send(instance, Settled{done.lease, ""});
}

LeaseServer::Held* LeaseServer::find(const std::string& instance, const LeaseId& lease) {
  const auto found = held_.find(lease.trial);
  if (found != held_.end() && found->second.id == lease && found->second.worker == instance) {
    return &found->second;
  }
  send(instance, Settled{lease, "the trial is no longer leased to this worker"});
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
  files_.withdraw(found->second.id);
  held_.erase(found);
}

void LeaseServer::send(wire::SessionId session, const LeaseMessage& message) {
  std::string frame = encode(message);
  if (frame.size() > wire::kMaxFrameBytes) {
    throw user_error(
        "{}: the list of files for a worker makes a message of {} bytes, and the limit is {}; name "
        "fewer files in the recipe (data.text, data.shards), or train without study.listen",
        study_.dir().string(), frame.size(), wire::kMaxFrameBytes);
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

}  // namespace atl::tune
