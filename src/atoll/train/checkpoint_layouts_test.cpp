// A checkpoint says nothing of the ranks that wrote it: any layout reads what any other wrote.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "atoll/base/file.h"
#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/safetensors/set.h"
#include "atoll/ckpt/testing.h"
#include "atoll/comm/mesh.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/ops/testing.h"
#include "atoll/optim/registry.h"
#include "atoll/parallel/whole_state.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/step.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using parallel::Zero;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Layout {
  int shard = 1;
  int zero = 0;
  int replicas = 1;
  int tensor = 1;  ///< ranks that share each product

  int data_ranks() const { return shard * replicas; }
  int ranks() const { return data_ranks() * tensor; }
  bool is_exact() const { return replicas == 1; }
  std::string name() const { return fmt::format("{}x{}zero{}tp{}", replicas, shard, zero, tensor); }
};

const std::vector<Layout> kLayouts = {
    {1, 0},       {1, 3},       {2, 0},       {2, 1},       {3, 2},      {4, 3},       {4, 0},
    {3, 1},       {2, 3},       {4, 2},       {2, 1, 2},    {2, 3, 2},   {1, 0, 1, 2}, {1, 0, 1, 4},
    {2, 0, 1, 2}, {2, 1, 1, 4}, {3, 2, 1, 2}, {2, 3, 1, 2}, {2, 3, 2, 2}};

struct Variant {
  std::string name;
  std::string family = "llama";
  std::string kind = "adamw";
  Dtype dtype = Dtype::kF32;
  optim::Masters masters = optim::Masters::kF32;
  bool lora = false;
};

// What ranks that share products do not do yet.
bool fits(const Variant& variant, const Layout& layout) {
  return layout.tensor == 1 ||
         (!optim::find_optimizer(variant.kind).whole_matrices && !variant.lora);
}

const Variant kLora = {"lora", "gpt2", "adamw", Dtype::kF32, optim::Masters::kF32, true};

// Matrices of more than parallel::kBlockElements, so that ranks hold parts of them.
nn::ModelConfig model_of(const Variant& variant) {
  nn::ModelConfig config = testing::tiny_model(variant.family);
  config.vocab_size = 311;
  config.hidden_size = 64;
  config.heads = {.num_heads = 4, .num_kv_heads = variant.family == "gpt2" ? 4 : 2, .head_dim = 16};
  config.intermediate_size = 150;
  config.max_positions = 8;
  return config;
}

StateOptions options_of(const Variant& variant, const Layout& layout, int rank) {
  StateOptions options = {.model = model_of(variant), .micro_batch = 2, .context = 8};
  options.build = {
      .dtype = variant.dtype, .tensor_size = layout.tensor, .tensor_rank = rank % layout.tensor};
  options.optimizer = {.kind = variant.kind, .masters = variant.masters};
  if (variant.lora) options.lora = {.rank = 8, .targets = {"all-linear"}};
  constexpr std::int64_t kMicroBatches = 4;
  options.data_parallel = {
      .zero = static_cast<Zero>(layout.zero),
      .num_ranks = layout.shard,
      .rank = rank / layout.tensor % layout.shard,
      .replicas = layout.replicas,
      .exact = layout.is_exact(),
      .rounds = (kMicroBatches + layout.data_ranks() - 1) / layout.data_ranks(),
      .bucket_bytes = 100 << 10,
      .whole_matrices = optim::find_optimizer(variant.kind).whole_matrices};
  return options;
}

// Flat vectors by name: of values "", and of the optimizer's state.
using Vectors = std::map<std::string, std::string>;

// One rank of a layout.
class RankOf {
 public:
  RankOf(comm::World& world, const Variant& variant, const Layout& layout)
      : layout_(layout),
        mesh_(world, {{"replicate", layout.replicas, "dp"},
                      {"shard", layout.shard, "dp"},
                      {"tp", layout.tensor}}),
        plan_(4, layout.data_ranks()),
        run_(1, 1 << 22),
        state(options_of(variant, layout, world.rank())) {
    state.allocate(*run_.device);
    std::vector<int> data;
    for (int r = world.rank() % layout.tensor; r < world.size(); r += layout.tensor) {
      data.push_back(r);
    }
    data_ = world.group(data, "dp", world.channel("dp", data));
    state.connect(*data_, mesh_.group("shard"),
                  layout.replicas > 1 ? &mesh_.group("replicate") : nullptr);
    if (layout.tensor > 1) {
      const nn::Axis& copies = *state.model().kv_copies;
      std::vector<int> same;
      for (int r = 0; r < copies.size; ++r) same.push_back(world.rank() - copies.rank + r);
      comm::Group& tensor = mesh_.group("tp");
      kv_copies_ = world.group(same, "kv", world.channel("tp", tensor.members()));
      state.connect_tensor(world.all(), tensor, *kv_copies_);
    }
    state.store().initialise(run_, 5);
    state.optimizer().init_masters(run_, state.store().values());
  }

