// Writes small valid files, a folder for each fuzz target, for the fuzzer to begin with:
//
//     make_seeds <directory>
//
// They are cut out of the fixtures of other tests, or written by atoll itself, so that none is kept
// in git and none is of yesterday's format.

#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/comm/tcp/frame_stream.h"
#include "atoll/data/shard.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/model_dir/export.h"
#include "atoll/nn/models/family.h"
#include "atoll/param_server/messages.h"
#include "atoll/tune/lease/lease_messages.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const fs::path kSource = atl::test_source_dir();
const fs::path kText = kSource / "src/atoll/text/testdata";

fs::path folder(const fs::path& root, const std::string& target) {
  fs::create_directories(root / target);
  return root / target;
}

// --- Tokenizers

// A fixture's pipeline with the beginning of its vocabulary: a fuzzer has little use for the rest.
std::string cut_tokenizer(const fs::path& file) {
  constexpr std::size_t kTokens = 40;
  ordered_json json = ordered_json::parse(read_file(file));
  ordered_json& model = json["model"];
  ordered_json vocab;
  std::map<std::string, int> ids;
  const auto keep = [&](const std::string& token) {
    if (ids.emplace(token, static_cast<int>(ids.size())).second) vocab[token] = ids.at(token);
  };
  for (const auto& added : json["added_tokens"]) keep(added["content"].get<std::string>());
  for (const auto& [token, id] : model["vocab"].items()) {
    if (ids.size() < kTokens || token == "<unk>" || token.size() == 1) keep(token);
  }
  const auto prefix = model.value("continuing_subword_prefix", ordered_json());
  const std::size_t prefix_size = prefix.is_string() ? prefix.get<std::string>().size() : 0;
  ordered_json merges = ordered_json::array();
  for (const auto& merge : model["merges"]) {
    const auto left = merge[0].get<std::string>();
    const auto right = merge[1].get<std::string>();
    if (merges.size() >= kTokens || !ids.contains(left) || !ids.contains(right)) continue;
    keep(left + right.substr(prefix_size));
    merges.push_back({left, right});
  }
  for (auto& added : json["added_tokens"]) added["id"] = ids.at(added["content"]);
  model["vocab"] = vocab;
  model["merges"] = merges;
  return json.dump();
}

void write_tokenizers(const fs::path& to) {
  for (const auto& file : fs::directory_iterator(kText)) {
    if (file.path().extension() != ".json") continue;
    const ordered_json json = ordered_json::parse(read_file(file.path()));
    if (!json.is_object() || !json.contains("model")) continue;
    const bool is_bpe = json["model"].contains("merges");
    write_file(to / file.path().filename(),
               is_bpe ? cut_tokenizer(file.path()) : read_file(file.path()));
  }
}

// Protocol buffers, by hand: a field's number and type, then its value.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
std::string bytes(int field, const std::string& value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
std::string piece(const std::string& text, float score, std::uint64_t type) {
  std::string raw(sizeof(score), '\0');
  std::memcpy(raw.data(), &score, sizeof(score));
  return bytes(1, bytes(1, text) + varint(2 << 3 | 5) + raw + number(3, type));
}

// A trie that maps "a" to the replacement at 0 of "A\0".
std::string charsmap() {
  constexpr std::uint32_t kUnits = 256;
  std::vector<std::uint32_t> units(kUnits, 0);
  units[0] = 1U << 10;
  units[1U ^ 'a'] = 'a' | 1U << 8 | 2U << 10;
  units[1U ^ 'a' ^ 2U] = 1U << 31;
  std::string blob(4 + kUnits * 4, '\0');
  const std::uint32_t size = kUnits * 4;
  std::memcpy(blob.data(), &size, sizeof(size));
  std::memcpy(blob.data() + 4, units.data(), size);
  return blob + std::string("A\0", 2);
}

void write_sentence_pieces(const fs::path& to) {
  constexpr std::uint64_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kByte = 6;
  std::string common = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) +
                       piece("</s>", 0, kControl) + piece("[INST]", 0, kUser);
  const char* words[] = {"\xe2\x96\x81", "a",  "b",  "l",     "o", "He", "H", "e",
                         "ll",           "ab", "lo", "Hello", "1", "A"};
  float score = 0;
  for (const char* word : words) common += piece(word, --score, kNormal);
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) {
    all_bytes += piece(fmt::format("<0x{:02X}>", byte), 0, kByte);
  }
  const std::string plain = bytes(3, bytes(1, "identity") + number(3, 1) + number(4, 0));
  const std::string mapped = bytes(3, bytes(2, charsmap()) + number(3, 0) + number(5, 1));
  write_file(to / "bpe", common + bytes(2, number(3, 2)) + plain);
  write_file(to / "unigram", common + bytes(2, number(3, 1) + bytes(44, " ?? ")) + mapped);
  write_file(to / "bpe_bytes", common + all_bytes + bytes(2, number(3, 2) + number(35, 1)) + plain);
}

