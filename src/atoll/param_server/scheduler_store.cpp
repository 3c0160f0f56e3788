#include "atoll/param_server/scheduler_store.h"

#include "atoll/base/files/paths.h"
#include "atoll/param_server/hashed_file.h"
#include "atoll/wire/archive.h"

namespace atl::param_server {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "scheduler";
constexpr const char* kEpochFile = "epoch";

const fs::path& made(const fs::path& dir) {
  make_directory(dir);
  return dir;
}

std::uint64_t epoch_of(const fs::path& dir) {
  if (!path_exists(dir / kEpochFile)) return 0;
  std::uint64_t epoch = 0;
  const std::string bytes = read_hashed(dir / kEpochFile);
  wire::Reader reader(bytes);
  reader(epoch);
  reader.end();
  return epoch;
}

}  // namespace

SchedulerStore::SchedulerStore(const fs::path& dir)
    : dir_(dir),
      lock_(made(dir), "a run has one scheduler: end that process, or give another --dir") {
  if (!path_exists(dir_ / kStateFile)) return;
  const std::string bytes = read_hashed(dir_ / kStateFile);
  wire::Reader reader(bytes);
  std::string state;
  reader(address_);
  reader(state);
  reader.end();
  found_ = decode_scheduler(state);
}

void SchedulerStore::write(const SchedulerState& state, const std::string& address) {
  const std::uint64_t newest = epoch_of(dir_);
  if (newest > state.term.epoch) {
    throw make_error(ErrorKind::kPeer,
                     "a scheduler of epoch {} has written to {}, and this one is of epoch {}: it "
                     "ends, and the newer one goes on",
                     newest, dir_.string(), state.term.epoch);
  }
  if (newest < state.term.epoch) {
    wire::Writer epoch;
    epoch(state.term.epoch);
    write_hashed(dir_ / kEpochFile, epoch.take());
  }
  wire::Writer writer;
  writer(address);
  writer(encode(state));
  write_hashed(dir_ / kStateFile, writer.take());
}

void SchedulerStore::remove() {
  std::error_code error;
  for (const char* file : {kStateFile, kEpochFile}) {
    fs::remove(dir_ / file, error);
    if (error) throw io_error("cannot remove", dir_ / file, error.value());
  }
}

}  // namespace atl::param_server