  ThreadPool& threads() { return run_.device->threads(); }

  // What a load must replace.
  void forget() {
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      std::memset(piece.tensor.raw(), 0, piece.tensor.bytes());
    }
  }

  void step(std::int64_t number) {
    const std::vector<std::int64_t> mine = plan_.of(data_->rank());
    std::size_t next = 0;
    std::vector<test::OwnedTensor<std::int32_t>> tokens;
    tokens.reserve(2 * mine.size());
    take_step(state, run_.stream,
              {.step = number,
               .num_micro_batches = 4,
               .lr = 0.01,
               .clip = 1,
               .plan = &plan_,
               .group = data_.get()},
              [&] {
                const auto seed = static_cast<std::uint64_t>(8 * number + 2 * mine.at(next++));
                tokens.push_back(test::random_tokens({2, 8}, 311, seed));
                tokens.push_back(test::random_tokens({2, 8}, 311, seed + 1));
                return Batch{*(tokens.end() - 2), tokens.back(), 0};
              });
  }

  // Whether what this rank holds is what `whole` has there. Parts of parameters lie elsewhere: what
  // is written of them says what they are.
  ::testing::AssertionResult holds(const Vectors& whole) {
    if (layout_.tensor > 1) return ::testing::AssertionSuccess();
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      const std::size_t size = dtype_size(piece.tensor.dtype());
      const std::string& expected = whole.at(piece.name);
      const auto begin = static_cast<std::size_t>(piece.begin) * size;
      if (expected.compare(begin, piece.tensor.bytes(), testing::Bench::bytes(piece.tensor)) != 0) {
        return ::testing::AssertionFailure()
               << "\"" << piece.name << "\" from " << piece.begin << " on";
      }
    }
    return ::testing::AssertionSuccess();
  }

  // Of one rank: everything.
  Vectors vectors() {
    Vectors all;
    for (const auto& piece : parallel::held_pieces(state.store(), &state.optimizer())) {
      std::string& whole = all[piece.name];
      const std::size_t begin =
          static_cast<std::size_t>(piece.begin) * dtype_size(piece.tensor.dtype());
      if (whole.size() < begin + piece.tensor.bytes()) whole.resize(begin + piece.tensor.bytes());
      whole.replace(begin, piece.tensor.bytes(), testing::Bench::bytes(piece.tensor));
    }
    return all;
  }

 private:
  Layout layout_;
  comm::Mesh mesh_;
  std::unique_ptr<comm::Group> data_, kv_copies_;
  parallel::MicroBatchPlan plan_;
  test::TestRun run_;

 public:
  TrainState state;
};

// Every tensor of a checkpoint by its name, whatever file it is in.
std::map<std::string, std::string> tensors_of(const fs::path& checkpoint) {
  std::map<std::string, std::string> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    const ckpt::SafetensorsFile file(entry.path());
    for (const ckpt::SafetensorsEntry& tensor : file.entries()) {
      const auto bytes = file.bytes(tensor.name);
      const bool is_new =
          all.emplace(tensor.name,
                      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
              .second;
      EXPECT_TRUE(is_new) << tensor.name;
    }
  }
  return all;
}

Position position_of(std::int64_t step) {
  return {.step = step, .tokens = 64 * step, .corpus_hash = "00ff"};
}

