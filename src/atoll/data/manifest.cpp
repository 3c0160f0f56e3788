#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/data/corpus.h"

namespace atl::data {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "atoll corpus";
constexpr int kVersion = 1;

Json shards_to_json(const std::vector<ShardEntry>& shards) {
  Json list = Json::array();
  for (const ShardEntry& shard : shards) {
    list.push_back({{"file", shard.file},
                    {"tokens", shard.num_tokens},
                    {"documents", shard.num_documents},
                    {"hash", shard.payload_hash}});
  }
  return list;
}

std::vector<ShardEntry> shards_from_json(const Json& list) {
  std::vector<ShardEntry> shards;
  for (const Json& item : list) {
    ShardEntry shard;
    item.at("file").get_to(shard.file);
    shard.num_tokens = whole_number(item.at("tokens"));
    shard.num_documents = whole_number(item.at("documents"));
    item.at("hash").get_to(shard.payload_hash);
    if (shard.file.empty() || shard.file.find('/') != std::string::npos) {
      throw std::invalid_argument("\"" + shard.file + "\" is not the name of a file in it");
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

CorpusManifest parse(const Json& root) {
  CorpusManifest manifest;
  const Json& tokenizer = root.at("tokenizer");
  if (tokenizer.contains("file")) tokenizer.at("file").get_to(manifest.tokenizer_file);
  if (manifest.tokenizer_file != "tokenizer.json" && manifest.tokenizer_file != "tokenizer.model") {
    throw std::invalid_argument("\"" + manifest.tokenizer_file + "\" is not a tokenizer's file");
  }
  tokenizer.at("hash").get_to(manifest.tokenizer_hash);
  tokenizer.at("vocab_size").get_to(manifest.vocab_size);
  if (tokenizer.contains("end_of_text")) {
    text::RecordedFrame frame;
    const Json& end = tokenizer.at("end_of_text");
    if (!end.is_null()) frame.end_of_text = whole_number<std::int32_t>(end);
    for (const Json& id : tokenizer.at("before")) {
      frame.before.push_back(whole_number<std::int32_t>(id));
    }
    for (const Json& id : tokenizer.at("after")) {
      frame.after.push_back(whole_number<std::int32_t>(id));
    }
    manifest.frame = std::move(frame);
  }
  const Json& options = root.at("options");
  options.at("documents").get_to(manifest.documents);
  options.at("held_out").get_to(manifest.held_out);
  options.at("block_bytes").get_to(manifest.block_bytes);
  options.at("shard_tokens").get_to(manifest.shard_tokens);
  for (const Json& item : root.at("sources")) {
    SourceEntry source;
    item.at("path").get_to(source.path);
    item.at("bytes").get_to(source.bytes);
    item.at("hash").get_to(source.hash);
    if (item.contains("format")) item.at("format").get_to(source.format);
    manifest.sources.push_back(std::move(source));
  }
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    manifest.shards[static_cast<int>(split)] =
        shards_from_json(root.at("splits").at(split_name(split)));
  }
  return manifest;
}

}  // namespace

const char* split_name(Split split) {
  return split == Split::kTrain ? "train" : "heldout";
}

Hash128 CorpusManifest::hash() const {
  Hasher hasher;
  const auto add = [&](const std::string& text) { hasher.update(text.data(), text.size()); };
  add(tokenizer_hash);
  for (const auto& list : shards) {
    add("/");
    for (const ShardEntry& shard : list) add(shard.payload_hash);
  }
  return hasher.digest();
}

std::string CorpusManifest::to_json() const {
  Json root;
  root["format"] = kFormat;
  root["version"] = kVersion;
  root["tokenizer"] = {
      {"file", tokenizer_file}, {"hash", tokenizer_hash}, {"vocab_size", vocab_size}};
  if (frame) {
    root["tokenizer"]["end_of_text"] = nullptr;
    if (frame->end_of_text) root["tokenizer"]["end_of_text"] = *frame->end_of_text;
    root["tokenizer"]["before"] = frame->before;
    root["tokenizer"]["after"] = frame->after;
  }
  root["options"] = {{"documents", documents},
                     {"held_out", held_out},
                     {"block_bytes", block_bytes},
                     {"shard_tokens", shard_tokens}};
  root["sources"] = Json::array();
  for (const SourceEntry& source : sources) {
    root["sources"].push_back({{"path", source.path},
                               {"bytes", source.bytes},
                               {"hash", source.hash},
                               {"format", source.format}});
  }
  for (const Split split : {Split::kTrain, Split::kHeldOut}) {
    root["splits"][split_name(split)] = shards_to_json(shards[static_cast<int>(split)]);
  }
  // A path need not be UTF-8 and JSON must be.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

CorpusManifest CorpusManifest::from_json(const std::string& json, const std::string& origin) {
  try {
    const Json root = parse_ordered_json(json, origin, {.max_depth = 16});
    if (root.at("format") != kFormat) throw std::invalid_argument("it is not an atoll corpus");
    if (root.at("version") != kVersion) {
      throw user_error("{} is of version {} and this atoll reads version {}; {}", origin,
                       root.at("version").dump(), kVersion,
                       "run atoll tokenize again to rebuild it");
    }
    return parse(root);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged) throw;
    throw damaged_error("{}; run atoll tokenize again", error.what());
  } catch (const Json::exception& error) {
    throw damaged_error("{} is damaged: {}; run atoll tokenize again", origin, json_reason(error));
  } catch (const std::invalid_argument& error) {
    throw damaged_error("{} is damaged: {}; run atoll tokenize again", origin, error.what());
  }
}

}  // namespace atl::data
