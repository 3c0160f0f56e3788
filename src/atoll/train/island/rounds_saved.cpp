// What a checkpoint has of an island's rounds beside the training state, and going on from it.

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/json.h"
#include "atoll/base/paths.h"
#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/train/island/rounds.h"

namespace atl::train {

namespace fs = std::filesystem;
using island::BatchRange;
using nlohmann::ordered_json;

namespace {

constexpr const char* kStateFile = "outer.safetensors";
constexpr const char* kTextFile = "island.json";
constexpr int kVersion = 2;

ordered_json to_json(const std::vector<BatchRange>& ranges) {
  ordered_json json = ordered_json::array();
  for (const BatchRange& range : ranges) json.push_back({range.begin, range.end});
  return json;
}

std::vector<BatchRange> ranges_from(const ordered_json& json) {
  std::vector<BatchRange> ranges;
  for (const auto& range : json) {
    ranges.push_back({range.at(0).get<std::int64_t>(), range.at(1).get<std::int64_t>()});
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
  return {.round_begin = json.at("round_begin").get<std::int64_t>(),
          .round_batches = json.at("round_batches").get<std::int64_t>(),
          .round_steps = json.at("round_steps").get<std::int64_t>(),
          .steps_taken = json.at("steps_taken").get<std::int64_t>()};
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

}  // namespace

ExtraPart IslandRounds::saved() const {
  ExtraPart part;
  if (!ranks_->is_lead()) return part;
  part.file = kStateFile;
  const island::RoundTracker::Work& work = tracker_->work();
  ordered_json steps = ordered_json::array();
  for (int f = 0; f < outer_->num_fragments(); ++f) {
    const auto at = static_cast<std::size_t>(f);
    const auto& state = base_[at];
    part.sources.push_back(source_of(anchor_name(f), state->values, state));
    steps.push_back(state->outer_step);
    for (auto& [name, values] : {std::pair(kept_name(f), kept_without_hand_in(f)),
                                 std::pair(error_name(f), client_->codec_error(f))}) {
      if (values.empty()) continue;
      const auto copy = std::make_shared<const std::vector<float>>(values);
      part.sources.push_back(source_of(name, *copy, copy));
    }
  }
  const ordered_json json = {{"format", "atoll island state"},  {"version", kVersion},
                             {"name", config_.island.name},     {"outer_step", base_outer_step()},
                             {"fragment_steps", steps},         {"trained", to_json(work.trained)},
                             {"left", to_json(work.left)},      {"tokens", work.tokens},
                             {"loss_sum", work.loss_sum},       {"steps_taken", steps_taken_},
                             {"clock", to_json(clock_.state())}};
  part.texts.emplace_back(kTextFile, json.dump(2) + "\n");
  return part;
}

// What was handed in is not in a checkpoint, so what is there must be as if it was dropped.
std::vector<float> IslandRounds::kept_without_hand_in(int f) const {
  std::vector<float> kept = kept_[static_cast<std::size_t>(f)];
  if (kept.empty() || tracker_->fragment_in_flight() != f) return kept;
  const std::span<const float> anchor = base_[static_cast<std::size_t>(f)]->anchor();
  std::vector<float> packed(outer_->elements(f));
  algorithm_->rebase(anchor, anchor, *own_delta_, share_, {packed, kept});
  return kept;
}

std::int64_t IslandRounds::base_outer_step() const {
  std::int64_t newest = 0;
  for (const auto& state : base_) newest = std::max(newest, state->outer_step);
  return newest;
}

bool IslandRounds::is_in(const fs::path& checkpoint) {
  return path_exists(checkpoint / kTextFile);
}

island::RoundTracker::Work IslandRounds::load(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kTextFile;
  try {
    const ordered_json json = parse_ordered_json(read_file(path), path.string());
    if (json.at("version") != kVersion) {
      throw user_error("{} is of version {}, and this atoll reads version {}", path.string(),
                       json.at("version").dump(), kVersion);
    }
    const ckpt::SafetensorsFile file(checkpoint / kStateFile);
    for (int f = 0; f < outer_->num_fragments(); ++f) {
      const auto at = static_cast<std::size_t>(f);
      std::vector<float> values(outer_->values_size(f));
      copy_floats(file, anchor_name(f), values);
      outer_->replace(f, json.at("fragment_steps").at(at).get<std::int64_t>(), std::move(values));
      base_[at] = outer_->current(f);
      if (!kept_[at].empty()) copy_floats(file, kept_name(f), kept_[at]);
      const auto& entries = file.entries();
      const bool has_error = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
        return entry.name == error_name(f);
      });
      codec_errors_.emplace_back(has_error ? outer_->elements(f) : 0);
      if (has_error) copy_floats(file, error_name(f), codec_errors_.back());
    }
    outer_->set_outer_step(json.at("outer_step").get<std::int64_t>());
    steps_taken_ = json.at("steps_taken").get<std::int64_t>();
    clock_.restore(clock_from(json.at("clock")));
    return {.trained = ranges_from(json.at("trained")),
            .left = ranges_from(json.at("left")),
            .tokens = json.at("tokens").get<std::int64_t>(),
            .loss_sum = json.at("loss_sum").get<double>()};
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} is not the state of an island: {}", path.string(), json_reason(error));
  }
}

void IslandRounds::copy_floats(const ckpt::SafetensorsFile& file, const std::string& name,
                               std::span<float> out) {
  const std::span<const std::byte> bytes = file.bytes(name);
  if (bytes.size() != out.size_bytes()) {
    throw user_error(
        "{} has {} bytes of {} and this run has {}; give back the outer.* settings it was made "
        "with, or choose another run.dir",
        file.path().string(), bytes.size(), name, out.size_bytes());
  }
  std::memcpy(out.data(), bytes.data(), bytes.size());
}

}  // namespace atl::train