class Layouts : public ::testing::TestWithParam<Variant> {
 protected:
  void on_ranks(const Layout& layout, const std::function<void(RankOf& rank, bool lead)>& body) {
    comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, GetParam(), layout);
      if (GetParam().lora)
        model_dir::load_parameters(base(), rank.state.model(), rank.state.store(), rank.threads());
      body(rank, world.rank() == 0);
    });
  }

  // A base model for LoRA.
  fs::path base() {
    const std::lock_guard lock(mutex_);
    if (!base_.empty()) return base_;
    StateOptions options = {.model = model_of(GetParam()), .micro_batch = 2, .context = 8};
    options.build.dtype = GetParam().dtype;
    testing::Bench bench(options, 1);
    base_ = save_checkpoint(directory_ / "base", bench.state, position_of(0), {});
    return base_;
  }

  fs::path root(const std::string& name) const { return directory_ / name; }

  ckpt::testing::TemporaryDirectory directory_{"checkpoint-layouts",
                                               ckpt::testing::memory_directory_path()};
  std::mutex mutex_;
  fs::path base_;
};

INSTANTIATE_TEST_SUITE_P(Variants, Layouts,
                         ::testing::Values(Variant{"adamw"}, Variant{"muon", "llama", "muon"},
                                           Variant{"tied_bf16", "gpt2", "adamw", Dtype::kBf16},
                                           Variant{"muon_bf16", "gpt2", "muon", Dtype::kBf16},
                                           Variant{"stochastic", "llama", "lion", Dtype::kBf16,
                                                   optim::Masters::kStochastic},
                                           kLora),
                         [](const auto& info) { return info.param.name; });

TEST_P(Layouts, EachReadsWhatEachWrote) {
  // One rank trains; every layout reads its checkpoint and writes one of its own.
  fs::path expected;
  Vectors saved, continued;
  on_ranks({1, 0}, [&](RankOf& rank, bool) {
    rank.step(0);
    rank.step(1);
    expected = save_checkpoint(root("expected"), rank.state, position_of(2), {}, "base");
    saved = rank.vectors();
    rank.step(2);
    rank.step(3);
    continued = rank.vectors();
  });
  const auto expected_tensors = tensors_of(expected);
  std::vector<ckpt::CheckpointInfo> checkpoints = {ckpt::verify_checkpoint(expected)};
  for (const Layout& layout : kLayouts) {
    if (!fits(GetParam(), layout)) continue;
    fs::path path;
    on_ranks(layout, [&](RankOf& rank, bool lead) {
      load_checkpoint(checkpoints.front(), rank.state, rank.threads());
      EXPECT_TRUE(rank.holds(saved)) << layout.name();
      const fs::path written =
          save_checkpoint(root(layout.name()), rank.state, position_of(2), {}, "base");
      if (lead) path = written;
    });
    checkpoints.push_back(ckpt::verify_checkpoint(path));
    EXPECT_TRUE(tensors_of(path) == expected_tensors) << layout.name();
    EXPECT_EQ(fs::exists(path / "model.safetensors"),
              layout.shard * layout.tensor == 1 && !GetParam().lora);
  }
  // Every layout reads each of these, and goes on as the one rank did.
  for (const Layout& layout : kLayouts) {
    if (!fits(GetParam(), layout)) continue;
    on_ranks(layout, [&](RankOf& rank, bool) {
      for (const ckpt::CheckpointInfo& checkpoint : checkpoints) {
        rank.forget();
        EXPECT_EQ(load_checkpoint(checkpoint, rank.state, rank.threads()).tokens, 128);
        EXPECT_TRUE(rank.holds(saved)) << checkpoint.path << " in " << layout.name();
      }
      if (!layout.is_exact() || layout.tensor > 1) return;
      rank.step(2);
      rank.step(3);
      EXPECT_TRUE(rank.holds(continued)) << layout.name();
    });
  }
}

TEST_P(Layouts, WrittenBesideTheStepsIsTheSame) {
  for (const Layout& layout :
       {Layout{1, 0}, Layout{3, 0}, Layout{3, 3}, Layout{2, 1, 2}, Layout{2, 3, 1, 2}}) {
    if (!fits(GetParam(), layout)) continue;
    fs::path now, beside;
    on_ranks(layout, [&](RankOf& rank, bool lead) {
      rank.step(0);
      const fs::path path =
          save_checkpoint(root("now"), rank.state, position_of(1), {{"vocab.json", "{}"}}, "base");
      const auto save = begin_save(root("beside"), rank.state, position_of(1),
                                   {{"vocab.json", "{}"}}, "base", CheckpointSave::Mode::kBeside);
      rank.step(1);
      rank.forget();
      const fs::path second = save->commit();
      EXPECT_TRUE(save->finished());
      if (!lead) return;
      now = path;
      beside = second;
    });
    // Name, size and hash of every file.
    EXPECT_EQ(read_file(now / "manifest.json"), read_file(beside / "manifest.json"))
        << layout.name();
    EXPECT_EQ(ckpt::verify_checkpoint(beside).files.size(),
              ckpt::verify_checkpoint(now).files.size());
  }
}