void write_chat_templates(const fs::path& to) {
  const ordered_json json = ordered_json::parse(read_file(kText / "chat_templates.json"));
  for (const auto& [name, text] : json["templates"].items()) {
    write_file(to / name, text.get<std::string>());
  }
  // Of several hundred one-line cases, those of a few constructs at a time.
  int count = 0;
  std::string together;
  for (const auto& item : json["cases"]) {
    if (!item.contains("output") || !item["template"].is_string()) continue;
    const auto text = item["template"].get<std::string>();
    if (text.size() > 300) continue;
    together += text + "\n";
    if (++count % 8 != 0) continue;
    write_file(to / fmt::format("cases_{}", count), together);
    together.clear();
  }
}

// --- Tensors

void write_safetensors_files(const fs::path& to) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  const ckpt::NamedTensor tensors[] = {{"a.weight", Tensor(values, {Dtype::kF32, {2, 3}})},
                                       {"b", Tensor(values, {Dtype::kBf16, {4}})}};
  ckpt::write_safetensors(to / "two", tensors, {{"format", "pt"}});
  ckpt::write_safetensors(to / "empty", std::span<const ckpt::NamedTensor>());
}

// config.json in one line, then the weights.
void write_quantised(const fs::path& to) {
  for (const auto& model : fs::directory_iterator(kSource / "src/atoll/ckpt/testdata/quantised")) {
    std::string config = read_file(model.path() / "config.json");
    std::erase(config, '\n');
    write_file(to / model.path().filename(),
               config + "\n" + read_file(model.path() / "model.safetensors"));
  }
}

// A tiny model's directory, to be exported.
class Params final : public nn::ParamVisitor {
 public:
  void param(nn::Param& param) override {
    for (const ckpt::ParamTensor& seen : params) {
      if (seen.param == &param) return;
    }
    auto& values = memory_.emplace_back(
        std::make_unique<float[]>(static_cast<std::size_t>(param.spec.shape.num_elements())));
    params.push_back({&param, Tensor(values.get(), param.spec)});
  }
  std::vector<ckpt::ParamTensor> params;

 private:
  std::vector<std::unique_ptr<float[]>> memory_;
};

void write_gguf_files(const fs::path& to, const fs::path& tokenizers, const fs::path& scratch) {
  const std::pair<const char*, const char*> models[] = {
      {"llama", R"({"model_type": "llama", "vocab_size": 192, "hidden_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
        "intermediate_size": 4, "max_position_embeddings": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": true,
        "attention_bias": false, "mlp_bias": false})"},
      {"gpt2", R"({"model_type": "gpt2", "vocab_size": 192, "n_embd": 4, "n_layer": 1, "n_head": 1,
        "n_inner": 4, "n_positions": 4, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05, "tie_word_embeddings": true})"}};
  for (const auto& [name, config] : models) {
    const fs::path in = folder(scratch, name);
    write_file(in / "config.json", config);
    // Llama's kind of tokenizer in one of them, GPT-2's in the other.
    const char* kind = std::string_view(name) == "llama" ? "llama2.json" : "gpt2.json";
    ordered_json tokenizer = ordered_json::parse(read_file(tokenizers / kind));
    tokenizer["post_processor"] = nullptr;
    write_file(in / "tokenizer.json", tokenizer.dump());
    write_file(in / "tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
    const auto model = nn::build_model(nn::parse_config(config, "config.json"), {});
    Params visitor;
    model->visit(visitor);
    ckpt::write_weights(in, ckpt::file_sources(visitor.params));
    fs::remove(to / name);
    model_dir::export_gguf(in, to / name, {});
  }
  fs::copy_file(kSource / "src/atoll/ckpt/testdata/quants.gguf", to / "quants",
                fs::copy_options::overwrite_existing);
}

// --- Tokens and configurations

