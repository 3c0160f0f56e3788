#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/commands/runs.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/http/access.h"
#include "atoll/http/tls.h"
#include "atoll/island/ledger/ledger.h"
#include "atoll/launch/process_group.h"
#include "atoll/tune/report/report.h"
#include "atoll/tune/run/run_study.h"
#include "atoll/watch/prometheus_server.h"
#include "atoll/watch/service.h"
#include "atoll/wire/address.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::vector<std::string> dirs;
  std::string listen = "127.0.0.1:7412";
  std::string token_file;
  std::vector<std::string> names;
  std::string certificate;
  std::string key;
  int memory_mib = 512;
  bool is_beside = false;  // a run that may have made no directory yet
  int report_fd = -1;
};

std::string token_of(const Options& options) {
  if (options.token_file.empty()) return "";
  return watch::read_token(options.token_file, "--token-file");
}

std::string study_json(const fs::path& dir) {
  const std::unique_ptr<tune::Study> study = tune::open_study(dir);
  const tune::StudyContent content = tune::read_study(dir);
  const tune::History history = tune::history_of(content);
  return tune::to_json({*study, content, history});
}

// Ledgers as JSON. A ledger is read and audited whole, which takes long when it is long: once,
// until its files change. For one thread.
class Ledgers {
 public:
  const std::string& json(const fs::path& dir) {
    const std::string stamp = stamp_of(dir / island::kLedgerFile);
    Entry& entry = entries_[dir.string()];
    if (entry.json.empty() || entry.stamp != stamp) {
      constexpr std::size_t kMostAttempts = 200;  // as many as the page lists
      entry.json = run_json(island::read_ledger(dir / island::kLedgerFile), /*outer_steps=*/true,
                            kMostAttempts);
      entry.stamp = stamp;
    }
    return entry.json;
  }

 private:
  struct Entry {
    std::string stamp, json;
  };
  // Sizes and times of the database and its log.
  static std::string stamp_of(const fs::path& path) {
    std::string stamp;
    for (const char* suffix : {"", "-wal"}) {
      struct stat status {};
      if (::stat((path.string() + suffix).c_str(), &status) != 0) continue;
      stamp += fmt::format("{}/{}.{:09} ", status.st_size, status.st_mtim.tv_sec,
                           status.st_mtim.tv_nsec);
    }
    return stamp;
  }

  std::map<std::string, Entry> entries_;
};

watch::ServiceOptions service_options(const Options& options) {
  const wire::HostPort address = wire::parse_address(options.listen, "the address to listen at");
  watch::ServiceOptions service{
      .host = address.host,
      .port = address.port,
      .names = options.names,
      .token = token_of(options),
      .cache_bytes = static_cast<std::size_t>(options.memory_mib) << 20,
      .study_json = study_json,
      .ledger_json = [ledgers = std::make_shared<Ledgers>()](const fs::path& dir) {
        return ledgers->json(dir);
      }};
  for (const std::string& dir : options.dirs) {
    if (!options.is_beside && !directory_exists(dir)) {
      throw user_error("there is no directory {}; give runs, or a directory with runs in it{}", dir,
                       advice_for_absent(dir));
    }
    service.roots.emplace_back(dir);
  }
  if (options.certificate.empty() != options.key.empty()) {
    throw user_error("--certificate and --key belong together");
  }
  if (!options.certificate.empty()) {
    // Shared with the server, which outlives this call.
    service.tls = std::make_shared<http::TlsContext>(options.certificate, options.key);
  }
  if (http::is_loopback(address.host)) {
    service.reading_needs_token = !options.token_file.empty();
    return service;
  }
  if (options.token_file.empty() && service.tls == nullptr) {
    throw user_error(
        "--listen={}: others on the network could read the runs; give --token-file=FILE or a "
        "certificate (--certificate, --key), or listen at 127.0.0.1",
        options.listen);
  }
  service.reading_needs_token = true;
  return service;
}

int serve(const Options& options) {
  launch::SignalFd signals;  // before any thread is made
  const watch::Service service(service_options(options));
  if (options.report_fd >= 0) {
    report_watching(options.report_fd, service.url());
  } else {
    fmt::print("watching at {}\n", service.url());
    std::fflush(stdout);
  }
  for (;;) {
    pollfd fd = {.fd = signals.fd(), .events = POLLIN};
    ::poll(&fd, 1, -1);
    if (const int signal = signals.next(); signal != 0) return 128 + signal;
  }
}

int run(const Options& options) {
  if (options.report_fd < 0) return serve(options);
  constexpr int kNice = 10;  // the run comes first
  if (::nice(kNice) == -1 && errno == EPERM) log::warning("watch: the priority stays as it is");
  try {
    return serve(options);
  } catch (const Error& error) {
    report_refusal(options.report_fd, error.what());
    return error.exit_code();
  }
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  options->dirs = {"runs"};
  parser.add_option("dirs", options->dirs, "Runs, or directories that have some below them (runs)");
  parser.add_option("--listen", options->listen, "HOST:PORT to serve at; port 0: a free one")
      .show_default();
  parser.add_option(
      "--token-file", options->token_file,
      "File with a secret that a browser must show; this or TLS is needed unless HOST "
      "is this machine alone");
  parser.add_option("--name", options->names, "Name by which browsers may call this server, too");
  parser.add_option("--certificate", options->certificate,
                    "PEM file to serve by TLS with, and --key");
  parser.add_option("--key", options->key, "PEM file with its key");
  parser.add_option("--memory", options->memory_mib, "MiB for records that are kept at hand")
      .range(1, 1 << 20)
      .show_default();
  parser.add_flag("--beside", options->is_beside).hide();
  parser.add_option("--report-fd", options->report_fd).hide();
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command watch_command() {
  return {.name = "watch",
          .summary = "Show runs in a browser, while they train and after.",
          .example =
              "  atoll watch\n"
              "  atoll watch runs/kjv-demo studies/first\n"
              "  atoll watch runs --listen 0.0.0.0:7412 --token-file secret --name alpha",
          .stray = "directories are all that it takes",
          .add = add};
}

}  // namespace atl::cli