using LoraLayouts = Layouts;
INSTANTIATE_TEST_SUITE_P(Lora, LoraLayouts, ::testing::Values(kLora));

TEST_P(LoraLayouts, ABaseWithAnAdapterMergesIntoAnyPart) {
  fs::path adapter;
  on_ranks({1, 0}, [&](RankOf& rank, bool) {
    for (int i = 0; i < 4; ++i) rank.step(i);
    adapter = save_checkpoint(root("adapter"), rank.state, position_of(4), {}, base());
  });
  Variant whole = GetParam();
  whole.lora = false;
  Vectors expected;
  for (const Layout& layout : {Layout{1, 0}, Layout{2, 0}, Layout{3, 3}, Layout{2, 3, 2}}) {
    comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, whole, layout);
      model_dir::load_parameters(adapter, rank.state.model(), rank.state.store(), rank.threads());
      if (layout.ranks() == 1) {
        expected = rank.vectors();
        model_dir::load_parameters(base(), rank.state.model(), rank.state.store(), rank.threads());
        EXPECT_FALSE(rank.holds(expected)) << "the adapter changes something";
      } else {
        EXPECT_TRUE(rank.holds({{"", expected.at("")},
                                {"exp_avg", expected.at("exp_avg")},
                                {"exp_avg_sq", expected.at("exp_avg_sq")}}))
            << layout.name();
      }
    });
  }
}

class SharedSave : public ::testing::Test {
 protected:
  // Runs `body` on three ranks with ZeRO 3, and returns what the ranks threw.
  std::vector<std::string> on_ranks(const std::function<void(RankOf& rank)>& body) {
    std::vector<std::string> messages;
    std::mutex mutex;
    int reports = 0;
    comm::run_threads(3, {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, {"adamw"}, {3, 3});
      try {
        body(rank);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
        reports += world.reports() ? 1 : 0;
      }
    });
    EXPECT_EQ(reports, messages.empty() ? 0 : 1) << "told once";
    return messages;
  }
  fs::path save(std::int64_t step, CheckpointSave::Mode mode = CheckpointSave::Mode::kNow) {
    fs::path path;
    std::mutex mutex;
    messages_ = on_ranks([&](RankOf& rank) {
      const auto saving = begin_save(root_, rank.state, position_of(step), {}, {}, mode);
      const fs::path written = saving->commit();
      const std::lock_guard lock(mutex);
      path = written;
    });
    return path;
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_)) found.insert(entry.path().filename());
    return found;
  }
  void TearDown() override { io_fault::disarm(); }

  ckpt::testing::TemporaryDirectory directory_{"shared-save",
                                               ckpt::testing::memory_directory_path()};
  fs::path root_ = directory_ / "checkpoints";
  std::vector<std::string> messages_;
};

