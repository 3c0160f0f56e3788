// What a checkpoint has of an island's rounds beside the training state, and going on from it.

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
#include "atoll/ckpt/hf/weights.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/train/island/rounds.h"

namespace atl::train {

namespace fs = std::filesystem;
using island::BatchRange;
using nlohmann::ordered_json;

namespace {

constexpr const char* kTextFile = "island.json";
// 2: one rank had all of the outer state.
constexpr int kVersion = 3, kOldest = 2;

ordered_json to_json(const std::vector<BatchRange>& ranges) {
  ordered_json json = ordered_json::array();
  for (const BatchRange& range : ranges) json.push_back({range.begin, range.end});
  return json;
}

std::vector<BatchRange> ranges_from(const ordered_json& json) {
  std::vector<BatchRange> ranges;
  for (const auto& range : json) {
    ranges.push_back({whole_number(range.at(0)), whole_number(range.at(1))});
  }
  return ranges;
}

ordered_json to_json(const IslandClock::State& clock) {
  return {{"round_begin", clock.round_begin},
          {"round_batches", clock.round_batches},
          {"round_steps", clock.round_steps},
          {"steps_taken", clock.steps_taken}};
}

IslandClock::State clock_from(const ordered_json& json) {
  return {.round_begin = whole_number(json.at("round_begin")),
          .round_batches = whole_number(json.at("round_batches")),
          .round_steps = whole_number(json.at("round_steps")),
          .steps_taken = whole_number(json.at("steps_taken"))};
}

std::string anchor_name(int fragment) {
  return fmt::format("outer.{}", fragment);
}
std::string kept_name(int fragment) {
  return fmt::format("own.{}", fragment);
}

std::string error_name(int fragment) {
  return fmt::format("error.{}", fragment);
}

ckpt::TensorSource source_of(const std::string& name, std::span<const float> values,
                             std::shared_ptr<const void> keep) {
  return {.name = name,
          .spec = {Dtype::kF32, {static_cast<std::int64_t>(values.size())}},
          .produce = [values, keep = std::move(keep)](const ckpt::ByteSink& sink) {
            sink(std::as_bytes(values).data(), values.size_bytes());
          }};
}

std::string file_name(const island::ShardPlace& place) {
  if (place.num_ranks == 1) return "outer.safetensors";
  return ckpt::shard_name("outer", static_cast<std::size_t>(place.rank),
                          static_cast<std::size_t>(place.num_ranks));
}

}  // namespace

/// The outer state in a checkpoint, which some ranks, each in a file of its own, have written.
class SavedShares {
 public:
  SavedShares(const fs::path& checkpoint, int num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      files_.emplace_back(checkpoint / file_name({rank, num_ranks}));
    }
  }

  bool has(const std::string& name) const {
    return std::any_of(files_.begin(), files_.end(),
                       [&](const auto& file) { return has(file, name); });
  }

  /// Fills `out` with what `part` has of each of so many vectors.
  void read(const std::string& name, const island::StatePart& part, int vectors,
            std::span<float> out) const {
    const int num_ranks = static_cast<int>(files_.size());
    for (int rank = 0; rank < num_ranks; ++rank) {
      const parallel::ElementRange theirs =
          island::shard_range(part.elements(), part.vectors(), {rank, num_ranks});
      const std::int64_t begin = std::max(theirs.begin, part.own().begin);
      const std::int64_t end = std::min(theirs.end, part.own().end);
      if (begin >= end) continue;
      const std::span<const std::byte> bytes =
          bytes_of(files_[static_cast<std::size_t>(rank)], name,
                   static_cast<std::size_t>(theirs.size() * vectors) * sizeof(float));
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t from = v * theirs.size() + begin - theirs.begin;
        const std::int64_t to = v * part.own().size() + begin - part.own().begin;
        std::memcpy(out.data() + to, bytes.data() + from * static_cast<std::int64_t>(sizeof(float)),
                    static_cast<std::size_t>(end - begin) * sizeof(float));
      }
    }
  }

 private:
  static bool has(const ckpt::SafetensorsFile& file, const std::string& name) {
    const auto& entries = file.entries();
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& entry) { return entry.name == name; });
  }

  static std::span<const std::byte> bytes_of(const ckpt::SafetensorsFile& file,
                                             const std::string& name, std::size_t expected) {
    const std::span<const std::byte> bytes = file.bytes(name);
    if (bytes.size() == expected) return bytes;
    throw user_error(
        "{} has {} bytes of {} and this run has {}; give back the outer.* settings it was made "
        "with, or choose another run.dir",
        file.path().string(), bytes.size(), name, expected);
  }

  std::vector<ckpt::SafetensorsFile> files_;  // by rank
};

