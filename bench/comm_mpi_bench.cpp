// Collectives among processes beside those of MPI and Gloo themselves. On one host, through windows
// of shared memory:
//
//   mpirun -n 2 comm_mpi_bench
//
// and over TCP, with sockets of ours, and as ours over Gloo:
//
//   mpirun -n 2 --mca btl tcp,self --mca pml ob1 comm_mpi_bench --tcp [--gloo]

#include <stdexcept>
// Gloo's headers forget it.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
#include "atoll/comm/tcp/world.h"
#include "comm_compare.h"

namespace atl::bench {
namespace {

int part_of(const Job& job) {
  return static_cast<int>(job.count / job.ranks);
}

/// MPI_Allreduce, MPI_Reduce_scatter and MPI_Allgather.
Link of_mpi() {
  return {"MPI's own", [](const Job& job) {
            const std::vector<int> parts(static_cast<std::size_t>(job.ranks), part_of(job));
            if (job.what == What::kAllReduce)
              MPI_Allreduce(MPI_IN_PLACE, job.data, static_cast<int>(job.count), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD);
            else if (job.what == What::kReduceScatter)
              MPI_Reduce_scatter(job.data, job.spare, parts.data(), MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
            else
              MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, job.data, part_of(job), MPI_FLOAT,
                            MPI_COMM_WORLD);
          }};
}

/// Gloo's functions; its reduce_scatter exists only as a class that keeps buffers.
class Gloo {
 public:
  Gloo(const std::string& directory, int rank, int size) {
    ::gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = ::gloo::transport::tcp::CreateDevice(attr);
    context_ = std::make_shared<::gloo::rendezvous::Context>(rank, size);
    ::gloo::rendezvous::FileStore store(directory);
    context_->connectFullMesh(store, device);
  }

  Link link() {
    return {"Gloo's own", [this](const Job& job) { call(job); }};
  }

 private:
  void call(const Job& job) {
    const auto count = static_cast<std::size_t>(job.count);
    if (job.what == What::kAllReduce) {
      ::gloo::AllreduceOptions options(context_);
      options.setOutput(job.data, count);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::sum<float>));
      return ::gloo::allreduce(options);
    }
    if (job.what == What::kAllGather) {
      const auto part = static_cast<std::size_t>(part_of(job));
      ::gloo::AllgatherOptions options(context_);
      options.setInput(job.data + part * static_cast<std::size_t>(job.rank), part);
      options.setOutput(job.spare, count);
      return ::gloo::allgather(options);
    }
    if (!scatter_ || job.count != scatter_count_) {
      const std::vector<int> parts(static_cast<std::size_t>(job.ranks), part_of(job));
      scatter_.emplace(context_, std::vector<float*>{job.data}, static_cast<int>(job.count), parts);
      scatter_count_ = job.count;
    }
    scatter_->run();
  }

  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::optional<::gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  std::int64_t scatter_count_ = 0;
};

/// A directory that all ranks of this host see, gone when rank 0 is done.
std::string shared_directory(comm::World& world) {
  std::int64_t pid = ::getpid();
  world.all().broadcast({&pid, {Dtype::kI64, {1}}}, 0);
  const auto path = std::filesystem::temp_directory_path() / fmt::format("atoll-bench-{}", pid);
  std::filesystem::create_directories(path / "gloo");
  world.all().barrier();
  return path.string();
}

void run_over_tcp(comm::World& mpi, bool with_gloo, const Sweep& sweep) {
  const std::string directory = shared_directory(mpi);
  {
    const int rank = mpi.rank(), size = mpi.size();
    const auto world = comm::open_tcp({.rank = rank,
                                       .size = size,
                                       .rendezvous = "file://" + directory,
                                       .address = "127.0.0.1",
                                       .generation = 0,
                                       .shared_memory = false},
                                      {});
    Gloo gloo(directory + "/gloo", rank, size);
    std::vector<Link> links = {of_world(*world, "ours"), of_mpi(), gloo.link()};
    std::unique_ptr<comm::World> over_gloo;
    if (with_gloo) {
      over_gloo = comm::open_gloo({.rank = rank,
                                   .size = size,
                                   .rendezvous = "file://" + directory,
                                   .address = "127.0.0.1",
                                   .interface = {},
                                   .generation = 1,
                                   .shared_memory = false},
                                  {});
      links.push_back(of_world(*over_gloo, "ours over Gloo"));
    }
    compare(*world, links, sweep);
    world->all().barrier();
  }
  if (mpi.rank() == 0) std::filesystem::remove_all(directory);
}

void run(bool tcp, bool with_gloo, const Sweep& sweep) {
  const auto mpi = comm::open_mpi({}, {.shared_memory = !tcp});
  if (tcp) return run_over_tcp(*mpi, with_gloo, sweep);
  compare(*mpi, {of_world(*mpi, "ours"), of_mpi(), plain_copy()}, sweep);
}

}  // namespace
}  // namespace atl::bench

int main(int argc, char** argv) {
  CLI::App app("Collectives among processes, beside MPI's and Gloo's own");
  bool tcp = false, with_gloo = false;
  atl::bench::Sweep sweep;
  app.add_flag("--tcp", tcp, "over TCP instead of shared memory");
  app.add_flag("--gloo", with_gloo, "with --tcp: ours over Gloo beside them");
  app.add_option("--smallest", sweep.smallest, "bytes of data");
  app.add_option("--largest", sweep.largest, "bytes of data");
  app.add_option("--rounds", sweep.rounds, "timings of each");
  CLI11_PARSE(app, argc, argv);
  atl::bench::run(tcp, with_gloo, sweep);
}
