#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/comm/mpi/runtime.h"
#include "atoll/comm/shared/network.h"

namespace atl::comm::mpi {

/// A communicator of our own, which the networks of one world share: nobody else's messages can
/// match ours. MPI is told that one thread calls it at a time, so each caller holds `mutex`.
struct Communicator {
  explicit Communicator(std::shared_ptr<MpiRuntime> the_runtime);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  struct Note {  // of give_up() elsewhere
    int rank;
    char text[1020];
  };
  std::mutex mutex;
  std::shared_ptr<MpiRuntime> runtime;  // shared with other Worlds, see MpiRuntime::get
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  Note note = {};
  MPI_Request note_request = MPI_REQUEST_NULL;
  bool note_has_come = false;
  bool has_told = false;            // the others, by a note
  std::atomic<bool> failed{false};  // in whichever channel
};

/// Messages through MPI. Sizes match one to one and order is kept by MPI itself; long messages are
/// cut, because MPI counts bytes in an int.
class MpiNetwork : public Network {
 public:
  MpiNetwork(std::shared_ptr<MpiRuntime> runtime, double timeout_s);
  /// Another one, whose messages have a tag of their own.
  MpiNetwork(std::shared_ptr<Communicator> communicator, double timeout_s, int number);
  ~MpiNetwork() override;

  int rank() const override { return communicator_->rank; }
  int size() const override { return communicator_->size; }
  std::string name() const override { return "mpi"; }
  void post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void progress() override;
  void finish() override;
  void give_up(int rank, const std::string& why) noexcept override;
  std::unique_ptr<Network> open_network(int number, std::span<const int> members) override;

 private:
  void add(bool sends, int peer, std::byte* data, std::size_t bytes);
  bool test();
  bool test_alone();
  void check_notes();
  [[noreturn]] void time_out();

  std::shared_ptr<Communicator> communicator_;  // shared by the world's networks
  double timeout_s_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;             // of each request
  std::vector<std::size_t> expected_;  // bytes of each that receives; kSends of each that sends
  std::vector<int> indices_;           // scratch of MPI_Testsome
  std::vector<MPI_Status> statuses_;
  std::size_t open_ = 0;
  std::atomic<bool> ending_{false};  // abort() waits for the mutex
};

}  // namespace atl::comm::mpi
