#include "atoll/cli/pages/serve_log.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/run_lock.h"
#include "atoll/metrics/jsonl_sink.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

fs::path made(const fs::path& directory) {
  if (path_exists(directory / "settings.toml")) {
    throw user_error("{} is the directory of a training run; name another for the server's log",
                     directory.string());
  }
  fs::create_directories(directory);
  return directory;
}

std::int64_t last_step(const fs::path& path) {
  if (!path_exists(path)) return 0;
  const auto records = metrics::read_jsonl(path);
  return records.empty() ? 0 : records.back().step;
}

}  // namespace

// The lock before the file: two servers never write into one.
class ServeLog::Directory {
 public:
  explicit Directory(const fs::path& directory)
      : lock(made(directory)),
        first_step(last_step(directory / "metrics.jsonl")),
        sink(directory / "metrics.jsonl", first_step) {}

  ckpt::RunLock lock;
  std::int64_t first_step;
  metrics::JsonlSink sink;
};

ServeLog::ServeLog(const fs::path& directory, std::chrono::milliseconds every,
                   const serve::api::RequestTimes& times, const serve::Generator& generator)
    : every_(every),
      times_(times),
      generator_(generator),
      directory_(std::make_unique<Directory>(directory)),
      begin_(Clock::now()),
      last_(begin_),
      before_(serve::api::LoadCounts::of(times, generator)),
      thread_([this] { run(); }) {}

ServeLog::~ServeLog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
  write();
}

void ServeLog::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, every_, [this] { return ends_; })) {
    write();
  }
}

// A full disk ends no request.
void ServeLog::write() {
  const Clock::time_point time = Clock::now();
  const double seconds = std::chrono::duration<double>(time - last_).count();
  if (seconds <= 0) return;
  serve::api::LoadCounts now = serve::api::LoadCounts::of(times_, generator_);
  metrics::Record record = serve::api::load_record(before_, now, seconds);
  record.step =
      directory_->first_step + std::chrono::ceil<std::chrono::seconds>(time - begin_).count();
  try {
    directory_->sink.write(record);
  } catch (const Error& error) {
    log::warning("--log: {}", error.what());
  }
  before_ = std::move(now);
  last_ = time;
}

}  // namespace atl::cli