void write_shards(const fs::path& to) {
  std::vector<std::int32_t> tokens(70);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 3);
  const std::vector<std::uint64_t> starts = {0, 7, 40};
  std::vector<std::uint8_t> mask(tokens.size(), 1);
  mask[3] = 0;
  data::write_shard(to / "u16", {tokens, starts, 300, {}});
  data::write_shard(to / "u32", {tokens, starts, 100'000, {}});
  data::write_shard(to / "mask", {tokens, starts, 300, {}, mask});
}

void write_token_bins(const fs::path& to) {
  const std::vector<std::uint16_t> narrow = {72, 105, 256, 33, 33, 256, 10};
  const std::vector<std::uint32_t> wide = {700, 72, 105, 700, 33};
  const auto raw = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(values[0]));
  };
  const auto header = [&](std::int32_t magic, std::int32_t version, std::size_t count) {
    std::vector<std::int32_t> fields(256, 0);
    fields[0] = magic;
    fields[1] = version;
    fields[2] = static_cast<std::int32_t>(count);
    return raw(fields);
  };
  write_file(to / "nanogpt", raw(narrow));
  write_file(to / "llmc_u16", header(20240520, 1, narrow.size()) + raw(narrow));
  write_file(to / "llmc_u32", header(20240801, 7, wide.size()) + raw(wide));
}

// --- Messages of islands, of every kind

void write_island_messages(const fs::path& to) {
  using namespace island;
  const std::vector<StateHash> hashes = {{1, 2}, {3, 4}};
  const std::vector<BatchRange> ranges = {{0, 10}, {20, 21}};
  const std::vector<Source> sources = {{2, "10.0.0.2:7001"}};
  const std::vector<Participant> participants = {{1, "10.0.0.1:7001", .25, 100}, {2, "", .75, 300}};
  const Join join = {.name = "lyon",
                     .identity = {"kjv", "1", "m", "t", "d", "s"},
                     .address = "10.0.0.1:7001",
                     .outer_step = 3,
                     .hashes = hashes,
                     .holds = ranges,
                     .relay_token = std::string(32, 'a'),
                     .peer_token = std::string(32, 'b')};
  const Ready ready = {
      .base_hash = hashes[0],
      .tokens = 100,
      .consumed = ranges,
      .norm = .5,
      .loss = 3,
      .codec = "int8",
      .measured = {.step_seconds = .1, .learning_rate = 1e-3, .links = {{2, 1e6, .05}}}};
  const FromIsland from[] = {
      join,          Synced{3, hashes, ranges},    Heartbeat{7, 1.5, 60, {2}},
      ready,         ReduceFailed{{2}, "refused"}, Prepared{hashes[0]},
      Leave{"ended"}};
  const ToIsland answers[] = {
      Welcome{.island = 1, .outer_step = 3, .hashes = hashes, .sources = sources, .holds = ranges},
      Refused{"another run"},
      Lease{ranges, 11, 10},
      Reduce{1, participants},
      AbandonReduce{"lost"},
      PutState{{{1, 2}, {3, 4}}},
      Commit{1, hashes[0], participants, {.inner_steps = 64, .codec = "int8", .outer_lr = .7}},
      Dropped{"late"},
      Resync{.outer_step = 3, .hashes = hashes, .sources = sources, .why = "differs"},
      View{{{1, "lyon", "10.0.0.1:7001", "active"}}},
      Finish{"done"}};
  static_assert(std::size(from) == std::variant_size_v<FromIsland>);
  static_assert(std::size(answers) == std::variant_size_v<ToIsland>);
  const Stamp stamp = {.fence = 1, .view = 2, .outer_step = 3, .attempt = 1, .sequence = 9};
  for (const FromIsland& body : from) {
    write_file(to / fmt::format("from_{}", body.index()), encode(MessageFromIsland{stamp, body}));
  }
  for (const ToIsland& body : answers) {
    write_file(to / fmt::format("to_{}", body.index()), encode(MessageToIsland{stamp, body}));
  }
}

