#include "atoll/comm/mpi/runtime.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "atoll/comm/mpi_needs.h"

namespace atl::comm::mpi {

namespace {

// As Open MPI's mpirun, or srun, has started us.
bool is_on_one_host() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  const std::string_view all = value("OMPI_COMM_WORLD_SIZE");
  if (!all.empty()) return all == value("OMPI_COMM_WORLD_LOCAL_SIZE");
  return value("SLURM_STEP_NUM_NODES") == "1";
}

// By default each rank of Open MPI listens at all addresses of the host, in plain text, even when
// the ranks only use shared memory. A choice that the user has made is kept.
void stay_within_the_host() {
  ::setenv("OMPI_MCA_pml", "ob1", 0);
  ::setenv("OMPI_MCA_btl", "self,vader", 0);
}

// Where the library is that this process has loaded.
std::filesystem::path libraries_of_mpi() {
  Dl_info info{};
  std::error_code none;
  if (::dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::canonical(info.dli_fname, none).parent_path();
}

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw make_error(ErrorKind::kInternal, "{} failed: {}", call,
                   std::string_view(text, static_cast<std::size_t>(length)));
}

std::shared_ptr<MpiRuntime> MpiRuntime::get() {
  // MPI keeps one state per process and can be begun once; this says who still uses it.
  static std::mutex mutex;
  static std::weak_ptr<MpiRuntime> open;
  const std::lock_guard lock(mutex);
  std::shared_ptr<MpiRuntime> runtime = open.lock();
  if (!runtime) open = runtime = std::make_shared<MpiRuntime>();
  return runtime;
}

MpiRuntime::MpiRuntime() {
  int begun = 0, ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0)
    throw user_error(
        "MPI has ended in this process, and it can begin only once; keep one World "
        "over mpi open for as long as another may be needed");
  MPI_Initialized(&begun);
  int level = MPI_THREAD_SINGLE;
  if (begun != 0) {
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    if (is_on_one_host()) stay_within_the_host();
    check_mpi_pmi(libraries_of_mpi());
    check_mpi_places(mpi_places());
    // Our threads take turns: the one that calls, and the one of started collectives.
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    ours_ = true;
  }
  if (level < MPI_THREAD_SERIALIZED)
    throw user_error(
        "this MPI was built without threads (level {}); atoll needs "
        "MPI_THREAD_SERIALIZED: use another MPI or --backend=gloo",
        level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiRuntime::~MpiRuntime() {
  if (ours_ && !abandoned_) MPI_Finalize();
}

}  // namespace atl::comm::mpi
