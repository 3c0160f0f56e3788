#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/comm/mpi/session.h"
#include "atoll/comm/shared/network.h"

namespace atl::comm::mpi {

/// Messages through MPI. Sizes match one to one and order is kept by MPI itself; long messages are
/// cut, because MPI counts bytes in an int.
class MpiNetwork : public Network {
 public:
  MpiNetwork(std::shared_ptr<Session> session, double timeout_s);
  ~MpiNetwork() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "mpi"; }
  void post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void progress() override;
  void finish() override;
  void give_up(int rank, const std::string& why) noexcept override;

 private:
  struct Note {  // of give_up() elsewhere
    int rank;
    char text[1020];
  };
  void add(bool sends, int peer, std::byte* data, std::size_t bytes);
  bool test();
  bool test_alone();
  void check_notes();
  [[noreturn]] void time_out();

  std::shared_ptr<Session> session_;  // shared with other Worlds, see Session::get
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  double timeout_s_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;             // of each request
  std::vector<std::size_t> expected_;  // bytes of each that receives; kSends of each that sends
  std::vector<int> indices_;           // scratch of MPI_Testsome
  std::vector<MPI_Status> statuses_;
  std::size_t open_ = 0;
  Note note_ = {};
  MPI_Request note_request_ = MPI_REQUEST_NULL;
  std::mutex mutex_;  // MPI is told that one thread calls it at a time
  std::atomic<bool> failed_{false};
  std::atomic<bool> ending_{false};  // abort() waits for the mutex
};

}  // namespace atl::comm::mpi
