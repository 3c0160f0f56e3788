#include "atoll/cli/diagnosis.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"

namespace atl::cli {

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void diagnose_build(const Build& build, std::vector<Finding>& findings) {
  if (!build.sanitizers.empty()) {
    findings.push_back(
        {fmt::format("built with sanitizers ({}), which cost most of the speed", build.sanitizers),
         "./dev build release"});
  }
  if (build.type != "RelWithDebInfo" && build.type != "Release") {
    findings.push_back(
        {fmt::format("built as '{}', without optimisation", build.type), "./dev build release"});
  }
}

void diagnose_disk(const Disk& disk, std::vector<Finding>& findings) {
  if (!disk.writable) {
    findings.push_back({"this directory is not writable, so no run can be kept in it",
                        "work in another directory, or set run.dir to one that is"});
  }
  if (disk.available < kGiB) {
    findings.push_back({fmt::format("only {} of disk are free here; a checkpoint takes 12 bytes a "
                                    "parameter, and the next is whole before the last goes",
                                    format_bytes(disk.available)),
                        "free some, or set run.dir on another disk"});
  }
}

void diagnose_memory(const Machine& machine, std::vector<Finding>& findings) {
  if (machine.memory_available > 0 && machine.memory_available < kGiB) {
    findings.push_back(
        {fmt::format("only {} of memory are available", format_bytes(machine.memory_available)),
         "end other programs, or lower train.micro_batch; `atoll plan` says what a "
         "run takes"});
  }
  if (machine.memory_limit > 0 && machine.memory_limit < kGiB) {
    findings.push_back(
        {fmt::format("the container may use only {} of memory", format_bytes(machine.memory_limit)),
         "start it with a higher memory limit"});
  }
  if (machine.swap_used > kGiB && machine.memory_available < machine.memory_total / 10) {
    findings.push_back({fmt::format("memory is overcommitted: {} are swapped out",
                                    format_bytes(machine.swap_used)),
                        "end other programs: training touches all of its memory in every step"});
  }
  constexpr int kNeverOvercommit = 2;
  if (machine.overcommit_mode == kNeverOvercommit &&
      machine.committed + kGiB > machine.commit_limit) {
    findings.push_back(
        {fmt::format("vm.overcommit_memory is 2 and {} of {} are promised: the system will refuse "
                     "memory that is free",
                     format_bytes(machine.committed), format_bytes(machine.commit_limit)),
         "sysctl vm.overcommit_memory=0"});
  }
  if (machine.huge_pages == "never") {
    findings.push_back({"transparent huge pages are off, which costs some speed",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

void diagnose_cpus(const Machine& machine, const std::string& features,
                   std::vector<Finding>& findings) {
  const double usable = machine.cpu_quota > 0
                            ? std::min<double>(machine.cpus_allowed, machine.cpu_quota)
                            : machine.cpus_allowed;
  if (machine.cpu_quota > 0 && machine.cpu_quota < machine.cpus_allowed) {
    findings.push_back(
        {fmt::format("{} CPUs are visible but the container is granted the time of {:.3g}: more "
                     "threads than that are stopped in turns",
                     machine.cpus_allowed, machine.cpu_quota),
         fmt::format("leave device.threads at 0 or set it to at most {:.0f}, or raise the quota",
                     std::max(1.0, std::floor(machine.cpu_quota)))});
  }
  if (features.find("avx2") == features.npos && features.find("neon") == features.npos) {
    findings.push_back({"this CPU has no AVX2, so training runs several times slower than it could",
                        "use a newer machine, or let the virtual machine pass its CPU's features"});
  }
  if (machine.load > usable + 0.5) {
    findings.push_back({fmt::format("the machine is busy: {:.1f} processes want its {:.3g} CPUs",
                                    machine.load, usable),
                        "wait, or end other programs; tokens per second will be lower until then"});
  }
}

// Without CUDA in the program a GPU that is not used is no finding: whoever built it knows.
void diagnose_gpus(const GpuReport& gpus, std::vector<Finding>& findings) {
  if (!gpus.built_in || gpus.problem.empty()) return;
  findings.push_back(
      {"built with CUDA, and no GPU can be used: " + gpus.problem,
       "nothing, for training on the CPU, which is the default; for --device.kind=cuda "
       "what is said above"});
}

}  // namespace

std::vector<Finding> diagnose(const Machine& machine, const Disk& disk, const Build& build,
                              const GpuReport& gpus, const std::string& cpu_features) {
  std::vector<Finding> findings;
  diagnose_disk(disk, findings);
  diagnose_memory(machine, findings);
  diagnose_build(build, findings);
  diagnose_gpus(gpus, findings);
  diagnose_cpus(machine, cpu_features, findings);
  return findings;
}

}  // namespace atl::cli
