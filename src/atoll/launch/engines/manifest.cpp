#include "atoll/launch/engines/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/metrics/alert.h"

namespace atl::launch {

namespace {

using metrics::shell_word;

constexpr int kPort = 7411;            // of a coordinator
constexpr int kSaveSeconds = 120;      // that a run has for its last checkpoint
constexpr int kPodsThatMayFail = 100;  // before a Job gives up
constexpr std::size_t kMiB = std::size_t{1} << 20;

constexpr std::string_view kTaskNumber = "$SLURM_ARRAY_TASK_ID";

std::string island_name(int island) {
  return fmt::format("island-{}", island);
}

// ---- words of commands

// What all islands, or all ranks of the one run, are told.
std::vector<std::string> with_run(const ManifestRequest& request, const std::string& recipe) {
  std::vector<std::string> words;
  if (!recipe.empty()) words.push_back(recipe);
  words.insert(words.end(), request.overrides.begin(), request.overrides.end());
  return words;
}

// What makes it one island of the run; `name` may be a variable of a shell.
std::vector<std::string> as_island(const ManifestRequest& request, const std::string& name,
                                   const std::string& coordinator, const std::string& identity) {
  return {fmt::format("--run.dir={}/{}", request.run_dir, name),
          fmt::format("--outer.islands={}", request.islands),
          fmt::format("--island.coordinator={}", coordinator), "--island.name=" + name,
          "--island.identity=" + identity};
}

// ---- Slurm

std::string memory_line(const ManifestRequest& request) {
  return request.memory_bytes == 0
             ? ""
             : fmt::format("#SBATCH --mem={}M\n", (request.memory_bytes + kMiB - 1) / kMiB);
}

// A word that may end with the number of an array's task, which the shell is to put in.
std::string with_variable(const std::string& word) {
  if (!word.ends_with(kTaskNumber)) return shell_word(word);
  return shell_word(word.substr(0, word.size() - kTaskNumber.size())) + std::string(kTaskNumber);
}

std::string slurm(const ManifestRequest& request) {
  for (const std::string& said : {request.run_dir, request.coordinator}) {
    if (said.find('\n') == said.npos) continue;
    throw user_error("--print=slurm: '{}' has a line break, which no script keeps", said);
  }
  if (request.islands > 0 && request.coordinator.empty()) {
    throw user_error(
        "--print=slurm: say where the islands' coordinator is, --island.coordinator=HOST:PORT, as "
        "a job cannot know the host of another");
  }
  const bool is_elastic = request.min_ranks > 0 && request.min_ranks < request.ranks();
  // A launch takes all ranks of its machine, so it is one task there.
  const int tasks = is_elastic ? 1 : request.ranks_each;
  const int share = is_elastic ? request.ranks_each : 1;  // ranks of a task
  std::string text = "#!/bin/bash\n";
  text += fmt::format("#SBATCH --job-name={}\n", request.name);
  if (request.islands > 0) text += fmt::format("#SBATCH --array=1-{}\n", request.islands);
  text += fmt::format("#SBATCH --nodes={} --ntasks-per-node={}\n", request.machines, tasks);
  text += request.threads > 0 ? fmt::format("#SBATCH --cpus-per-task={}\n", request.threads * share)
                              : "#SBATCH --exclusive\n";
  text += memory_line(request);
  if (request.has_gpus) text += fmt::format("#SBATCH --gpus-per-task={}\n", share);
  text += fmt::format("#SBATCH --output={}-%{}.out --open-mode=append\n", request.name,
                      request.islands > 0 ? "A_%a" : "j");
  text += fmt::format("#SBATCH --requeue --signal=TERM@{}\n", kSaveSeconds);
  if (is_elastic) text += "#SBATCH --no-kill\n";
  text += fmt::format("# {} rank{}{}. Save this as FILE; start it: sbatch FILE\n", request.ranks(),
                      request.ranks() == 1 ? "" : "s", request.islands > 0 ? " an island" : "");
  if (request.islands > 0) {
    text += fmt::format(
        "# Before it, on {}: atoll coordinator --dir {}/coordinator --listen {} --identity "
        "identities/coordinator\n"
        "# identities/ is made by `atoll certs`: one for the coordinator and one for each "
        "island.\n",
        request.coordinator.substr(0, request.coordinator.rfind(':')), shell_word(request.run_dir),
        request.coordinator);
  }
  // srun does not take --cpus-per-task from the lines above since Slurm 22.05.
  const std::string cpus = request.threads > 0 ? std::to_string(request.threads * share)
                                               : fmt::format("$((SLURM_CPUS_ON_NODE / {}))", tasks);
  text += fmt::format("exec srun --cpus-per-task={}", cpus);
  text += is_elastic ? " --no-kill --kill-on-bad-exit=0 atoll launch"
                     : " --kill-on-bad-exit=1 atoll train";
  std::vector<std::string> words = with_run(request, request.recipe);
  if (is_elastic) {
    words.push_back(fmt::format("--slots={}", request.ranks_each));
    words.push_back(fmt::format("--min-ranks={}", request.min_ranks));
  }
  if (request.islands == 0) words.push_back("--run.dir=" + request.run_dir);
  for (const std::string& word : words) text += " " + shell_word(word);
  if (request.islands > 0) {
    const std::string name = "island-" + std::string(kTaskNumber);
    for (const std::string& word :
         as_island(request, name, request.coordinator, "identities/" + name)) {
      text += " " + with_variable(word);
    }
  }
  return text + "\n";
}

// ---- Kubernetes

// A JSON string is a string of YAML too.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

std::string indented(const std::string& text, int spaces) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1);
    if (text[at] != '\n') result.append(static_cast<std::size_t>(spaces), ' ');
    result += text.substr(at, end + 1 - at);
    at = end + 1;
  }
  return result;
}