ExtraPart IslandRounds::saved() const {
  ExtraPart part;
  if (!part_) return part;
  // What the lead knows.
  std::int64_t in_flight = ranks_->is_lead() ? tracker_->fragment_in_flight() : -1;
  if (shares_state()) ranks_->group().broadcast({&in_flight, {Dtype::kI64, {1}}}, 0);
  for (int f = 0; f < part_->num_fragments(); ++f) {
    const auto& state = part_->base(f);
    if (state->elements == 0) continue;
    part.sources.push_back(source_of(anchor_name(f), state->values, state));
    for (auto& [name, values] :
         {std::pair(kept_name(f), part_->kept_without_hand_in(f, static_cast<int>(in_flight))),
          std::pair(error_name(f), exchange_->codec_error(f))}) {
      if (values.empty()) continue;
      const auto copy = std::make_shared<const std::vector<float>>(values);
      part.sources.push_back(source_of(name, *copy, copy));
    }
  }
  part.file = file_name(exchange_->place());
  if (ranks_->is_lead()) part.texts.emplace_back(kTextFile, saved_text());
  return part;
}

std::string IslandRounds::saved_text() const {
  const island::RoundTracker::Work& work = tracker_->work();
  ordered_json steps = ordered_json::array();
  for (int f = 0; f < part_->num_fragments(); ++f) steps.push_back(part_->base(f)->outer_step);
  const ordered_json json = {{"format", "atoll island state"},
                             {"version", kVersion},
                             {"name", config_.island.name},
                             {"ranks", params_.num_shares()},
                             {"outer_step", part_->base_outer_step()},
                             {"fragment_steps", steps},
                             {"trained", to_json(work.trained)},
                             {"left", to_json(work.left)},
                             {"tokens", work.tokens},
                             {"loss_sum", work.loss_sum},
                             {"steps_taken", steps_taken_},
                             {"is_over", is_over_},
                             {"clock", to_json(clock_.state())}};
  return json.dump(2) + "\n";
}

bool IslandRounds::is_in(const fs::path& checkpoint) {
  return path_exists(checkpoint / kTextFile);
}

island::RoundTracker::Work IslandRounds::load(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kTextFile;
  try {
    const ordered_json json = parse_ordered_json(read_file(path), path.string());
    const int version = whole_number<int>(json.at("version"));
    if (version < kOldest || version > kVersion) {
      throw user_error("{} is of version {}, and this atoll reads version {}", path.string(),
                       json.at("version").dump(), kVersion);
    }
    const SavedShares saved(checkpoint, json.value("ranks", 1));
    for (int f = 0; f < part_->num_fragments(); ++f) {
      load_fragment(saved, f,
                    whole_number(json.at("fragment_steps").at(static_cast<std::size_t>(f))));
    }
    part_->outer().set_outer_step(whole_number(json.at("outer_step")));
    steps_taken_ = whole_number(json.at("steps_taken"));
    has_final_model_ = json.value("is_over", false);
    clock_.restore(clock_from(json.at("clock")));
    return {.trained = ranges_from(json.at("trained")),
            .left = ranges_from(json.at("left")),
            .tokens = whole_number(json.at("tokens")),
            .loss_sum = json.at("loss_sum").get<double>()};
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} is not the state of an island: {}", path.string(), json_reason(error));
  }
}

void IslandRounds::load_fragment(const SavedShares& saved, int f, std::int64_t outer_step) {
  const island::StatePart& part = part_->outer().part(f);
  std::vector<float> values(part.size());
  saved.read(anchor_name(f), part, part.vectors(), values);
  part_->load(f, outer_step, std::move(values),
              [this](const island::StateHash& own) { return sum_of_ranks(own); });
  const int kept_vectors = part_->algorithm().num_kept_vectors();
  if (kept_vectors > 0) saved.read(kept_name(f), part, kept_vectors, part_->kept(f));
  const bool has_error = saved.has(error_name(f));
  std::vector<float>& error =
      codec_errors_.emplace_back(has_error ? part_->outer().elements(f) : 0);
  if (has_error) saved.read(error_name(f), part, 1, error);
}

}  // namespace atl::train
