#include "atoll/data/rows/tar.h"

#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/text_encoding.h"
#include "atoll/base/log.h"
#include "atoll/data/columns/json_writer.h"

namespace atl::data {

namespace {

// POSIX.1-2017, pax: the ustar header.
constexpr std::size_t kBlock = 512;
constexpr std::size_t kMaxNames = std::size_t{1} << 20;  // of a header of long names

struct Header {
  std::string name;
  std::uint64_t size = 0;
  char type = '0';
};

std::string_view text_at(std::string_view block, std::size_t at, std::size_t size) {
  const std::string_view field = block.substr(at, size);
  return field.substr(0, field.find('\0'));
}

// An octal number, or, behind a byte 0x80, a number of bytes; -1 for none.
std::int64_t number_at(std::string_view block, std::size_t at, std::size_t size) {
  const std::string_view field = block.substr(at, size);
  std::int64_t value = 0;
  if (static_cast<unsigned char>(field.front()) == 0x80) {
    for (const char byte : field.substr(1)) {
      if (value >> 54 != 0) return -1;
      value = (value << 8) | static_cast<unsigned char>(byte);
    }
    return value;
  }
  bool has_digits = false;
  for (const char c : field) {
    if (c >= '0' && c <= '7') {
      if (value >> 58 != 0) return -1;
      value = value * 8 + (c - '0');
      has_digits = true;
    } else if (has_digits || c != ' ') {
      if (c != ' ' && c != '\0') return -1;
      break;
    }
  }
  return has_digits ? value : -1;
}

bool has_checksum(std::string_view block) {
  constexpr std::size_t kAt = 148;
  constexpr std::size_t kSize = 8;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += i >= kAt && i < kAt + kSize ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return number_at(block, kAt, kSize) == sum;
}

// The values of pax records that are read: "27 path=a long name\n". What is not there stays.
void read_pax(std::string_view records, std::string& name, std::int64_t& size) {
  while (!records.empty()) {
    std::size_t length = 0;
    std::size_t at = 0;
    for (; at < records.size() && records[at] >= '0' && records[at] <= '9' && at < 9; ++at) {
      length = length * 10 + static_cast<std::size_t>(records[at] - '0');
    }
    if (length <= at + 1 || length > records.size()) return;
    std::string_view record = records.substr(at + 1, length - at - 1);
    records.remove_prefix(length);
    if (record.ends_with('\n')) record.remove_suffix(1);
    constexpr std::string_view kPath = "path=";
    constexpr std::string_view kSize = "size=";
    if (record.starts_with(kPath)) name = record.substr(kPath.size());
    if (!record.starts_with(kSize) || record.size() > kSize.size() + 18) continue;
    std::int64_t value = 0;
    for (const char c : record.substr(kSize.size())) {
      if (c < '0' || c > '9') return;
      value = value * 10 + (c - '0');
    }
    size = value;
  }
}

class Tar final : public RowSource {
 public:
  explicit Tar(TextWindow window) : window_(std::move(window)) {}

  std::optional<RowText> next() override {
    while (!has_ended_ || has_member_) {
      if (!has_member_ && !read_header()) break;
      const std::string key = key_of(member_.name);
      Sample sample;
      while (has_member_ && key_of(member_.name) == key) {
        take_member(sample);
        read_header();
      }
      ++number_;
      if (!sample.object && sample.texts.empty()) continue;
      write_row(key, sample);
      return RowText{row_, number_, window_.position()};
    }
    // Zeros, whose checksum a compressed file has too.
    while (window_.fill(1)) window_.consume(window_.view().size());
    tell_of_left_out();
    return std::nullopt;
  }
  std::uint64_t content_bytes() const override { return window_.position(); }
  const char* unit() const override { return "sample"; }

 private:
  struct Sample {
    std::optional<std::string> object;
    std::vector<std::pair<std::string, std::string>> texts;  // by ending
    std::uint64_t bytes = 0;                                 // of all
  };

  [[noreturn]] void fail(std::string_view problem) const {
    throw user_error("{} is a damaged tar: {} at byte {} of its content; copy or write it again",
                     window_.path().string(), problem, window_.position());
  }

  static std::size_t first_dot(const std::string& name) {
    return std::min(name.find('.', name.rfind('/') + 1), name.size());
  }
  static std::string key_of(const std::string& name) { return name.substr(0, first_dot(name)); }
  static std::string ending_behind(const std::string& name) {
    std::string ending = name.substr(std::min(first_dot(name) + 1, name.size()));
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return ending;
  }