// Lines of text as they are, where YAML lets them be.
std::string block_of(const std::string& text, int spaces) {
  const bool is_plain = !text.empty() && text.back() == '\n' && text.front() != ' ' &&
                        text.front() != '\n' && !text.ends_with("\n\n") &&
                        std::all_of(text.begin(), text.end(), [](unsigned char c) {
                          return c == '\n' || (c >= ' ' && c < 0x7f);
                        });
  return is_plain ? "|\n" + indented(text, spaces) : quoted(text) + "\n";
}

struct Pods {
  std::string job;                 // its name
  int count = 1;                   // of pods
  std::vector<std::string> words;  // of atoll
  std::string identity;            // the secret with it; empty: none
  bool has_resources = true;       // those of ranks
};

std::string volume(const std::string& name, const std::string& path) {
  return fmt::format("          - {{name: {}, mountPath: {}}}\n", name, path);
}

// spec of a Job, as it stands below `spec:` at the beginning of a line.
std::string job_spec(const ManifestRequest& request, const Pods& pods) {
  std::vector<std::string> words;
  for (const std::string& word : pods.words) words.push_back(quoted(word));
  std::string resources;
  if (pods.has_resources) {
    std::vector<std::string> wants;
    if (request.threads > 0) {
      wants.push_back(fmt::format("cpu: \"{}\"", request.threads * request.ranks_each));
    }
    if (request.memory_bytes > 0) {
      wants.push_back(fmt::format("memory: {}Mi", (request.memory_bytes + kMiB - 1) / kMiB));
    }
    if (!wants.empty()) {
      resources += fmt::format("          requests: {{{}}}\n", fmt::join(wants, ", "));
    }
    if (request.has_gpus) {
      resources += fmt::format("          limits: {{nvidia.com/gpu: {}}}\n", request.ranks_each);
    }
  }
  std::string text = fmt::format(
      "completionMode: Indexed\n"
      "completions: {0}\n"
      "parallelism: {0}\n"
      "backoffLimit: {1}\n"
      "podFailurePolicy:\n"
      "  rules:\n"
      "    # 2: a mistake in what was asked for, which another try does not mend.\n"
      "    - action: FailJob\n"
      "      onExitCodes: {{containerName: atoll, operator: In, values: [2]}}\n"
      "    - action: Ignore\n"
      "      onPodConditions: [{{type: DisruptionTarget, status: \"True\"}}]\n"
      "template:\n"
      "  metadata:\n"
      "    labels: {{app.kubernetes.io/name: atoll, app.kubernetes.io/instance: {2}}}\n"
      "  spec:\n"
      "    restartPolicy: Never\n"
      "    subdomain: {2}\n"
      "    terminationGracePeriodSeconds: {3}\n"
      "    containers:\n"
      "      - name: atoll\n"
      "        image: {4}\n"
      "        workingDir: /data\n"
      "        command: [atoll]\n"
      "        args: [{5}]\n",
      pods.count, kPodsThatMayFail * pods.count, request.name, kSaveSeconds, quoted(request.image),
      fmt::join(words, ", "));
  if (!resources.empty()) text += "        resources:\n" + resources;
  std::string mounts = volume("data", "/data");
  std::string volumes = fmt::format(
      "      - {{name: data, persistentVolumeClaim: {{claimName: {}}}}}\n", request.name);
  if (!request.recipe_text.empty() && pods.has_resources) {
    mounts += volume("recipe", "/recipe");
    volumes += fmt::format("      - {{name: recipe, configMap: {{name: {}}}}}\n", request.name);
  }
  if (!pods.identity.empty()) {
    mounts += volume("identity", "/identity");
    volumes +=
        fmt::format("      - {{name: identity, secret: {{secretName: {}, defaultMode: 256}}}}\n",
                    pods.identity);
  }
  if (request.ranks_each > 1 && pods.has_resources) {
    mounts += volume("shm", "/dev/shm");
    volumes += "      - {name: shm, emptyDir: {medium: Memory}}\n";
  }
  return text + "        volumeMounts:\n" + mounts + "    volumes:\n" + volumes;
}

