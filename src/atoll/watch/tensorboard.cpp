#include "atoll/watch/tensorboard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "atoll/base/files/file.h"
#include "watch/event.pb.h"

namespace atl::watch {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

// TFRecord masks CRCs, because a CRC of data that contains CRCs is weak.
std::uint32_t masked_crc32c(std::string_view data) {
  const std::uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Int>
std::string little_endian(Int value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// TensorBoard reads files in the order of their names, so the time comes first. The count keeps the
// names of files of the same second apart.
std::filesystem::path new_file_in(const std::filesystem::path& directory) {
  static std::atomic<int> count{0};
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw io_error("cannot create", directory, error.value());
  char host[256] = "host";
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "host");
  return directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                                 static_cast<std::int64_t>(metrics::wall_time_now()), host,
                                 ::getpid(), count++);
}

std::string record_of(const event::Event& event) {
  return tfrecord(event.SerializeAsString());
}

std::string tag_of(const std::string& name) {
  return name.find('/') == std::string::npos ? "train/" + name : name;
}

void add_scalar(event::Scalars& scalars, const std::string& name, double number) {
  event::ScalarValue& value = *scalars.add_value();
  value.set_tag(tag_of(name));
  value.set_simple_value(static_cast<float>(number));
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : data)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 255];
  return ~crc;
}

std::string tfrecord(std::string_view payload) {
  const std::string size = little_endian(std::uint64_t{payload.size()});
  std::string record = size + little_endian(masked_crc32c(size));
  record.append(payload);
  return record + little_endian(masked_crc32c(payload));
}

TensorBoardSink::TensorBoardSink(const std::filesystem::path& directory, std::int64_t last_step)
    : file_(new_file_in(directory)) {
  event::Event version;
  version.set_wall_time(metrics::wall_time_now());
  version.set_file_version("brain.Event:2");
  file_.append(record_of(version));
  if (last_step < 0) return;
  event::Event start;
  start.set_wall_time(metrics::wall_time_now());
  start.set_step(last_step + 1);
  start.mutable_session_log()->set_status(event::SessionLog::START);
  file_.append(record_of(start));
}

void TensorBoardSink::write(const metrics::Record& record) {
  event::Event event;
  event.set_wall_time(record.wall_time_s);
  event.set_step(record.step);
  for (const auto& [name, value] : record.values) {
    if (const auto* number = std::get_if<double>(&value)) {
      add_scalar(*event.mutable_summary(), name, *number);
    } else if (const auto* count = std::get_if<std::int64_t>(&value)) {
      add_scalar(*event.mutable_summary(), name, static_cast<double>(*count));
    }
  }
  if (event.has_summary()) file_.append(record_of(event));
}

}  // namespace atl::watch