  // The header of the next member that is a file, into member_.
  bool read_header() {
    has_member_ = false;
    std::string long_name;
    std::int64_t long_size = -1;  // none
    while (!has_ended_) {
      if (!window_.fill(kBlock)) {
        if (!window_.view().empty()) fail("it ends within a header");
        has_ended_ = true;
        break;
      }
      const std::string_view block = window_.view().substr(0, kBlock);
      if (block.find_first_not_of('\0') == std::string_view::npos) {
        has_ended_ = true;
        break;
      }
      if (!has_checksum(block)) fail("a header has a wrong checksum");
      const std::int64_t size = number_at(block, 124, 12);
      if (size < 0) fail("a header has no size");
      Header header{std::string(text_at(block, 0, 100)), static_cast<std::uint64_t>(size),
                    block[156]};
      const std::string_view prefix = text_at(block, 345, 155);
      if (block.substr(257, 6) == std::string_view("ustar\0", 6) && !prefix.empty()) {
        header.name = std::string(prefix) + "/" + header.name;
      }
      window_.consume(kBlock);
      if (header.type == 'L' || header.type == 'x') {
        const std::string names = read_content(header.size, kMaxNames);
        if (header.type == 'L') {
          long_name = names.substr(0, names.find('\0'));
        } else {
          read_pax(names, long_name, long_size);
        }
        continue;
      }
      if (header.type == 'S') fail("a member is a sparse file, which is not read,");
      if (!long_name.empty()) header.name = std::exchange(long_name, "");
      if (long_size >= 0) header.size = static_cast<std::uint64_t>(std::exchange(long_size, -1));
      if (header.type != '0' && header.type != '\0' && header.type != '7') {
        skip_content(header.size);
        continue;
      }
      member_ = std::move(header);
      has_member_ = true;
      return true;
    }
    return false;
  }

  std::uint64_t padding(std::uint64_t size) const { return (kBlock - size % kBlock) % kBlock; }

  std::string read_content(std::uint64_t size, std::size_t limit) {
    if (size > limit) fail(fmt::format("a member has {} bytes, more than {},", size, limit));
    if (!window_.fill(size)) fail("it ends within a member");
    std::string content(window_.view().substr(0, size));
    window_.consume(size);
    skip(padding(size));
    return content;
  }

  void skip_content(std::uint64_t size) {
    skip(size);
    skip(padding(size));
  }

  void skip(std::uint64_t size) {
    while (size > 0) {
      if (!window_.fill(1)) fail("it ends within a member");
      const std::size_t here = std::min<std::uint64_t>(size, window_.view().size());
      window_.consume(here);
      size -= here;
    }
  }

  void take_member(Sample& sample) {
    const std::string ending = ending_behind(member_.name);
    if (ending == "json" && !sample.object) {
      sample.object = read_content(member_.size, kMaxRowBytes - sample.bytes);
      sample.bytes += sample.object->size();
    } else if (ending == "txt" || ending.ends_with(".txt")) {
      const std::string text = read_content(member_.size, kMaxRowBytes - sample.bytes);
      sample.bytes += text.size();
      sample.texts.emplace_back(ending, without_byte_order_mark(text));
    } else {
      ++left_out_[ending.substr(ending.rfind('.') + 1)];
      skip_content(member_.size);
    }
  }

  void write_row(const std::string& key, const Sample& sample) {
    row_.assign(1, '{');
    bool has_text = false;
    if (sample.object) {
      const std::string_view json = without_byte_order_mark(*sample.object);
      simdjson::dom::object object;
      if (parser_.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
        throw user_error("{} sample {}: {}.json is no JSON object; mend it",
                         window_.path().string(), number_, key);
      }
      for (const simdjson::dom::key_value_pair field : object) {
        has_text |= field.key == "text";
        if (row_.size() > 1) row_ += ',';
        append_json_string(row_, field.key);
        row_ += ':';
        row_ += simdjson::minify(field.value);
      }
    }
    const auto add = [&](std::string_view key, std::string_view text) {
      if (row_.size() > 1) row_ += ',';
      append_json_string(row_, key);
      row_ += ':';
      append_json_string(row_, text);
    };
    for (const auto& [ending, text] : sample.texts) add(ending, text);
    if (!has_text && sample.texts.size() == 1) add("text", sample.texts.front().second);
    row_ += '}';
  }

  void tell_of_left_out() {
    if (left_out_.empty()) return;
    std::string all;
    for (const auto& [ending, count] : std::exchange(left_out_, {})) {
      all += fmt::format("{}{} {}", all.empty() ? "" : ", ", count,
                         ending.empty() ? "without an ending" : "." + ending);
    }
    log::info("of {} only .txt and .json members are read; left out: {}", window_.path().string(),
              all);
  }

  TextWindow window_;
  Header member_;
  bool has_member_ = false;  // member_'s content is what the window begins with
  bool has_ended_ = false;
  std::int64_t number_ = 0;
  std::map<std::string, std::int64_t> left_out_;  // members by ending
  simdjson::dom::parser parser_;
  std::string row_;
};

}  // namespace

bool begins_like_tar(std::string_view content) {
  return content.size() >= kBlock && content.substr(257, 5) == "ustar" &&
         has_checksum(content.substr(0, kBlock));
}

std::unique_ptr<RowSource> open_tar(TextWindow window) {
  return std::make_unique<Tar>(std::move(window));
}

}  // namespace atl::data