std::string in_pod(const std::string& recipe_text) {
  return recipe_text.empty() ? "" : "/recipe/run.toml";
}

// The jobs of the run: of its ranks, or a coordinator's and the islands'.
std::vector<Pods> jobs_of(const ManifestRequest& request, const std::string& coordinator) {
  const auto trained = [&](const std::string& job, const std::vector<std::string>& more) {
    Pods pods{.job = job, .count = request.machines, .words = {"train"}};
    const std::vector<std::string> run = with_run(request, in_pod(request.recipe_text));
    pods.words.insert(pods.words.end(), run.begin(), run.end());
    if (request.ranks_each > 1 || request.machines > 1) {
      pods.words.insert(pods.words.end(), {"-n", std::to_string(request.ranks_each)});
    }
    // An Indexed Job does not tell its pods how many they are.
    if (request.machines > 1) pods.words.push_back(fmt::format("--ranks={}", request.ranks()));
    pods.words.insert(pods.words.end(), more.begin(), more.end());
    return pods;
  };
  if (request.islands == 0) return {trained("train", {"--run.dir=" + request.run_dir})};
  std::vector<Pods> jobs;
  if (request.coordinator.empty()) {
    jobs.push_back({.job = "coordinator",
                    .words = {"coordinator", "--dir", request.run_dir + "/coordinator", "--listen",
                              fmt::format("0.0.0.0:{}", kPort), "--identity", "/identity"},
                    .identity = request.name + "-coordinator",
                    .has_resources = false});
  }
  for (int island = 1; island <= request.islands; ++island) {
    const std::string name = island_name(island);
    jobs.push_back(trained(name, as_island(request, name, coordinator, "/identity")));
    jobs.back().identity = fmt::format("{}-{}", request.name, name);
  }
  return jobs;
}

// What is said before the objects.
std::string instructions(const ManifestRequest& request, const std::string& host) {
  std::string text = fmt::format(
      "# {0} rank{1}{2}. Save this as FILE; start it: kubectl apply -f FILE\n"
      "# Before it there must be a volume claim `{3}` (ReadWriteMany), with the data: it is /data "
      "in\n"
      "# the pods, where relative paths begin.\n",
      request.ranks(), request.ranks() == 1 ? "" : "s", request.islands > 0 ? " an island" : "",
      request.name);
  if (request.islands == 0) return text;
  text +=
      "# Also identities, made once on a machine that you trust:\n"
      "#   atoll certs init authority\n";
  const auto issue = [&](const std::string& name, const std::string& more) {
    text += fmt::format(
        "#   atoll certs issue authority {0}{1}\n"
        "#   kubectl create secret generic {2}-{0} --from-file=authority/identities/{0}\n",
        name, more, request.name);
  };
  if (!host.empty()) issue("coordinator", " --host " + host);
  for (int island = 1; island <= request.islands; ++island) issue(island_name(island), "");
  return text;
}

