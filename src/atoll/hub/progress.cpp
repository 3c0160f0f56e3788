#include "atoll/hub/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/base/terminal.h"

namespace atl::hub {

ProgressLine::ProgressLine(const DownloadCounts& counts, std::string what, std::uint64_t bytes,
                           std::size_t files)
    : counts_(counts),
      what_(std::move(what)),
      bytes_(bytes),
      files_(files),
      is_terminal_(terminal_columns(STDERR_FILENO) > 0),
      begin_(std::chrono::steady_clock::now()),
      thread_([this] { show_all(); }) {}

ProgressLine::~ProgressLine() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressLine::show_all() {
  constexpr std::chrono::milliseconds kTerminal{500};
  constexpr std::chrono::milliseconds kLog{30'000};
  std::unique_lock lock(mutex_);
  bool has_shown = false;
  while (!changed_.wait_for(lock, is_terminal_ ? kTerminal : kLog, [this] { return ends_; })) {
    if (is_terminal_) {
      put_error("\r\x1b[K" + line());
    } else {
      log::info("{}", line());
    }
    has_shown = true;
  }
  if (is_terminal_ && has_shown) put_error("\r\x1b[K");
}

std::string ProgressLine::line() const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const double rate = static_cast<double>(counts_.num_fetched.load()) / seconds.count();
  return fmt::format("{}: {} of {} files, {} of {}, {}/s", what_, counts_.num_files.load(), files_,
                     format_bytes(counts_.num_bytes.load()), format_bytes(bytes_),
                     format_bytes(static_cast<std::uint64_t>(rate)));
}

}  // namespace atl::hub
