// Checkpoints of GPT-2 124M with AdamW's state beside a plain copy of the same files on the same
// file system, flushed too, in turn: how long a save holds the run up, with and without
// checkpoint.async, and how long loading takes.
//
//   ckpt_bench --directory /where/runs/are --rounds 5

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/state.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

template <typename Call>
double seconds_of(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// As `cp` does it, and an fsync: read 1 MiB, write it.
void copy_and_flush(const fs::path& from, const fs::path& to) {
  const int in = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
  const int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (in < 0 || out < 0) throw io_error("cannot open", in < 0 ? from : to, errno);
  std::vector<char> piece(std::size_t{1} << 20);
  ssize_t n = 0;
  while ((n = ::read(in, piece.data(), piece.size())) > 0) {
    if (::write(out, piece.data(), static_cast<std::size_t>(n)) != n) {
      throw io_error("cannot write to", to, errno);
    }
  }
  if (n < 0 || ::fsync(out) != 0) throw io_error("cannot copy to", to, errno);
  ::close(in);
  ::close(out);
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

train::StateOptions gpt2() {
  train::StateOptions options;
  options.model = nn::parse_config(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
          "n_positions": 1024})",
      "GPT-2 124M");
  options.context = 64;
  return options;
}

struct Times {
  const char* name;
  std::vector<double> seconds = {};
};

void report(const Times& times, double bytes, double plain) {
  std::vector<double> sorted = times.seconds;
  std::sort(sorted.begin(), sorted.end());
  const double middle = sorted[sorted.size() / 2];
  fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} | {:.0f} |\n", times.name, middle, sorted.front(),
             bytes / middle / 1e9, 100 * plain / middle);
}

void measure(const fs::path& directory, int rounds, int threads) {
  const auto device = open_cpu(threads);
  Stream stream(*device);
  Run run = {.stream = &stream};
  train::TrainState state(gpt2());
  state.allocate(*device);
  state.store().initialise(run, 1);
  state.optimizer().init_masters(run, state.store().values());
  std::size_t state_bytes = state.store().values().bytes();
  for (const optim::StateTensor& piece : state.optimizer().state()) {
    state_bytes += piece.tensor.bytes();
  }
  std::vector<char> memory(state_bytes, 1);

  Times copy = {"plain copy, fsync"}, save = {"save"}, stall = {"save with async: the run waits"},
        beside = {"save with async: until it is in place"}, load = {"load and verify"},
        once = {"memcpy of the state, to new memory"};
  const fs::path root = directory / "checkpoints";
  std::uint64_t bytes = 0;
  train::Position position;
  for (int round = 0; round <= rounds; ++round) {
    const auto note = [&](Times& times, double seconds) {
      if (round > 0) times.seconds.push_back(seconds);  // the first one warms up
    };
    position.step = round;
    fs::path path;
    note(save, seconds_of([&] { path = train::save_checkpoint(root, state, position, {}); }));
    note(copy, seconds_of([&] { bytes = copy_directory(path, directory / "copy"); }));
    note(load, seconds_of([&] { train::load_checkpoint(ckpt::verify_checkpoint(path), state); }));
    fs::remove_all(directory / "copy");
    fs::remove_all(root);
    note(once, seconds_of([&] {
           const std::unique_ptr<char[]> fresh(new char[state_bytes]);
           std::memcpy(fresh.get(), memory.data(), state_bytes);
           asm volatile("" : : "r"(fresh.get()) : "memory");  // or it is optimised away
         }));
    std::unique_ptr<train::CheckpointSave> pending;
    note(stall, seconds_of([&] {
           pending = train::begin_save(root, state, position, {}, {},
                                       train::CheckpointSave::Mode::kBeside);
         }));
    note(beside, seconds_of([&] { pending->commit(); }));
    fs::remove_all(root);
  }
  std::vector<double> plain = copy.seconds;
  std::sort(plain.begin(), plain.end());
  fmt::print("{}, {:.0f} MB of state, {:.0f} MB of files, {} rounds in turn\n\n", device->name(),
             static_cast<double>(state_bytes) / 1e6, static_cast<double>(bytes) / 1e6, rounds);
  fmt::print("| | seconds, median | best | GB/s | % of the plain copy's speed |\n");
  fmt::print("|---|---|---|---|---|\n");
  for (const Times* times : {&copy, &save, &load, &stall, &beside, &once}) {
    report(*times, static_cast<double>(bytes), plain[plain.size() / 2]);
  }
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  std::string directory;
  int rounds = 5;
  int threads = 2;
  CLI::App app{"Speed of checkpoints."};
  app.add_option("--directory", directory, "an empty or new one; it is removed afterwards")
      ->required();
  app.add_option("--rounds", rounds)->capture_default_str();
  app.add_option("--threads", threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    if (std::filesystem::exists(directory) && !std::filesystem::is_empty(directory)) {
      throw atl::user_error("{} is not empty", directory);
    }
    atl::measure(directory, rounds, threads);
    std::filesystem::remove_all(directory);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