std::string config_map(const ManifestRequest& request) {
  if (request.recipe_text.empty()) return "";
  return fmt::format(
      "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\ndata:\n  run.toml: {}",
      request.name, block_of(request.recipe_text, 4));
}

void require_containers(const ManifestRequest& request, std::string_view kind) {
  if (request.image.empty()) {
    throw user_error("--print={}: say which image has atoll, --image=REGISTRY/atoll:TAG", kind);
  }
  if (request.min_ranks > 0 && request.min_ranks < request.ranks()) {
    throw user_error(
        "--print={} starts all ranks of a Job, and --min-ranks={} asks for fewer: leave it out (a "
        "pod that is lost comes again), or use a LeaderWorkerSet, see docs/kubernetes.md",
        kind, request.min_ranks);
  }
}

std::string address_in(const ManifestRequest& request, const std::string& host) {
  return request.coordinator.empty() ? fmt::format("{}:{}", host, kPort) : request.coordinator;
}

std::string kubernetes(const ManifestRequest& request) {
  require_containers(request, "kubernetes");
  // Pods of a Job are called JOB-INDEX, below the service that is their subdomain.
  const std::string host = fmt::format("{0}-coordinator-0.{0}", request.name);
  const bool has_coordinator = request.islands > 0 && request.coordinator.empty();
  std::string text = instructions(request, has_coordinator ? host : "") + config_map(request);
  text += fmt::format(
      "---\n"
      "# Gives the pods names for each other.\n"
      "apiVersion: v1\nkind: Service\nmetadata:\n  name: {0}\nspec:\n  clusterIP: None\n"
      "  publishNotReadyAddresses: true\n"
      "  selector: {{app.kubernetes.io/instance: {0}}}\n",
      request.name);
  for (const Pods& pods : jobs_of(request, address_in(request, host))) {
    text += fmt::format("---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {}-{}\nspec:\n{}",
                        request.name, pods.job, indented(job_spec(request, pods), 2));
  }
  return text;
}

std::string jobset(const ManifestRequest& request) {
  require_containers(request, "jobset");
  // JobSet calls pods SET-JOB-REPLICA-INDEX, below a service that is called as the set.
  const std::string host = fmt::format("{0}-coordinator-0-0.{0}", request.name);
  const bool has_coordinator = request.islands > 0 && request.coordinator.empty();
  const std::vector<Pods> jobs = jobs_of(request, address_in(request, host));
  std::vector<std::string> trained;
  for (const Pods& pods : jobs) {
    if (pods.has_resources) trained.push_back(pods.job);
  }
  std::string text = instructions(request, has_coordinator ? host : "") + config_map(request);
  text += fmt::format(
      "---\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: {0}\nspec:\n"
      "  network: {{enableDNSHostnames: true, subdomain: {0}, publishNotReadyAddresses: true}}\n"
      "  successPolicy: {{operator: All, targetReplicatedJobs: [{1}]}}\n"
      "  replicatedJobs:\n",
      request.name, fmt::join(trained, ", "));
  for (const Pods& pods : jobs) {
    std::string spec = job_spec(request, pods);
    // The set gives its pods their subdomain itself.
    const std::string own = fmt::format("    subdomain: {}\n", request.name);
    spec.erase(spec.find(own), own.size());
    text += fmt::format("    - name: {}\n      replicas: 1\n      template:\n        spec:\n{}",
                        pods.job, indented(spec, 10));
  }
  return text;
}

struct Kind {
  const char* name;
  std::string (*write)(const ManifestRequest&);
};

constexpr Kind kKinds[] = {{"slurm", slurm}, {"kubernetes", kubernetes}, {"jobset", jobset}};

}  // namespace

std::vector<std::string> manifest_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string manifest(std::string_view kind, const ManifestRequest& request) {
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.write(request);
  }
  throw user_error("--print={}: one of {}", kind, fmt::join(manifest_kinds(), ", "));
}

std::string job_name(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string name;
  for (const char c : text) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_lower = c >= 'a' && c <= 'z';
    const bool is_digit = c >= '0' && c <= '9';
    if (is_upper || is_lower || (is_digit && !name.empty())) {
      name += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), kLongest));
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "atoll" : name;
}

}  // namespace atl::launch
