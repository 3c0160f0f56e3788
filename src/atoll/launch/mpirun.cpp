#include "atoll/launch/mpirun.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "atoll/launch/backend.h"

namespace atl::launch {

namespace {

// The number that follows `before` in a text.
std::optional<int> number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + before.size());
  int number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

bool is_ruler(std::string_view line) {
  constexpr std::size_t kShortest = 40;
  return line.size() >= kShortest && line.find_first_not_of('-') == line.npos;
}

}  // namespace

std::vector<std::string> mpirun_command(const MpirunOptions& options,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"mpirun", "-n", std::to_string(options.ranks)};
  if (options.is_root) argv.emplace_back("--allow-run-as-root");
  if (options.hosts.empty()) {
    argv.emplace_back("--oversubscribe");
    // All ranks are on this host, so mpirun talks to them over loopback. Its own port still listens
    // at all addresses.
    argv.insert(argv.end(), {"--mca", "oob_tcp_if_include", "lo"});
    argv.insert(argv.end(), {"--mca", "oob_tcp_disable_ipv6_family", "1"});
  } else {
    std::string list;
    for (const Host& host : options.hosts) {
      list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
    }
    argv.insert(argv.end(), {"--host", list, "--map-by", "slot"});
  }
  argv.insert(argv.end(), {"--bind-to", "none"});
  for (const char* name : {"ATOLL_LOG", "ATOLL_SIMD"}) {
    if (std::getenv(name) != nullptr) argv.insert(argv.end(), {"-x", name});
  }
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

void require_mpirun(const std::string& backend) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path program = std::filesystem::path(folder) / "mpirun";
    if (::access(program.c_str(), X_OK) == 0) return;
  }
  throw user_error(
      "--backend={} needs mpirun, which is not in PATH; `apt install openmpi-bin`, or "
      "use --backend={}",
      backend, default_backend(Bootstrap::kRendezvous).name);
}

bool MpirunMessages::takes(std::string_view line) {
  if (is_ruler(line)) {
    inside_ = !inside_;
    if (inside_) text_.clear();
    return true;
  }
  if (!inside_) return line.starts_with("mpirun: Forwarding signal ");
  if (!line.empty()) text_ += (text_.empty() ? "" : " ") + std::string(line);
  // "mpirun noticed that process rank 2 with PID 71 on node alpha exited on signal 9 (Killed)."
  const std::optional<int> rank = number_after(text_, "noticed that process rank ");
  const std::optional<int> signal = number_after(text_, " exited on signal ");
  if (rank && signal) {
    dead_ = {
        .rank = *rank, .pid = number_after(text_, " with PID ").value_or(0), .signal = *signal};
    std::istringstream node(text_.substr(std::min(text_.find(" on node ") + 9, text_.size())));
    node >> dead_->host;
    if (is_this_host(dead_->host)) dead_->host.clear();
  }
  return true;
}

}  // namespace atl::launch
