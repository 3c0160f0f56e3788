#include "atoll/plan/gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/gpu_support.h"
#include "atoll/plan/layout.h"
#include "atoll/plan/op_cases.h"
#include "atoll/train/config/device.h"

namespace atl::plan {

namespace {

// What a run reaches of what is stated; see figures_of_gpu.
constexpr double kProducts = 0.80;
constexpr double kMemory = 0.90;
constexpr double kLinks = 0.80;
constexpr double kAttention = 0.5, kAttentionFromHopper = 0.23;
constexpr int kHopper = 90;
// CUDA itself, and workspaces of products.
constexpr double kNotPlanned = 1e9;
constexpr int kGpusOfAHost = 8;
constexpr double kKernelStart = 5e-6;
// Of a collective: a kernel's start and the slowest rank's; through the host also copies and waits.
constexpr double kNcclLatency = 20e-6, kHostLatency = 100e-6;
constexpr double kUnknownLinks = 25;  // GB/s: PCIe 4.0

Link even(double latency, double bytes_per_s) {
  return {.latency_s = latency,
          .gather_bytes_per_s = bytes_per_s,
          .reduce_bytes_per_s = bytes_per_s,
          .send_bytes_per_s = bytes_per_s};
}

// Through host memory each byte goes down and up again.
Link link_of(double links, double pcie, const train::TrainConfig& config) {
  if (config.comm.gpu == "nccl") return even(kNcclLatency, kLinks * 1e9 * links);
  return even(kHostLatency, kLinks * 1e9 * pcie / 2);
}

bool is_bf16(const train::TrainConfig& config) {
  return config.train.dtype == "bf16";
}

// Any size's, as there is no other of the name.
void set_attention(Figures& figures, double rate) {
  for (const char* pass : {"forward", "backward"}) {
    figures.rates[fmt::format("attention/{} 1x1024x1024", pass)] = rate;
  }
}

/// Seconds of one call of `work` on the device's own clock: the shortest of some.
template <typename Work>
double time_on(Device& device, Stream& stream, const Work& work) {
  const auto begin = device.make_event(), end = device.make_event();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    begin->record(stream);
    work();
    end->record(stream);
    end->wait();
    const double seconds = end->seconds_since(*begin);
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;  // the first one warms up
  }
  return best;
}

double measure_products(Device& device, Stream& stream, Dtype dtype, std::int64_t size) {
  OpCase product = product_op_case("product", dtype, size, size, size);
  const auto call = product.prepare({.stream = &stream});
  return product.amount / time_on(device, stream, call);
}

double measure_copies(Device& device, Stream& stream, std::size_t bytes) {
  const Buffer from(device, bytes), to(device, bytes);
  const auto copy = [&] { stream.copy(to.data(), from.data(), bytes); };
  return 2 * static_cast<double>(bytes) / time_on(device, stream, copy);
}

}  // namespace

Figures figures_of_gpu(const GpuFigures& gpu, const train::TrainConfig& config) {
  if (config.train.fp8 != "off") {
    const std::string problem =
        fp8_problem(gpu.architecture / 10, gpu.architecture % 10, config.train.fp8 == "blocks");
    if (!problem.empty()) {
      throw user_error("train.fp8 = {} cannot be used on {}: {}", config.train.fp8, gpu.name,
                       problem);
    }
  }
  Figures figures;
  const double stated = 1e12 * (is_bf16(config) ? gpu.bf16_tflops : gpu.f32_tflops);
  figures.machine = fmt::format("{}, {:.0f} TFLOP/s and {:.0f} GB/s stated", gpu.name,
                                stated / 1e12, gpu.gb_per_s);
  figures.ranks_per_host = kGpusOfAHost;
  figures.memory_gib = (1e9 * gpu.memory_gb - kNotPlanned) / 0x1p30;
  figures.flops_per_s = kProducts * stated;
  figures.bytes_per_s = kMemory * 1e9 * gpu.gb_per_s;
  figures.call_s = kKernelStart;
  figures.overlap = 0;
  figures.host[kGpusOfAHost] = link_of(gpu.links_gb_per_s, gpu.pcie_gb_per_s, config);
  if (is_bf16(config)) {
    set_attention(figures,
                  stated * (gpu.architecture < kHopper ? kAttention : kAttentionFromHopper));
  }
  return figures;
}

Figures measure_gpu(Device& device, const GpuFigures* known, const train::TrainConfig& config,
                    std::int64_t size) {
  const auto stream = device.open_stream();
  const Dtype dtype = is_bf16(config) ? Dtype::kBf16 : Dtype::kF32;
  Figures figures;
  if (known != nullptr) figures = figures_of_gpu(*known, config);
  figures.ranks_per_host = kGpusOfAHost;
  figures.call_s = kKernelStart;
  figures.overlap = 0;
  figures.memory_gib = (static_cast<double>(device.total_memory()) - kNotPlanned) / 0x1p30;
  figures.flops_per_s = measure_products(device, *stream, dtype, size);
  // Far more than a cache holds, where products are of a GPU's size.
  figures.bytes_per_s = measure_copies(device, *stream, static_cast<std::size_t>(8 * size * size));
  figures.machine = fmt::format("{}, {:.0f} TFLOP/s and {:.0f} GB/s measured", device.name(),
                                figures.flops_per_s / 1e12, figures.bytes_per_s / 1e9);
  if (known == nullptr) {
    figures.host[kGpusOfAHost] = link_of(kUnknownLinks, kUnknownLinks, config);
    figures.machine += fmt::format("; links of {:.0f} GB/s assumed", kUnknownLinks);
  }
  return figures;
}

Figures figures_for_gpu(const std::string& name, const train::TrainConfig& config) {
  if (!name.empty()) return figures_of_gpu(gpu_figures_named(name), config);
  if (config.device.kind == "fake_cuda") {
    throw user_error(
        "device.kind = fake_cuda is played by the CPU, and its times say nothing; give --gpu NAME "
        "for a GPU's, such as --gpu H100");
  }
  const auto device = open_chosen(train::chosen_device(
      config.device, static_cast<int>(std::max<std::int64_t>(0, config.device.index)), 1));
  return measure_gpu(*device, find_gpu_figures(device->name()), config);
}

bool takes_gpu(const train::TrainConfig& config) {
  switch (device_choice_named(config.device.kind)) {
    case DeviceChoice::kCuda:
    case DeviceChoice::kFakeCuda:
      return true;
    case DeviceChoice::kCpu:
      return false;
    case DeviceChoice::kAuto:
      break;
  }
  const std::vector<std::string> problems = gpu_problems();
  return std::any_of(problems.begin(), problems.end(),
                     [](const std::string& problem) { return problem.empty(); });
}

std::vector<std::string> overrides_for_gpu(const std::filesystem::path& recipe,
                                           std::vector<std::string> overrides) {
  const Variants as_given(recipe, overrides);
  const Setting& kind = as_given.settings().find("device.kind");
  const std::string& value = as_given.config().device.kind;
  if (value == "cpu" && !kind.is_default()) {
    throw user_error("--gpu is for a run on GPUs, and device.kind = cpu ({}); remove one of them",
                     kind.origin);
  }
  std::erase_if(overrides,
                [](const std::string& one) { return one.starts_with("--device.kind="); });
  overrides.emplace_back("--device.kind=cuda");
  return overrides;
}

}  // namespace atl::plan
