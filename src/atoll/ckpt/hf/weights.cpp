#include "atoll/ckpt/hf/weights.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/json.h"

namespace atl::ckpt {

namespace {

// transformers asks for this entry before it loads a file.
const Metadata kMetadata = {{"format", "pt"}};

// The first source of each shard, and the end.
std::vector<std::size_t> cut_into_shards(std::span<const TensorSource> sources,
                                         std::uint64_t shard_bytes) {
  std::vector<std::size_t> cuts = {0};
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::uint64_t bytes = sources[i].spec.bytes();
    if (used > 0 && used + bytes > shard_bytes) {
      cuts.push_back(i);
      used = 0;
    }
    used += bytes;
  }
  cuts.push_back(sources.size());
  return cuts;
}

std::string_view torch_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "float32";
    case Dtype::kF64:
      return "float64";
    case Dtype::kBf16:
      return "bfloat16";
    case Dtype::kF16:
      return "float16";
    default:
      ATOLL_CHECK(false, "weights are floats, not {}", dtype_name(dtype));
  }
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text, const std::string& option) {
  constexpr std::pair<std::string_view, std::uint64_t> kUnits[] = {{"", 1},
                                                                   {"B", 1},
                                                                   {"KB", 1'000},
                                                                   {"MB", 1'000'000},
                                                                   {"KiB", 1U << 10},
                                                                   {"MiB", 1U << 20},
                                                                   {"GB", 1'000'000'000},
                                                                   {"GiB", 1U << 30},
                                                                   {"TB", 1'000'000'000'000}};
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, bytes] : kUnits) {
    std::uint64_t total = 0;
    if (error != std::errc() || unit != name) continue;
    if (!__builtin_mul_overflow(count, bytes, &total) && total > 0) return total;
  }
  throw user_error("{} is \"{}\"; give a size such as 5GB, 500MB or 1GiB", option, text);
}

std::string shard_name(std::string_view stem, std::size_t number, std::size_t count) {
  if (count == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, number + 1, count);
}

std::string weights_index_json(const std::map<std::string, std::string>& file_of_tensor,
                               std::uint64_t total_bytes) {
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes}}},
                                        {"weight_map", file_of_tensor}};
  return index.dump(2) + "\n";
}

void write_weights(const std::filesystem::path& directory, std::span<const TensorSource> sources,
                   std::uint64_t shard_bytes) {
  const std::vector<std::size_t> cuts = cut_into_shards(sources, shard_bytes);
  const std::size_t num_shards = cuts.size() - 1;
  if (num_shards == 1) {
    write_safetensors(directory / "model.safetensors", sources, kMetadata);
    return;
  }
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < num_shards; ++i) {
    const std::string name = shard_name("model", i, num_shards);
    const auto shard = sources.subspan(cuts[i], cuts[i + 1] - cuts[i]);
    write_safetensors(directory / name, shard, kMetadata);
    for (const TensorSource& source : shard) {
      const bool is_new = weight_map.emplace(source.name, name).second;
      ATOLL_CHECK(is_new, "tensor name \"{}\" twice", source.name);
      total += source.spec.bytes();
    }
  }
  write_file(directory / kWeightsIndexFile, weights_index_json(weight_map, total));
}

std::string with_dtype(const std::string& config_json, Dtype dtype, const std::string& origin) {
  try {
    auto json = parse_ordered_json(config_json, origin);
    const char* key = json.contains("dtype") ? "dtype" : "torch_dtype";
    json.at("model_type");  // not an object, or no model's: an exception
    json[key] = torch_name(dtype);
    return json.dump(2) + "\n";
  } catch (const nlohmann::ordered_json::exception& error) {
    throw damaged_error("{} is not a model's config.json: {}", origin, json_reason(error));
  }
}

}  // namespace atl::ckpt
