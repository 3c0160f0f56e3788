#include "atoll/cli/pages/watch_beside.h"

#include <poll.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/launch/rank_processes.h"

namespace atl::cli {

namespace {

constexpr std::string_view kServes = "serves ";
constexpr std::string_view kRefuses = "refuses ";

void say(int fd, const std::string& line) {
  // One who does not listen any more is gone, and this process with it.
  const ssize_t written = ::write(fd, line.data(), line.size());
  (void)written;
}

// The child's first line; empty: it has ended without one.
std::string first_line(Child& child) {
  std::string line;
  LineReader reader;
  while (child.reports().open() && line.empty()) {
    pollfd fd{.fd = child.reports().get(), .events = POLLIN};
    ::poll(&fd, 1, -1);
    reader.read(child.reports(), [&](std::string_view one) {
      if (line.empty()) line = one;
    });
  }
  return line;
}

}  // namespace

void report_watching(int fd, const std::string& url) {
  say(fd, fmt::format("{}{}\n", kServes, url));
}

void report_refusal(int fd, const std::string& why) {
  say(fd, fmt::format("{}{}\n", kRefuses, why));
}

void add_watch_flags(ArgumentParser& parser, WatchFlags& flags) {
  parser.add_flag("--watch", flags.watch, "Show the run in a browser, at 127.0.0.1:7412");
  parser.add_option("--watch-at", flags.at, "The same at HOST:PORT; port 0: a free one");
  parser.add_option(
      "--watch-token-file", flags.token_file,
      "File with the secret that a browser must show there (atoll watch --token-file)");
}

WatchBeside::WatchBeside(const WatchFlags& flags, const std::vector<std::string>& dirs) {
  if (!flags.is_asked()) {
    if (flags.token_file.empty()) return;
    throw user_error("--watch-token-file means nothing without --watch or --watch-at");
  }
  ChildOptions options{
      .argv = {launch::this_program(), "watch"}, .shows_errors = true, .has_report_pipe = true};
  options.argv.insert(options.argv.end(), dirs.begin(), dirs.end());
  options.argv.insert(options.argv.end(),
                      {"--beside", fmt::format("--report-fd={}", kReportFd), "--memory=4"});
  if (!flags.at.empty()) options.argv.push_back("--listen=" + flags.at);
  if (!flags.token_file.empty()) options.argv.push_back("--token-file=" + flags.token_file);
  child_.emplace(options);
  const std::string line = first_line(*child_);
  if (line.starts_with(kServes)) {
    log::info("watch it at {}", line.substr(kServes.size()));
    return;
  }
  if (line.starts_with(kRefuses)) {
    throw user_error("--watch: {}", line.substr(kRefuses.size()));
  }
  throw make_error(ErrorKind::kIo, "--watch: the process that serves the page has ended");
}

}  // namespace atl::cli