TEST_F(SharedSave, IsAHuggingFaceDirectoryOfEvenFiles) {
  const fs::path path = save(1);
  const ckpt::HfDirectory directory(path);
  ASSERT_EQ(directory.files().size(), 3U);
  std::uint64_t total = 0, largest = 0, largest_tensor = 0;
  for (const ckpt::SafetensorsFile& file : directory.files()) {
    EXPECT_EQ(file.metadata().at("format"), "pt") << "transformers asks for it";
    const std::uint64_t bytes = file.entries().back().end;
    total += bytes;
    largest = std::max(largest, bytes);
    for (const auto& entry : file.entries()) {
      largest_tensor = std::max(largest_tensor, entry.end - entry.begin);
    }
  }
  // Each parameter went to whoever had least.
  EXPECT_LE(largest, total / 3 + largest_tensor);
  EXPECT_TRUE(fs::exists(path / "model-00003-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(path / "optimizer-00003-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(path / "optimizer.safetensors"));
}

TEST_F(SharedSave, ADiskThatIsFullForOneRankFailsAllOnceAndKeepsWhatWasThere) {
  const fs::path before = save(1);
  const std::string manifest = read_file(before / "manifest.json");
  for (const auto mode : {CheckpointSave::Mode::kNow, CheckpointSave::Mode::kBeside}) {
    for (const auto call : {io_fault::Call::kOpen, io_fault::Call::kWrite, io_fault::Call::kSync,
                            io_fault::Call::kRename}) {
      for (const int countdown : {1, 3, 6}) {
        io_fault::arm(call, countdown, ENOSPC);
        save(1, mode);
        io_fault::disarm();
        ASSERT_EQ(messages_.size(), 3U) << static_cast<int>(call) << " " << countdown;
        EXPECT_THAT(messages_,
                    ::testing::Each(AllOf(HasSubstr("No space left"), messages_.front())));
        EXPECT_EQ(names(), std::set<std::string>{"step-00000001"});
        EXPECT_EQ(read_file(before / "manifest.json"), manifest);
        ckpt::verify_checkpoint(before);
      }
    }
  }
  save(1, CheckpointSave::Mode::kBeside);
  EXPECT_TRUE(messages_.empty());
}

TEST_F(SharedSave, WhatIsNotCommittedLeavesNothing) {
  const fs::path before = save(1);
  on_ranks([&](RankOf& rank) {
    const auto mode = CheckpointSave::Mode::kBeside;
    begin_save(root_, rank.state, position_of(2), {}, {}, mode);
    rank.state.group()->barrier();
  });
  EXPECT_FALSE(fs::exists(root_ / "step-00000002"));
  ckpt::clean_stale(root_);  // of a rank that wrote while the lead removed
  EXPECT_EQ(ckpt::newest_verified(root_)->path, before);
}

TEST_F(SharedSave, AFileThatIsNotTheRightOneIsNamed) {
  const fs::path path = save(1);
  const fs::path second = save(2);
  const auto refusal = [&](const fs::path& file, const std::function<void()>& change) {
    const std::string content = read_file(file);
    change();
    std::string message = "no error";
    try {
      ckpt::verify_checkpoint(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
      message = error.what();
    }
    write_file(file, content);
    return message;
  };
  const fs::path weights = path / "model-00002-of-00003.safetensors";
  const fs::path optimizer = path / "optimizer-00002-of-00003.safetensors";
  EXPECT_THAT(refusal(weights, [&] { fs::remove(weights); }),
              AllOf(HasSubstr(weights.string()), HasSubstr("is missing")));
  EXPECT_THAT(refusal(optimizer, [&] { ckpt::testing::flip_bit(optimizer, 3000, 1); }),
              AllOf(HasSubstr(optimizer.string()), HasSubstr("hash")));
  const fs::path foreign = path / "optimizer-00003-of-00003.safetensors";
  EXPECT_THAT(refusal(optimizer, [&] { write_file(optimizer, read_file(foreign)); }),
              HasSubstr(optimizer.string()));
  ckpt::verify_checkpoint(path);
  // Without a manifest, as an export has none.
  const auto error_of = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of([&] {
                const std::vector<fs::path> files = {optimizer, foreign, optimizer};
                const ckpt::SafetensorsSet set(files);
              }),
              HasSubstr("both have a tensor \"exp_avg."));
  EXPECT_THAT(error_of([&] {
                const std::vector<fs::path> files = {optimizer, foreign};
                ckpt::SafetensorsSet(files).file_of("exp_avg.none");
              }),
              AllOf(HasSubstr("(or 1 others) has no tensor \"exp_avg.none\""),
                    HasSubstr(optimizer.string())));
  fs::remove(weights);
  EXPECT_THAT(error_of([&] { ckpt::HfDirectory directory(path); }),
              HasSubstr("model-00002-of-00003.safetensors"));
}

TEST_F(SharedSave, StorageThatIsNotSharedIsToldSo) {
  try {
    const ckpt::CheckpointPart part(directory_ / "elsewhere");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("storage that all ranks share"));
  }
  ckpt::CheckpointWriter writer(root_, 3);
  writer.include({"model-00002-of-00002.safetensors", 10, "00"});
  try {
    writer.commit();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model-00002-of-00002.safetensors"),
                                    HasSubstr("storage that all ranks share")));
  }
}

}  // namespace
}  // namespace atl::train
