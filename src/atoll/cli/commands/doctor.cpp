#include <unistd.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "atoll/base/error.h"
#include "atoll/cli/build.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/diagnosis.h"
#include "atoll/cli/inspect.h"
#include "atoll/device/gpu_support.h"

namespace atl::cli {

namespace {

struct Options {
  std::string path;
};

const char* dnnl_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 with bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AMX";
    default:
      return "the newest it knows";
  }
}

void row(const char* name, const std::string& value) {
  fmt::print("{:<12}{}\n", name, value);
}

void print_machine(const Machine& machine, const Disk& disk) {
  row("CPU", machine.cpu_model.empty() ? "unknown model" : machine.cpu_model);
  row("features", cpu_features());
  row("CPUs",
      fmt::format(
          "{} present, {} allowed, {}; a run uses {}", machine.cpus_present, machine.cpus_allowed,
          machine.cpu_quota > 0 ? fmt::format("quota {:.3g}", machine.cpu_quota) : "no quota",
          counted(available_cpus(), "thread")));
  row("load", fmt::format("{:.2f} processes in the last minute", machine.load));
  row("memory",
      fmt::format("{} installed, {} available, {}", format_bytes(machine.memory_total),
                  format_bytes(machine.memory_available),
                  machine.memory_limit > 0 ? "container limit " + format_bytes(machine.memory_limit)
                                           : "no container limit"));
  row("swap", machine.swap_total == 0
                  ? "none"
                  : fmt::format("{} of {} in use", format_bytes(machine.swap_used),
                                format_bytes(machine.swap_total)));
  row("huge pages", machine.huge_pages.empty() ? "unknown" : machine.huge_pages);
  row("disk here", fmt::format("{} free, {}", format_bytes(disk.available),
                               disk.writable ? "writable" : "read-only"));
}

// Each that there is, and what a run does with it.
void print_gpus(const Machine& machine, const GpuReport& gpus) {
  const std::vector<std::string> problems = gpu_problems();
  for (std::size_t i = 0; i < gpus.devices.size(); ++i) {
    const std::string& problem = problems.at(i);
    row("GPU", fmt::format("{}; {}", gpus.devices[i],
                           problem.empty() ? "a run with --device.kind=cuda uses it"
                                           : "not used: " + problem));
  }
  if (!gpus.devices.empty()) return;
  row("GPU", fmt::format("{}; training runs on the CPU",
                         machine.nvidia_gpu ? "NVIDIA's, not used: " + gpus.problem : "none"));
}

void print_software(const Machine& machine, const Build& build, const GpuReport& gpus) {
  print_gpus(machine, gpus);
  const dnnl_version_t* version = dnnl_version();
  row("oneDNN",
      fmt::format("{}.{}.{}, uses {}", version->major, version->minor, version->patch, dnnl_isa()));
  row("atoll",
      fmt::format("{}, {}{}, compiled by {}", ATOLL_VERSION, build.type,
                  build.sanitizers.empty() ? "" : " with " + build.sanitizers, build.compiler));
}

int examine_machine() {
  const Machine machine = read_machine();
  const Disk disk = read_disk(".");
  const Build build = this_build();
  const GpuReport gpus = probe_gpus();
  print_machine(machine, disk);
  print_software(machine, build, gpus);
  const std::vector<Finding> findings = diagnose(machine, disk, build, gpus, cpu_features());
  fmt::print("\n");
  if (findings.empty()) fmt::print("nothing is wrong with this machine\n");
  for (const Finding& finding : findings) {
    fmt::print("! {}\n  fix: {}\n", finding.what, finding.fix);
  }
  return 0;
}

Action add(ArgumentParser& parser) {
  auto options = std::make_shared<Options>();  // lives as long as the parser and the action
  parser.add_option("path", options->path,
                    "A run, checkpoint, corpus or model to verify instead of the machine");
  return [options](const Invocation&) {
    if (options->path.empty()) return examine_machine();
    fmt::print("{}", inspect(options->path));
    return 0;
  };
}

}  // namespace

Command doctor_command() {
  return {.name = "doctor",
          .summary = "Say what this machine has and what is wrong with it; or verify a directory.",
          .example = "  atoll doctor\n  atoll doctor runs/kjv-demo",
          .add = add};
}

}  // namespace atl::cli
