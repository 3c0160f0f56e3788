// Writes runs as Weights & Biases does without a network: a file of records, in the log format of
// LevelDB (leveldb/doc/log_format.md) with the CRC-32 of zlib.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/hash.h"
#include "atoll/base/settings/toml.h"
#include "atoll/watch/run_export.h"
#include "watch/wandb.pb.h"

namespace atl::watch {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kBlock = 32768;
constexpr std::size_t kPieceHeader = 7;
// The header that W&B's reader expects: a name, a magic number, a version.
constexpr std::array<char, 7> kFileHeader = {':', 'W', '&', 'B', '\xe1', '\xbe', '\0'};

template <typename T>
void append_little_endian(std::string& text, T value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

// Writes records into blocks. A record that does not fit continues in the next block.
class LogWriter {
 public:
  explicit LogWriter(AtomicFile& file) : file_(file) {
    file_.write(kFileHeader.data(), kFileHeader.size());
  }

  void write(const std::string& record) {
    enum : std::uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
    std::string_view rest = record;
    bool is_first = true;
    do {
      const std::size_t used = file_.bytes_written() % kBlock;
      const std::size_t room = kBlock - used;
      if (room < kPieceHeader) {
        file_.write(std::string(room, '\0'));
        continue;
      }
      const std::size_t size = std::min(rest.size(), room - kPieceHeader);
      const bool is_last = size == rest.size();
      const std::uint8_t type = is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle);
      write_piece(type, rest.substr(0, size));
      rest.remove_prefix(size);
      is_first = false;
      if (is_last) return;
    } while (true);
  }

 private:
  void write_piece(std::uint8_t type, std::string_view data) {
    std::string checked(1, static_cast<char>(type));
    checked += data;
    std::string header;
    append_little_endian(header, crc32(checked), 4);
    append_little_endian(header, data.size(), 2);
    file_.write(header);
    file_.write(checked);
  }

  AtomicFile& file_;
};

// A number in W&B's JSON: NaN and infinities by name.
std::string value_json(const metrics::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isnan(*number)) return "NaN";
    if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    return Json(*number).dump();
  }
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  return Json(std::get<std::string>(value)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void add_item(wandb::Item& item, const std::string& key, const std::string& json) {
  item.set_key(key);
  item.set_value_json(json);
}

Json json_of(const std::string& toml) {
  try {
    const std::vector<TomlEntry> entries = parse_toml("x = " + toml, "a setting");
    if (entries.size() == 1 && entries[0].known) {
      return std::visit([](const auto& value) { return Json(value); }, entries[0].value);
    }
  } catch (const Error&) {  // a type that no setting has: as text
  }
  return toml;
}

// Writes records with their numbers.
class RecordWriter {
 public:
  explicit RecordWriter(AtomicFile& file) : log_(file) {}

  void write(wandb::Record& record) {
    record.set_num(++number_);
    log_.write(record.SerializeAsString());
  }

 private:
  LogWriter log_;
  std::int64_t number_ = 0;
};

void write_beginning(RecordWriter& writer, const RunData& run, const std::string& id) {
  wandb::Record header;
  header.mutable_header()->mutable_version_info()->set_producer("0.31.0");
  header.mutable_header()->mutable_version_info()->set_min_consumer("0.40.0");
  writer.write(header);
  wandb::Record begun;
  wandb::Run& facts = *begun.mutable_run();
  facts.set_run_id(id);
  facts.set_project("atoll");
  facts.set_display_name(short_name(run));
  const double whole = std::floor(run.first_time_s);
  facts.mutable_start_time()->set_seconds(static_cast<std::int64_t>(whole));
  facts.mutable_start_time()->set_nanos(
      static_cast<std::int32_t>((run.first_time_s - whole) * 1e9));
  for (const auto& [key, value] : run.settings) {
    add_item(*facts.mutable_config()->add_update(), key, json_of(value).dump());
  }
  writer.write(begun);
}

// Writes one history record per step, because W&B drops a second record of the same step.
class HistoryWriter {
 public:
  HistoryWriter(RecordWriter& writer, double first_time_s)
      : writer_(writer), first_time_s_(first_time_s) {}

  void add(const metrics::Record& record) {
    if (has_any_ && record.step != step_) flush();
    has_any_ = true;
    step_ = record.step;
    time_s_ = record.wall_time_s;
    for (const auto& [name, value] : record.values) values_[name] = value_json(value);
  }
  void flush() {
    if (!has_any_) return;
    wandb::Record record;
    wandb::History& history = *record.mutable_history();
    history.mutable_step()->set_num(step_);
    for (const auto& [name, json] : values_) {
      add_item(*history.add_item(), name, json);
      last_[name] = json;
    }
    add_item(*history.add_item(), "_step", std::to_string(step_));
    add_item(*history.add_item(), "_timestamp", Json(time_s_).dump());
    add_item(*history.add_item(), "_runtime", Json(time_s_ - first_time_s_).dump());
    writer_.write(record);
    values_.clear();
    has_any_ = false;
  }
  const std::map<std::string, std::string>& last() const { return last_; }

 private:
  RecordWriter& writer_;
  double first_time_s_;
  bool has_any_ = false;
  std::int64_t step_ = 0;
  double time_s_ = 0;
  std::map<std::string, std::string> values_, last_;
};

}  // namespace

std::uint32_t crc32(std::string_view data) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < made.size(); ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value & 1) != 0 ? value >> 1 ^ 0xedb88320U : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t crc = 0xffffffffU;
  for (const char c : data) crc = table[(crc ^ static_cast<std::uint8_t>(c)) & 0xff] ^ crc >> 8;
  return crc ^ 0xffffffffU;
}

fs::path export_wandb(const RunData& run, const fs::path& parent) {
  // A run always gets the same ID, so that two uploads are one run at W&B.
  const std::string origin = fmt::format("{} {}", run.dir.string(), run.first_time_s);
  const std::string id = to_hex(hash_bytes(origin.data(), origin.size())).substr(0, 8);
  const fs::path directory =
      parent / fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}",
                           fmt::gmtime(static_cast<std::time_t>(run.first_time_s)), id);
  if (path_exists(directory)) {
    throw user_error("{} is there already; remove it, or give another --out", directory.string());
  }
  std::error_code error;
  fs::create_directories(directory / "files", error);
  if (error) throw io_error("cannot make", directory, error.value());
  AtomicFile file(directory / fmt::format("run-{}.wandb", id));
  RecordWriter writer(file);
  write_beginning(writer, run, id);
  HistoryWriter history(writer, run.first_time_s);
  for_each_record(run.dir / "metrics.jsonl",
                  [&](const metrics::Record& record) { history.add(record); });
  history.flush();
  wandb::Record summary;
  for (const auto& [name, json] : history.last()) {
    add_item(*summary.mutable_summary()->add_update(), name, json);
  }
  writer.write(summary);
  wandb::Record exit;
  exit.mutable_exit()->set_exit_code(0);
  exit.mutable_exit()->set_runtime(static_cast<std::int32_t>(run.last_time_s - run.first_time_s));
  writer.write(exit);
  file.commit();
  return directory;
}

}  // namespace atl::watch
