#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/processes/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/bench/bench.h"
#include "atoll/cli/bench/models.h"
#include "atoll/cli/bench/room.h"
#include "atoll/cli/bench/table.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/train/step/state.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string model = kBenchModel;
  std::string dir = ".";
  int rounds = 3;
  int threads = 0;
  bool json = false;
};

/// A descriptor, closed with the object.
struct File {
  File(const fs::path& path, int flags)
      : descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor < 0) throw io_error("cannot open", path, errno);
  }
  ~File() { ::close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor;
};

// As `cp` does it, and an fsync: read 1 MiB, write it.
void copy_and_flush(const fs::path& from, const fs::path& to) {
  const File in(from, O_RDONLY), out(to, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char> piece(std::size_t{1} << 20);
  ssize_t n = 0;
  while ((n = ::read(in.descriptor, piece.data(), piece.size())) > 0) {
    if (::write(out.descriptor, piece.data(), static_cast<std::size_t>(n)) != n) {
      throw io_error("cannot write to", to, errno);
    }
  }
  if (n < 0 || ::fsync(out.descriptor) != 0) throw io_error("cannot copy to", to, errno);
}

std::uint64_t copy_directory(const fs::path& from, const fs::path& to) {
  std::uint64_t bytes = 0;
  fs::create_directories(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    copy_and_flush(entry.path(), to / entry.path().filename());
    bytes += entry.file_size();
  }
  sync_directory(to);
  return bytes;
}

// What a checkpoint holds.
std::vector<Tensor> state_tensors(train::TrainState& state) {
  std::vector<Tensor> tensors = {state.store().values()};
  for (const optim::StateTensor& piece : state.optimizer().state()) {
    tensors.push_back(piece.tensor);
  }
  return tensors;
}

std::size_t total_bytes(const std::vector<Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

// One copy of the state to memory that nobody has touched, by one thread.
void copy_once(const std::vector<Tensor>& tensors) {
  const std::unique_ptr<char[]> fresh(new char[total_bytes(tensors)]);
  char* to = fresh.get();
  for (const Tensor& tensor : tensors) {
    const HostRead read(tensor);
    std::memcpy(to, read.bytes().data(), tensor.bytes());
    to += tensor.bytes();
  }
  asm volatile("" : : "r"(fresh.get()) : "memory");  // or it is optimised away
}

struct Times {
  std::vector<double> copy, save, load, stall, beside, once;
  std::uint64_t bytes = 0;  // of a checkpoint's files
};

// Everything once, in turn; the caller leaves the first round out, which warms up.
void add_round(train::TrainState& state, ThreadPool& threads, const fs::path& room, Times& times) {
  const fs::path root = room / "checkpoints";
  const train::Position position;
  fs::path path;
  times.save.push_back(
      seconds_of([&] { path = train::save_checkpoint(root, state, position, {}); }));
  times.copy.push_back(seconds_of([&] { times.bytes = copy_directory(path, room / "copy"); }));
  times.load.push_back(seconds_of(
      [&] { train::load_checkpoint(ckpt::verify_checkpoint(path, &threads), state, threads); }));
  fs::remove_all(room / "copy");
  fs::remove_all(root);
  times.once.push_back(seconds_of([&] { copy_once(state_tensors(state)); }));
  std::unique_ptr<train::CheckpointSave> pending;
  times.stall.push_back(seconds_of([&] {
    pending =
        train::begin_save(root, state, position, {}, {}, train::CheckpointSave::Mode::kBeside);
  }));
  times.beside.push_back(seconds_of([&] { pending->commit(); }));
  fs::remove_all(root);
}

std::vector<Figure> figures_of(const Times& times, std::size_t state_bytes) {
  const auto files = static_cast<double>(times.bytes);
  const auto state = static_cast<double>(state_bytes);
  const auto figure = [](const char* what, double bytes, const std::vector<double>& seconds,
                         const std::vector<double>& limit, const char* limit_is) {
    const double taken = median(seconds), best = median(limit);
    return Figure{.what = what,
                  .value = bytes / taken / 1e9,
                  .unit = "GB/s",
                  .limit = bytes / best / 1e9,
                  .limit_is = limit_is,
                  .share = best / taken,
                  .note = fmt::format("{:.3f} s", taken)};
  };
  const char* plain = "a plain copy of the files";
  return {figure("save", files, times.save, times.copy, plain),
          figure("load and verify", files, times.load, times.copy, plain),
          figure("checkpoint.async: training waits", state, times.stall, times.once,
                 "a copy of the state in memory"),
          figure("checkpoint.async: until in place", files, times.beside, times.copy, plain)};
}

void check_room(const train::TrainState& state, const fs::path& dir) {
  const auto planned = static_cast<double>(state.memory().total_bytes());
  const auto memory = static_cast<double>(read_machine().memory_available);
  // Beside the plan: the copy that an asynchronous save is written from, as large as the state.
  if (memory > 0 && 2 * planned > memory) {
    throw user_error("{:.1f} GB of memory are needed and {:.1f} are free; give a smaller --model",
                     2 * planned / 1e9, memory / 1e9);
  }
  // A checkpoint and its copy, each no larger than the plan.
  const Disk disk = read_disk(dir);
  if (2 * planned > static_cast<double>(disk.available)) {
    throw user_error(
        "{:.1f} GB are needed in {} and {:.1f} are free; give another --dir or a "
        "smaller --model",
        2 * planned / 1e9, dir.string(), static_cast<double>(disk.available) / 1e9);
  }
}

int run_checkpoint(const Options& options) {
  train::StateOptions wanted;
  wanted.model = bench_model_config(options.model);
  wanted.context = 64;
  const auto device = open_device({.threads = options.threads});
  train::TrainState state(wanted);
  const BenchRoom room(options.dir);
  check_room(state, options.dir);
  const train::InterruptGuard interrupt;  // so that the room is left clean
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  state.allocate(*device);
  state.store().initialise(run, 1);
  state.optimizer().init_masters(run, state.store().values());
  Times warm, times;
  for (int round = 0; round <= options.rounds; ++round) {
    add_round(state, device->threads(), room.path(), round == 0 ? warm : times);
    if (interrupt.signal() != 0) return 128 + interrupt.signal();
  }
  const std::size_t state_bytes = total_bytes(state_tensors(state));
  const std::vector<Figure> figures = figures_of(times, state_bytes);
  if (options.json) {
    fmt::print("{}\n", figures_to_json(figures));
    return 0;
  }
  fmt::print(
      "{} with AdamW's moments, {:.0f} MB of state, {:.0f} MB of files in {}, {} in "
      "turn; {}\n\n{}\n",
      options.model, static_cast<double>(state_bytes) / 1e6, static_cast<double>(times.bytes) / 1e6,
      options.dir, counted(options.rounds, "round"), device->name(), figure_table(figures));
  fmt::print(
      "A plain copy: read from the page cache, write, fsync. Above 100%: a save lets the disk "
      "begin\nat once, and a load does not write.\n");
  return 0;
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("--model", options->model, "whose state is saved: " + bench_model_names())
      .show_default();
  parser.add_option("--dir", options->dir, "on the disk to measure; nothing of it stays")
      .show_default();
  parser.add_option("--rounds", options->rounds, "of which the median counts")
      .range(1, 1000)
      .show_default();
  parser.add_option("--threads", options->threads, "CPU threads; 0: all").range(0, 1024);
  parser.add_flag("--json", options->json, "one line for programs");
  return [options](const Invocation&) { return run_checkpoint(*options); };
}

}  // namespace

Benchmark bench_checkpoint() {
  return {.name = "checkpoint",
          .summary = "saving and loading a training state, against a plain copy of its files",
          .add = add};
}

}  // namespace atl::cli