void write_server_messages(const fs::path& to) {
  using namespace param_server;
  RunSpec spec;
  spec.identity = "abc";
  spec.num_elements = 4;
  spec.optimizer.values = {{"beta1", 0.9}, {"nesterov", true}, {"word", std::string("x")}};
  optim::ParamRange range;
  range.count = 4;
  range.value_begin = range.grad_begin = 0;
  Slice slice;
  slice.count = 4;
  slice.ranges = {range};
  spec.slices = {slice};
  View view;
  view.number = 4;
  view.servers = {{1, "a:1"}, {2, "b:1"}};
  view.chains = {{1, 2}, {}};
  view.joining = {kNobody, 2};
  const LaneAt at = {2, 3};
  Assign assign;
  assign.lanes = {at};
  assign.until = 9;
  AwaitSum await;
  await.lanes = {0, 2};
  Sum sum;
  sum.squares = {1, 2.5};
  sum.losses = {3};
  Push push;
  push.data = std::string(16, 'x');
  Values values;
  values.data = push.data;
  Load load;
  load.values = push.data;
  load.state = {push.data, push.data};
  State state;
  state.values = push.data;
  state.state = load.state;
  Replicate replicate;
  replicate.event = encode(push);
  Copy copy;
  copy.state = push.data;
  const Message messages[] = {
      WorkerHello(), ServerHello(), Offer{spec},   Welcome(),    Refused{"another run"},
      view,          Loaded(),      assign,        Done{at},     Released{at},
      Save{4},       Saved{4},      StopRun(),     End{"done"},  Ready{1, 2},
      push,          Pushed(),      await,         sum,          Pull(),
      values,        load,          LoadedSlice(), Read(),       state,
      NotHead(),     replicate,     copy,          Replicated(), Clocks{{at}}};
  static_assert(std::size(messages) == std::variant_size_v<Message>);
  for (const Message& message : messages) {
    write_file(to / fmt::format("message_{}", message.index()), encode(message));
  }
  // Two messages and the end, as frames over tcp; and what a scheduler of them would write.
  std::string frames;
  const auto frame = [&](std::uint32_t kind, const std::string& body) {
    const comm::tcp::Frame head = {
        .magic = 0x314c5441, .kind = comm::tcp::MessageKind{kind}, .bytes = body.size()};
    frames.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(body);
  };
  frame(2, encode(push));
  frame(2, encode(Done{at}));
  frame(5, "it is done");
  write_file(to / "frames", frames);
  SchedulerState state_of_scheduler;
  state_of_scheduler.has_spec = state_of_scheduler.is_loaded = true;
  state_of_scheduler.spec = spec;
  state_of_scheduler.view = view;
  state_of_scheduler.view.chains = {{1, 2}};
  state_of_scheduler.view.joining = {kNobody};
  state_of_scheduler.workers = {{.number = 0, .identity = "abc"}};
  state_of_scheduler.lanes = {{.owner = 0, .next = 3}};
  write_file(to / "scheduler", encode(state_of_scheduler));
}

void write_lease_messages(const fs::path& to) {
  using namespace tune;
  const FileEntry file = {.path = "run/metrics.jsonl", .bytes = 7, .hash = std::string(32, 'a')};
  const LeaseMessage messages[] = {Hello{.version = "1", .name = "lyon", .instance = "17"},
                                   Ready{{{7, 2}}},
                                   Ended{{7, 2}, 0, "", {file}},
                                   Delivered{{7, 2}},
                                   Leaving(),
                                   Welcome{"", "", "", {{"data.text", "a", false, {file}}}, {file}},
                                   Lease{{7, 2}, 4, 2, {{"optim.lr", "0.1"}}, {file}},
                                   Want{{7, 2}, {0}},
                                   Settled{{7, 2}, ""},
                                   tune::Refused{"no"},
                                   Over()};
  static_assert(std::size(messages) == std::variant_size_v<LeaseMessage>);
  for (const LeaseMessage& message : messages) {
    write_file(to / fmt::format("message_{}", message.index()), encode(message));
  }
}

void copy_all(const fs::path& from, const char* name, const fs::path& to) {
  for (const auto& directory : fs::directory_iterator(from)) {
    if (!fs::exists(directory.path() / name)) continue;
    fs::copy_file(directory.path() / name, to / directory.path().filename(),
                  fs::copy_options::overwrite_existing);
  }
}

void make_seeds(const fs::path& root) {
  write_safetensors_files(folder(root, "safetensors"));
  write_quantised(folder(root, "quantised"));
  write_tokenizers(folder(root, "tokenizer_json"));
  write_sentence_pieces(folder(root, "sentence_piece"));
  write_chat_templates(folder(root, "chat_template"));
  write_shards(folder(root, "shard"));
  write_token_bins(folder(root, "token_bin"));
  write_island_messages(folder(root, "island_messages"));
  write_server_messages(folder(root, "server_messages"));
  write_lease_messages(folder(root, "lease_messages"));
  copy_all(kSource / "tests/golden/families", "config.json", folder(root, "config_json"));
  copy_all(kSource / "tests/golden/lora", "adapter_config.json", folder(root, "adapter_config"));
  for (const auto& recipe : fs::directory_iterator(kSource / "recipes")) {
    fs::copy_file(recipe.path(), folder(root, "toml") / recipe.path().filename(),
                  fs::copy_options::overwrite_existing);
  }
  const fs::path scratch = root / ".models";
  write_gguf_files(folder(root, "gguf"), root / "tokenizer_json", scratch);
  fs::remove_all(scratch);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: make_seeds <directory>\n");
    return 2;
  }
  try {
    atl::make_seeds(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
