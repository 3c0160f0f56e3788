// Collectives among threads beside what a plain copy allows: ranks that meet, each copy as many
// bytes from another's memory as the collective must read and write, and meet again; and beside
// that copy alone.
//
//   comm_bench --ranks 2 4
//
// Rank r keeps to core r % cores (--no-pin: to none): where the scheduler now and then puts two
// ranks on one core, a median is of two different machines.
//
// What another backend does is measured by programs of its own, with the same compare().

#include <sched.h>

#include <CLI/CLI.hpp>
#include <barrier>
#include <cstring>
#include <vector>

#include "comm_compare.h"

namespace atl::bench {
namespace {

/// A copy from the next rank's memory between two meetings, with the standard library alone.
class MeetingCopy {
 public:
  explicit MeetingCopy(int ranks) : barrier_(ranks), data_(static_cast<std::size_t>(ranks)) {}

  Link link() {
    return {"meet, copy, meet", [this](const Job& job) {
              data_[static_cast<std::size_t>(job.rank)] = job.data;
              barrier_.arrive_and_wait();
              const float* next = data_[static_cast<std::size_t>((job.rank + 1) % job.ranks)];
              std::memcpy(job.spare, next, job.copied_bytes());
              barrier_.arrive_and_wait();
            }};
  }

 private:
  std::barrier<> barrier_;
  std::vector<const float*> data_;
};

/// Keeps the calling thread to one of the cores that this process may use.
void pin(int rank) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int left = rank % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  CLI::App app("Collectives among threads, beside plain copies");
  std::vector<int> ranks{2, 4};
  atl::bench::Sweep sweep;
  app.add_option("--ranks", ranks, "numbers of ranks");
  app.add_option("--smallest", sweep.smallest, "bytes of data");
  app.add_option("--largest", sweep.largest, "bytes of data");
  app.add_option("--rounds", sweep.rounds, "timings of each");
  bool pinned = true;
  app.add_flag("--pin,!--no-pin", pinned, "keep each rank to one core");
  CLI11_PARSE(app, argc, argv);
  for (const int size : ranks) {
    atl::bench::MeetingCopy copy(size);
    atl::comm::run_threads(size, {}, [&](atl::comm::World& world) {
      using namespace atl::bench;
      if (pinned) pin(world.rank());
      compare(world, {of_world(world, "threads"), copy.link(), plain_copy()}, sweep);
    });
  }
}
