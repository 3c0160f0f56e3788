#include "atoll/train/config/device.h"

#include "atoll/base/error.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

constexpr std::int64_t kMib = 1 << 20;

// One feature that kernels or collectives of GPU memory lack.
struct Lacking {
  const char* key;
  bool is_wanted;
  const char* remedy;
};

void add_debug(SettingRegistry& settings, DeviceSettings& d) {
  settings.group("device.fake", "For tests of atoll itself: the GPU that the CPU plays.",
                 Scope::kHost);
  settings
      .add("device.fake_order", &d.fake_order,
           "The order in which streams, blocks and threads run, of those that a GPU may choose. "
           "Changes no bit.",
           between(0, 0x1p53))
      .only_with("device.kind", "fake_cuda");
  settings
      .add("device.fake_memory_mib", &d.fake_memory_mib, "MiB of its memory.", between(1, 1 << 20))
      .only_with("device.kind", "fake_cuda");
  settings
      .add("device.fake_lost_after", &d.fake_lost_after,
           "Kernels that run before it answers no more, as a GPU that is lost; 0: never.",
           at_least(0))
      .only_with("device.kind", "fake_cuda");
}

}  // namespace

void add_device(SettingRegistry& settings, DeviceSettings& d) {
  const Values kGpu = {"cuda", "auto", "fake_cuda"};
  settings.group("device", "What the run computes on.", Scope::kHost);
  settings.add("device.kind", &d.kind,
               "cpu. cuda: an NVIDIA GPU, of several ranks on a machine one each: docs/gpus.md; "
               "needs an atoll that was built with CUDA. auto: cuda where a GPU can be used, else "
               "cpu. fake_cuda: for tests of atoll itself, a GPU that the CPU plays, thousands of "
               "times slower.",
               one_of({"cpu", "cuda", "auto", "fake_cuda"}));
  settings
      .add("device.index", &d.index,
           "device.kind = cuda: which GPU, as CUDA counts those that the process sees; -1: the "
           "first, and of several ranks on a machine each the next. Two ranks on one GPU are "
           "refused.",
           between(-1, 1023))
      .only_with("device.kind", {"cuda", "auto"});
  settings.add("device.threads", &d.threads,
               "CPU threads; 0 takes every CPU this process may use. Changes no bit of the result.",
               between(0, 1024));
  settings
      .add("device.bf16", &d.bf16,
           "train.dtype = bf16 on a CPU: what multiplies two bf16 matrices. f32: arithmetic in f32 "
           "on widened pieces. library: oneDNN with the CPU's own bf16 instructions (AVX-512 BF16, "
           "AMX). amx: our own tiles on AMX. auto: what a measurement of some milliseconds finds "
           "fastest when the run begins; it goes on so. Sums run in f32 in each, in another order; "
           "set it where several runs shall have the same bits.",
           one_of({"auto", "f32", "library", "amx"}))
      .only_with("device.kind", {"cpu", "auto"});
  settings
      .add("device.attention", &d.attention,
           "On a GPU, what carries out attention. own: our own kernels. cudnn: cuDNN, on GPUs of "
           "compute capability 9.0 (H100, H200), for train.dtype = bf16, data.packing = stream and "
           "no sliding window; it sums in another order.",
           one_of({"own", "cudnn"}))
      .only_with("device.kind", kGpu)
      .needs("train.dtype", "bf16")
      .needs("data.packing", "stream", "cuDNN's attention would cross documents");
  settings
      .add("device.attention_mib", &d.attention_mib,
           "device.attention = cudnn: MiB of workspace that the gradient of attention may take, "
           "which grows as the square of train.context. Sequences go through it as many at once as "
           "fit.",
           between(1, 1 << 20))
      .only_with("device.kind", kGpu)
      .only_with("device.attention", "cudnn");
  settings
      .add("device.graphs", &d.graphs,
           "On one GPU: queue a micro-batch's forward and backward pass as one CUDA graph. For "
           "small models, whose kernels are done before the host has queued the next one. Changes "
           "no bit.")
      .only_with("device.kind", kGpu)
      .not_beside("train.exact",
                  "that sums the gradients of each micro-batch by itself, through the host");
  add_debug(settings, d);
}

void refuse_on_gpu(const TrainConfig& config) {
  const Lacking lacking[] = {
      {"offload.params", config.offload.params != "none",
       "share them among several GPUs with dp.zero=3, beside offload.optimizer"},
      {"dp.balance", config.dp.balance,
       "leave it out: the times that it goes by are those of the host, not of the GPU"},
  };
  for (const Lacking& one : lacking) {
    if (!one.is_wanted) continue;
    throw user_error("{} is nothing that a GPU can do yet; {}, or use --device.kind=cpu", one.key,
                     one.remedy);
  }
}

void validate_device(const TrainConfig& config, const Settings& settings) {
  rules().check(config, settings, "device.");
}

DeviceKind kind_of(const DeviceSettings& device) {
  const DeviceChoice choice = device_choice_named(device.kind);
  const bool is_gpu = choice == DeviceChoice::kCuda || choice == DeviceChoice::kFakeCuda;
  return is_gpu ? DeviceKind::kCuda : DeviceKind::kCpu;
}

ChosenDevice chosen_device(const DeviceSettings& device, int index, int threads) {
  return {.choice = device_choice_named(device.kind),
          .index = index,
          .threads = threads,
          .fake = {.order = static_cast<std::uint64_t>(device.fake_order),
                   .memory = static_cast<std::size_t>(device.fake_memory_mib * kMib),
                   .lost_after = device.fake_lost_after}};
}

}  // namespace atl::train
