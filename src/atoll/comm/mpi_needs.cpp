#include "atoll/comm/mpi_needs.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"

namespace atl::comm {

namespace fs = std::filesystem;

namespace {

// Two ranks of Open MPI 4.1 end in order with 16 MiB in its session directory; with 8 MiB they hang
// at their end.
constexpr std::uint64_t kSessionBytes = std::uint64_t{16} << 20;
// A rank's segment (btl_vader_segment_size), and the twentieth that Open MPI asks for beside it.
constexpr std::uint64_t kMemoryBytes = (std::uint64_t{4} << 20) / 20 * 21;

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const fs::path& place, const std::string& why, const char* way) {
  throw user_error("Open MPI needs {}, which {}; {}, or use --backend=gloo", place.string(), why,
                   way);
}

void check_room(const fs::path& place, std::uint64_t needed, const char* way) {
  struct statvfs room {};
  if (::statvfs(place.c_str(), &room) != 0) return;  // its own words are better than a guess
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= needed) return;
  refuse(
      place,
      fmt::format("has {} free of the {} that it takes", format_bytes(free), format_bytes(needed)),
      way);
}

}  // namespace

MpiPlaces mpi_places() {
  MpiPlaces places = {.session = "/tmp", .memory = "/dev/shm"};
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    const std::string value = value_of(name);
    if (value.empty()) continue;
    places.session = value;
    break;
  }
  const std::string transports = value_of("OMPI_MCA_btl");
  const bool is_chosen = !transports.empty() && transports.find("vader") == transports.npos;
  if (is_chosen || ::access(places.memory.c_str(), W_OK) != 0) places.memory.clear();
  const std::string directory = value_of("OMPI_MCA_btl_vader_backing_directory");
  if (!directory.empty()) places.memory = directory;
  return places;
}

void check_mpi_places(const MpiPlaces& places) {
  constexpr const char* kElsewhere = "make room, or set TMPDIR to another directory";
  std::error_code error;
  fs::create_directories(places.session, error);  // as Open MPI does
  std::string name = (places.session / "atoll-mpi-XXXXXX").string();
  if (error || ::mkdtemp(name.data()) == nullptr) {
    refuse(places.session,
           fmt::format("cannot be written to ({})",
                       error ? error.message() : std::string(std::strerror(errno))),
           "set TMPDIR to another directory");
  }
  fs::remove(name, error);
  check_room(places.session, kSessionBytes, kElsewhere);
  if (places.memory.empty()) return;
  check_room(places.memory, kMemoryBytes, "make room (in a container: --shm-size)");
}

void check_mpi_pmi(const fs::path& libraries) {
  const auto has = [](const char* name) { return std::getenv(name) != nullptr; };
  const bool is_asked = has("SLURM_STEP_ID") && (has("PMI_RANK") || has("PMI_FD"));
  if (!is_asked || has("PMIX_RANK") || has("OMPI_COMM_WORLD_RANK")) return;
  // Beside the library; on Debian in a folder of Open MPI's own.
  for (const char* folder : {"openmpi3", "openmpi", "openmpi/lib/openmpi3"}) {
    const fs::path components = libraries / folder;
    std::error_code none;
    if (!fs::exists(components / "mca_pmix_isolated.so", none)) continue;
    for (const char* component : {"mca_pmix_s1.so", "mca_pmix_s2.so"}) {
      if (fs::exists(components / component, none)) return;
    }
    throw user_error(
        "srun has started this with a PMI that Open MPI was built without (no mca_pmix_s2.so in "
        "{}); use `srun --mpi=pmix`, or --backend=gloo",
        components.string());
  }
}

}  // namespace atl::comm
