#include "atoll/comm/mpi/network.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "atoll/comm/world.h"

namespace atl::comm::mpi {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongest = std::size_t{1} << 30;
constexpr std::size_t kSends = ~std::size_t{0};
constexpr int kNoteTag = 1, kFirstTag = 2;
// Polls before this rank yields its core for a while: MPI has no wait with a timeout.
constexpr int kPolls = 2000;
constexpr auto kNap = std::chrono::microseconds(50);
// How long a rank that ends tries to tell the others.
constexpr auto kLastWords = std::chrono::milliseconds(500);

}  // namespace

Communicator::Communicator(std::shared_ptr<MpiRuntime> the_runtime)
    : runtime(std::move(the_runtime)) {
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check(MPI_Irecv(&note, sizeof(note), MPI_BYTE, MPI_ANY_SOURCE, kNoteTag, comm, &note_request),
        "MPI_Irecv");
}

Communicator::~Communicator() {
  // While an exception is on its way the other ranks do not know of the error, and MPI_Finalize
  // would wait for them.
  if (failed || std::uncaught_exceptions() > 0) {
    runtime->abandon();
    return;
  }
  if (!note_has_come) {
    MPI_Cancel(&note_request);
    MPI_Wait(&note_request, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&comm);
}

MpiNetwork::MpiNetwork(std::shared_ptr<MpiRuntime> runtime, double timeout_s)
    : MpiNetwork(std::make_shared<Communicator>(std::move(runtime)), timeout_s, 0) {}

MpiNetwork::MpiNetwork(std::shared_ptr<Communicator> communicator, double timeout_s, int number)
    : communicator_(std::move(communicator)), timeout_s_(timeout_s), tag_(kFirstTag + number) {}

MpiNetwork::~MpiNetwork() {
  if (open_ != 0) communicator_->failed = true;
}

// Between a pair MPI matches by tag, so a channel need not know its members.
std::unique_ptr<Network> MpiNetwork::open_network(int number, std::span<const int> /*members*/) {
  return std::make_unique<MpiNetwork>(communicator_, timeout_s_, number);
}

void MpiNetwork::add(bool sends, int peer, std::byte* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kLongest) {
    const std::size_t piece = std::min(kLongest, bytes - done);
    const int count = static_cast<int>(piece);
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    if (sends) {
      check(MPI_Isend(data + done, count, MPI_BYTE, peer, tag_, communicator_->comm, &request),
            "MPI_Isend");
    } else {
      check(MPI_Irecv(data + done, count, MPI_BYTE, peer, tag_, communicator_->comm, &request),
            "MPI_Irecv");
    }
    peers_.push_back(peer);
    expected_.push_back(sends ? kSends : piece);
    ++open_;
  }
}

void MpiNetwork::post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  const std::lock_guard lock(communicator_->mutex);
  requests_.clear();
  peers_.clear();
  expected_.clear();
  for (const Incoming& in : incoming)
    add(false, in.from, static_cast<std::byte*>(in.data), in.bytes);
  for (const Outgoing& out : outgoing)
    add(true, out.to, static_cast<std::byte*>(const_cast<void*>(out.data)), out.bytes);
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
}

bool MpiNetwork::test() {
  if (open_ == 0) return true;
  int done = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done,
                                indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  for (int i = 0; i < done; ++i) {
    const auto index = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    --open_;
    const int peer = peers_[index];
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR == MPI_ERR_TRUNCATE) {
      communicator_->failed = true;
      throw PeerError(peer, fmt::format("rank {} sends more than the {} bytes that rank {} "
                                        "expects",
                                        peer, expected_[index], rank()));
    }
    if (code == MPI_ERR_IN_STATUS) check(status.MPI_ERROR, "MPI_Testsome");
    if (expected_[index] == kSends) continue;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<std::size_t>(count) == expected_[index]) continue;
    communicator_->failed = true;
    throw PeerError(peer, fmt::format("rank {} sends {} bytes where rank {} expects {}", peer,
                                      count, rank(), expected_[index]));
  }
  return open_ == 0;
}

void MpiNetwork::check_notes() {
  const std::lock_guard lock(communicator_->mutex);
  Communicator& all = *communicator_;
  if (!all.note_has_come) {
    int come = 0;
    check(MPI_Test(&all.note_request, &come, MPI_STATUS_IGNORE), "MPI_Test");
    all.note_has_come = come != 0;
  }
  if (!all.note_has_come) return;
  all.failed = true;
  const Communicator::Note& note = all.note;
  throw PeerError(note.rank, std::string(note.text, ::strnlen(note.text, sizeof(note.text))));
}

void MpiNetwork::progress() {
  test_alone();
}

bool MpiNetwork::test_alone() {
  const std::lock_guard lock(communicator_->mutex);
  return test();
}

void MpiNetwork::finish() {
  const auto start = Clock::now();
  for (int polls = 1; !test_alone(); ++polls) {
    if (polls % 64 != 0) {
      ::sched_yield();
      continue;
    }
    if (ending_) throw PeerError(rank(), "this rank ends with an error");
    check_notes();
    if (std::chrono::duration<double>(Clock::now() - start).count() > timeout_s_) time_out();
    if (polls > kPolls) std::this_thread::sleep_for(kNap);
  }
}

void MpiNetwork::time_out() {
  std::set<int> missing;
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL) missing.insert(peers_[i]);
  communicator_->failed = true;
  throw PeerError(*missing.begin(),
                  fmt::format("rank{} {} did not answer within {} s", missing.size() > 1 ? "s" : "",
                              fmt::join(missing, ", "), timeout_s_));
}

void MpiNetwork::give_up(int rank, const std::string& why) noexcept {
  // Not MPI_Abort, which ends this process before it can say anything: the others get a note, end
  // by themselves, and mpirun ends those that do not.
  communicator_->failed = true;
  ending_ = true;
  const std::lock_guard lock(communicator_->mutex);
  if (std::exchange(communicator_->has_told, true)) return;
  Communicator::Note note = {rank, {}};
  std::memcpy(note.text, why.data(), std::min(why.size(), sizeof(note.text) - 1));
  std::vector<MPI_Request> requests;
  for (int peer = 0; peer < communicator_->size; ++peer) {
    if (peer == communicator_->rank) continue;
    MPI_Isend(&note, sizeof(note), MPI_BYTE, peer, kNoteTag, communicator_->comm,
              &requests.emplace_back(MPI_REQUEST_NULL));
  }
  const auto end = Clock::now() + kLastWords;
  int done = 0;
  while (done == 0 && Clock::now() < end) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    std::this_thread::yield();
  }
}

}  // namespace atl::comm::mpi
