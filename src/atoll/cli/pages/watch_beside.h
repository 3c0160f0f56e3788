#pragma once

// --watch of commands that run for long: `atoll watch` as a process beside them.

#include <optional>
#include <string>
#include <vector>

#include "atoll/base/processes/process.h"
#include "atoll/cli/argument_parser.h"

namespace atl::cli {

/// What a command was told of it.
struct WatchFlags {
  bool watch = false;  ///< --watch
  std::string at;      ///< --watch-at
  std::string token_file;

  bool is_asked() const { return watch || !at.empty(); }
};

/// Declares --watch, --watch-at and --watch-token-file. `flags` must outlive the parser.
void add_watch_flags(ArgumentParser& parser, WatchFlags& flags);

/// A child of low priority that serves the page of `dirs` until this is destroyed, or the process
/// ends however it ends. It reads what the run writes: a viewer cannot hold a step up.
class WatchBeside {
 public:
  /// Does nothing where `flags` do not ask for it. Returns once the page is served and has said in
  /// the log where. Throws Error(kUser) for an address that it cannot serve at. Of a thread that
  /// lives as long as this.
  WatchBeside(const WatchFlags& flags, const std::vector<std::string>& dirs);

 private:
  std::optional<Child> child_;
};

/// How the child says on descriptor `fd` that it serves, or why it does not.
void report_watching(int fd, const std::string& url);
void report_refusal(int fd, const std::string& why);

}  // namespace atl::cli
