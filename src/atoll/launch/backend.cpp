#include "atoll/launch/backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/nearest.h"
#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
#include "atoll/comm/tcp/world.h"
#include "atoll/launch/backend_name.h"

namespace atl::launch {

namespace {

Backend threads_backend() {
  return {.name = "threads", .bootstrap = Bootstrap::kThreads, .run = comm::run_threads};
}

Backend mpi_backend() {
  return {.name = "mpi",
          .bootstrap = Bootstrap::kMpirun,
          .spans_hosts = true,
          .why_not_built = []() -> std::string {
            if (comm::has_mpi()) return "";
            return "this atoll was built without MPI; install libopenmpi-dev and build again, or "
                   "use --backend=gloo";
          },
          .open = [](const RankPlace& /*place*/,
                     const comm::WorldOptions& options) { return comm::open_mpi(options); }};
}

Backend gloo_backend() {
  return {.name = "gloo",
          .bootstrap = Bootstrap::kRendezvous,
          .spans_hosts = true,
          .can_regroup = true,
          .why_not_built = []() -> std::string {
            if (comm::has_gloo()) return "";
            return "this atoll was built without Gloo; install libgloo-dev and build again, or use "
                   "--backend=tcp";
          },
          .open =
              [](const RankPlace& place, const comm::WorldOptions& options) {
                return comm::open_gloo({.rank = place.rank,
                                        .size = place.size,
                                        .rendezvous = place.rendezvous,
                                        .generation = place.generation,
                                        .connect_timeout_s = place.connect_timeout_s},
                                       options);
              }};
}

Backend tcp_backend() {
  return {.name = "tcp",
          .bootstrap = Bootstrap::kRendezvous,
          .spans_hosts = true,
          .can_regroup = true,
          .open = [](const RankPlace& place, const comm::WorldOptions& options) {
            return comm::open_tcp({.rank = place.rank,
                                   .size = place.size,
                                   .rendezvous = place.rendezvous,
                                   .generation = place.generation,
                                   .connect_timeout_s = place.connect_timeout_s},
                                  options);
          }};
}

// Every backend of this program: one for each, the default of each Bootstrap first, in the order in
// which texts list them. Whoever has found one keeps a reference to it while others are added.
std::list<Backend>& registry() {
  static std::list<Backend> all = {threads_backend(), mpi_backend(), gloo_backend(), tcp_backend()};
  return all;
}

const Backend* look_up_backend(const std::string& name) {
  for (const Backend& backend : registry()) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

std::vector<std::string> names_of(std::initializer_list<Bootstrap> bootstraps) {
  std::vector<std::string> names;
  for (const Bootstrap bootstrap : bootstraps) {
    for (const Backend& backend : registry()) {
      if (backend.bootstrap == bootstrap) names.push_back(backend.name);
    }
  }
  return names;
}

// "a, b or c".
std::string listed(const std::vector<std::string>& names, const char* conjunction) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : fmt::format(" {} ", conjunction);
    text += names[i];
  }
  return text;
}

}  // namespace

const std::list<Backend>& backends() {
  return registry();
}

void add_backend(Backend backend) {
  ATOLL_CHECK(is_backend_name(backend.name), "'{}' is no name of a backend", backend.name);
  ATOLL_CHECK(look_up_backend(backend.name) == nullptr, "backend {} is there already",
              backend.name);
  ATOLL_CHECK(backend.is_threads() ? backend.run != nullptr : backend.open != nullptr,
              "backend {} does not say how its ranks come together", backend.name);
  ATOLL_CHECK(!backend.can_regroup || backend.meets_at_rendezvous(),
              "ranks of backend {} have no rendezvous to regroup at", backend.name);
  registry().push_back(std::move(backend));
}

void remove_backend(const std::string& name) {
  std::erase_if(registry(), [&](const Backend& backend) { return backend.name == name; });
}

const Backend& find_backend(const std::string& name) {
  if (const Backend* backend = look_up_backend(name)) return *backend;
  std::vector<std::string> names;
  for (const Backend& backend : registry()) names.push_back(backend.name);
  const std::string nearest = nearest_name(name, names);
  throw user_error("--backend={}: there is no such backend; {}", name,
                   nearest.empty() ? "there are " + listed(names, "and")
                                   : fmt::format("did you mean {}?", nearest));
}

const Backend& find_launched_backend(const std::string& name) {
  const Backend* backend = look_up_backend(name);
  const std::string names = backend_names({Bootstrap::kRendezvous, Bootstrap::kMpirun});
  if (backend == nullptr) {
    throw user_error("--backend={}: there is no such backend; use {}", name, names);
  }
  if (backend->is_threads()) {
    throw user_error(
        "--backend={}: `atoll launch` starts processes, because threads of one would die "
        "together; use {}",
        name, names);
  }
  return *backend;
}

const Backend& default_backend(Bootstrap bootstrap) {
  const std::list<Backend>& all = registry();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Backend& backend) {
    return backend.bootstrap == bootstrap;
  });
  ATOLL_CHECK(found != all.end(), "there is no backend of kind {}", static_cast<int>(bootstrap));
  return *found;
}

std::string backend_names(std::initializer_list<Bootstrap> bootstraps) {
  return listed(names_of(bootstraps), "or");
}

std::string backend_help() {
  std::vector<std::string> names = names_of({Bootstrap::kThreads});
  for (std::string& name : names) {
    name += &name == &names.front() ? " (of this process, the default)" : " (of this process)";
  }
  for (std::string& name : names_of({Bootstrap::kRendezvous, Bootstrap::kMpirun})) {
    names.push_back(std::move(name));
  }
  return listed(names, "or") + " (processes)";
}

std::string launched_backend_help() {
  std::vector<std::string> names = names_of({Bootstrap::kRendezvous, Bootstrap::kMpirun});
  names.front() += " (the default)";
  return listed(names, "or");
}

}  // namespace atl::launch
