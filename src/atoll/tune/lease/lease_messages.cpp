#include "atoll/tune/lease/lease_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/json.h"

namespace atl::tune {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxName = 256;
constexpr int kMaxSlots = 1024;
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 44;
constexpr std::size_t kHashDigits = 32;

json json_of(const FileEntry& file) {
  return json::array({file.path, file.bytes, file.hash});
}
json json_of(const std::vector<FileEntry>& files) {
  json all = json::array();
  for (const FileEntry& file : files) all.push_back(json_of(file));
  return all;
}
json json_of(const LeaseId& lease) {
  return json::array({lease.trial, lease.number});
}

std::vector<FileEntry> files_of(const json& value) {
  std::vector<FileEntry> files;
  for (const json& one : value) {
    FileEntry file = {
        .path = one.at(0).get<std::string>(),
        .bytes = static_cast<std::uint64_t>(whole_number(one.at(1), 0, kMaxFileBytes)),
        .hash = one.at(2).get<std::string>()};
    check_path(file.path);
    if (file.hash.size() != kHashDigits ||
        file.hash.find_first_not_of("0123456789abcdef") != std::string::npos) {
      throw damaged_error("\"{}\" is no hash", file.hash);
    }
    files.push_back(std::move(file));
  }
  const auto is_after = [](const FileEntry& a, const FileEntry& b) { return a.path >= b.path; };
  if (std::adjacent_find(files.begin(), files.end(), is_after) != files.end()) {
    throw damaged_error("files are not in the order of their paths");
  }
  return files;
}
int number_of(const json& value, int least, int most) {
  return static_cast<int>(whole_number(value, least, most));
}
std::int64_t step_of(const json& value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  return whole_number(value, 0, kMost);
}
LeaseId lease_of(const json& value) {
  constexpr int kMost = 1 << 30;
  return {.trial = number_of(value.at(0), 0, kMost), .number = number_of(value.at(1), 1, kMost)};
}
std::string short_text(const json& value) {
  std::string text = value.get<std::string>();
  if (text.size() > kMaxName) throw damaged_error("a name of {} bytes is too long", text.size());
  return text;
}

json body(const Hello& m) {
  return {{"protocol", m.protocol},
          {"version", m.version},
          {"name", m.name},
          {"instance", m.instance},
          {"slots", m.slots}};
}
json body(const Ready& m) {
  json held = json::array();
  for (const LeaseId& lease : m.held) held.push_back(json_of(lease));
  return {{"held", held}};
}
json body(const Ended& m) {
  return {
      {"lease", json_of(m.lease)}, {"code", m.code}, {"line", m.line}, {"files", json_of(m.files)}};
}
json body(const Delivered& m) {
  return {{"lease", json_of(m.lease)}};
}
json body(const Leaving&) {
  return json::object();
}
json body(const Welcome& m) {
  json inputs = json::array();
  for (const Input& input : m.inputs) {
    inputs.push_back({{"key", input.key},
                      {"name", input.name},
                      {"is_directory", input.is_directory},
                      {"files", json_of(input.files)}});
  }
  return {{"identity", m.identity},
          {"study", m.study},
          {"recipe", m.recipe},
          {"inputs", inputs},
          {"tokens", json_of(m.tokens)}};
}
json body(const Lease& m) {
  json settings = json::array();
  for (const auto& [key, value] : m.settings) settings.push_back(json::array({key, value}));
  return {{"lease", json_of(m.id)},
          {"step", m.step},
          {"reached", m.reached},
          {"settings", settings},
          {"files", json_of(m.files)}};
}
json body(const Want& m) {
  return {{"lease", json_of(m.lease)}, {"files", m.files}};
}
json body(const Settled& m) {
  return {{"lease", json_of(m.lease)}, {"why", m.why}};
}
json body(const Refused& m) {
  return {{"why", m.why}};
}
json body(const Over&) {
  return json::object();
}

void read(const json& from, Hello& m) {
  m.protocol = number_of(from.at("protocol"), 0, 1 << 30);
  m.version = short_text(from.at("version"));
  m.name = short_text(from.at("name"));
  m.instance = short_text(from.at("instance"));
  m.slots = number_of(from.at("slots"), 1, kMaxSlots);
}
void read(const json& from, Ready& m) {
  for (const json& lease : from.at("held")) m.held.push_back(lease_of(lease));
}
void read(const json& from, Ended& m) {
  m.lease = lease_of(from.at("lease"));
  m.code = number_of(from.at("code"), 0, 255);
  m.line = from.at("line");
  m.files = files_of(from.at("files"));
}
void read(const json& from, Delivered& m) {
  m.lease = lease_of(from.at("lease"));
}
void read(const json&, Leaving&) {}
void read(const json& from, Welcome& m) {
  m.identity = from.at("identity");
  m.study = from.at("study");
  m.recipe = from.at("recipe");
  for (const json& one : from.at("inputs")) {
    Input input = {.key = short_text(one.at("key")),
                   .name = short_text(one.at("name")),
                   .is_directory = one.at("is_directory").get<bool>(),
                   .files = files_of(one.at("files"))};
    check_path(input.name);
    if (input.name.find('/') != std::string::npos) {
      throw damaged_error("\"{}\" is no name", input.name);
    }
    m.inputs.push_back(std::move(input));
  }
  m.tokens = files_of(from.at("tokens"));
}
void read(const json& from, Lease& m) {
  m.id = lease_of(from.at("lease"));
  m.step = step_of(from.at("step"));
  m.reached = step_of(from.at("reached"));
  for (const json& one : from.at("settings")) {
    m.settings.emplace_back(one.at(0).get<std::string>(), one.at(1).get<std::string>());
  }
  m.files = files_of(from.at("files"));
}
void read(const json& from, Want& m) {
  m.lease = lease_of(from.at("lease"));
  for (const json& index : from.at("files")) m.files.push_back(number_of(index, 0, 1 << 30));
}
void read(const json& from, Settled& m) {
  m.lease = lease_of(from.at("lease"));
  m.why = from.at("why");
}
void read(const json& from, Refused& m) {
  m.why = from.at("why");
}
void read(const json&, Over&) {}

// In the order of the types in LeaseMessage.
constexpr const char* kKinds[] = {"hello", "ready", "ended",   "delivered", "leaving", "welcome",
                                  "lease", "want",  "settled", "refused",   "over"};
static_assert(std::size(kKinds) == std::variant_size_v<LeaseMessage>);

template <std::size_t kIndex = 0>
LeaseMessage read_kind(std::string_view kind, const json& from) {
  if constexpr (kIndex == std::variant_size_v<LeaseMessage>) {
    throw damaged_error("\"{}\" is no kind of message", kind);
  } else {
    if (kind != kKinds[kIndex]) return read_kind<kIndex + 1>(kind, from);
    std::variant_alternative_t<kIndex, LeaseMessage> message;
    read(from, message);
    return message;
  }
}

}  // namespace

std::string key_of(const LeaseId& lease) {
  return fmt::format("{}.{}", lease.trial, lease.number);
}

std::string back_list(const LeaseId& lease) {
  return key_of(lease) + "/back";
}

std::string study_list(std::size_t index) {
  return fmt::format("study/{}", index);
}

std::string file_key(const std::string& list, std::size_t index) {
  return fmt::format("{}/{}", list, index);
}

std::string encode(const LeaseMessage& message) {
  json all = std::visit([](const auto& m) { return body(m); }, message);
  all["kind"] = kKinds[message.index()];
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

LeaseMessage decode(std::string_view frame) {
  const json all = parse_json(frame, "a message");
  try {
    return read_kind(all.at("kind").get<std::string>(), all);
  } catch (const json::exception& error) {
    throw damaged_error("a message: {}", json_reason(error));
  }
}

}  // namespace atl::tune
