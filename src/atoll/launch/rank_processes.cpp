#include "atoll/launch/rank_processes.h"

#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/launch/mpirun.h"

namespace atl::launch {

namespace {

constexpr int kStandardError = 2;

// A process that runs `argv` on `host` (empty: here) and is watched from here.
RankProcess process_on(const std::string& host, std::vector<std::string> argv,
                       const std::string& directory) {
  const bool here = host.empty();
  argv.push_back(fmt::format("--report-fd={}", here ? kReportFd : kStandardError));
  if (here) return {.argv = std::move(argv)};
  argv.emplace_back("--watch-input");  // sshd closes it when the connection ends
  return {.reach = Reach::kSsh,
          .host = host,
          .argv = ssh_command(
              host, "cd " + shell_command({directory}) + " && exec " + shell_command(argv))};
}

}  // namespace

std::vector<std::string> place_ranks(const std::vector<Host>& hosts, int num_ranks,
                                     const std::string& path) {
  const int slots = std::accumulate(hosts.begin(), hosts.end(), 0,
                                    [](int sum, const Host& host) { return sum + host.slots; });
  if (num_ranks > slots) {
    throw user_error("-n {}, but {} has {} slots; add hosts or slots=N, or ask for fewer ranks",
                     num_ranks, path, slots);
  }
  std::vector<std::string> placed;
  for (const Host& host : hosts) {
    const std::string name = is_this_host(host.name) ? "" : host.name;
    placed.insert(placed.end(), static_cast<std::size_t>(host.slots), name);
  }
  if (num_ranks > 0) placed.resize(static_cast<std::size_t>(num_ranks));
  return placed;
}

TrainCall train_call(const std::string& recipe, const std::vector<std::string>& overrides) {
  TrainCall call = {.program = this_program(), .directory = std::filesystem::current_path()};
  if (!recipe.empty()) call.arguments.push_back(recipe);
  call.arguments.insert(call.arguments.end(), overrides.begin(), overrides.end());
  return call;
}

RankProcess elastic_process(const TrainCall& call, const std::string& host,
                            const std::string& rendezvous, const RankOrder& order) {
  std::vector<std::string> argv = train_command_line(call);
  for (std::string& flag : rank_flags(order, rendezvous)) argv.push_back(std::move(flag));
  // Any of these ranks may become rank 0 later, which writes to standard output.
  RankProcess process = process_on(host, std::move(argv), call.directory);
  process.rank = order.number;
  process.shows_output = true;
  return process;
}

std::vector<RankProcess> rendezvous_processes(const TrainCall& call,
                                              const std::vector<std::string>& hosts,
                                              const RendezvousPoint& point,
                                              const StartElsewhere& elsewhere) {
  std::vector<RankProcess> processes;
  const int here = static_cast<int>(hosts.size());
  for (std::size_t place = 0; place < hosts.size(); ++place) {
    const RankOrder order = {.rank = point.first + static_cast<int>(place),
                             .ranks = point.ranks > 0 ? point.ranks : here,
                             .generation = point.generation,
                             .backend = point.backend};
    std::optional<RankProcess> process;
    if (elsewhere) process = elsewhere(hosts[place], order);
    if (!process) {
      std::vector<std::string> argv = train_command_line(call);
      for (std::string& flag : rank_flags(order, point.rendezvous)) {
        argv.push_back(std::move(flag));
      }
      process = process_on(hosts[place], std::move(argv), call.directory);
    }
    process->rank = order.rank;
    process->shows_output = order.rank == 0;
    processes.push_back(*std::move(process));
  }
  return processes;
}

std::vector<std::string> train_command_line(const TrainCall& call) {
  std::vector<std::string> argv = {call.program, call.command};
  argv.insert(argv.end(), call.arguments.begin(), call.arguments.end());
  return argv;
}

std::vector<std::string> ssh_command(const std::string& host, const std::string& command) {
  return {"ssh",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=10",
          "-o",
          "ServerAliveInterval=2",
          "-o",
          "ServerAliveCountMax=2",
          host,
          command};
}

std::vector<RankProcess> mpirun_processes(const TrainCall& call,
                                          const std::vector<std::string>& hosts,
                                          const std::string& backend) {
  MpirunOptions options = {.ranks = static_cast<int>(hosts.size()), .is_root = ::geteuid() == 0};
  bool elsewhere = false;
  for (const std::string& host : hosts) {
    elsewhere = elsewhere || !host.empty();
    const std::string name = host.empty() ? "localhost" : host;
    if (!options.hosts.empty() && options.hosts.back().name == name) {
      ++options.hosts.back().slots;
    } else {
      options.hosts.push_back({.name = name});
    }
  }
  if (!elsewhere) options.hosts.clear();
  std::vector<std::string> argv = train_command_line(call);
  argv.push_back("--backend=" + backend);
  argv.push_back(fmt::format("--report-fd={}", kStandardError));
  return {{.rank = 0,
           .reach = Reach::kMpirun,
           .num_ranks = options.ranks,
           .argv = mpirun_command(options, argv),
           .shows_output = true}};
}

std::string shell_command(const std::vector<std::string>& words) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string command;
  for (const std::string& word : words) {
    if (!command.empty()) command += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) {
      command += word;
      continue;
    }
    command += '\'';
    for (const char c : word) command += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
    command += '\'';
  }
  return command;
}

std::string this_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw make_error(ErrorKind::kIo, "cannot find this program in /proc/self/exe: {}",
                     error.message());
  }
  return path.string();
}

}  // namespace atl::launch
