#include "atoll/data/arrow/arrow_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/data/arrow/array_json.h"
#include "atoll/data/arrow/batch.h"
#include "atoll/data/arrow/schema.h"
#include "atoll/data/columns/json_writer.h"

namespace atl::data {

namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::string_view kMagic = "ARROW1"sv;
constexpr std::size_t kMagicBytes = 8;  // with its padding

class Arrow final : public RowSource {
 public:
  Arrow(const fs::path& path, const IsRead& is_read) : path_(path.string()), file_(path) {
    located([&] { begin(is_read); });
  }

  std::optional<RowText> next() override {
    std::optional<RowText> row;
    located([&] {
      while (!is_ended_ && row_in_batch_ >= batch_.length) read_message();
      if (row_in_batch_ >= batch_.length) return;
      write_row();
      ++row_in_batch_;
      row = RowText{row_, ++number_, at_};
    });
    return row;
  }

  std::uint64_t content_bytes() const override { return content().size(); }

 private:
  // An error of a step gets the file and the message.
  template <typename Step>
  void located(Step&& step) const {
    try {
      step();
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      throw user_error(
          "{}, Arrow message at byte {}, behind row {}: {}; write or copy the file again", path_,
          message_at_, number_, error.what());
    }
  }

  std::string_view content() const {
    return {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  }

  void begin(const IsRead& is_read) {
    end_ = content().size();
    if (content().starts_with(kMagic)) {
      // A file is a stream between its magic and a footer, whose size stands before the last magic.
      constexpr std::size_t kTail = 10;
      std::uint32_t footer = 0;
      if (end_ < kMagicBytes + kTail || !content().ends_with(kMagic)) {
        throw std::runtime_error("it does not end with ARROW1, so it was cut off");
      }
      std::memcpy(&footer, content().data() + end_ - kTail, sizeof(footer));
      if (footer > end_ - kMagicBytes - kTail) {
        throw std::runtime_error("its footer is longer than the file");
      }
      end_ -= kTail + footer;
      at_ = kMagicBytes;
    }
    while (fields_.empty()) {
      if (is_ended_) throw std::runtime_error("it has no schema, or one without columns");
      read_message();
    }
    for (const ArrowField& field : fields_) is_read_.push_back(is_read(field.name));
    // Without one that is read the reader of the rows tells of all.
    if (std::find(is_read_.begin(), is_read_.end(), true) == is_read_.end()) {
      is_read_.assign(fields_.size(), true);
    }
    for (const ArrowField& field : fields_) {
      columns_.push_back(&field);
      add_dictionaries(field);
    }
  }

  void add_dictionaries(const ArrowField& field) {
    if (field.dictionary && dictionary_fields_.count(*field.dictionary) == 0) {
      ArrowField values = field;
      values.dictionary.reset();
      dictionary_fields_.emplace(*field.dictionary, std::move(values));
    }
    for (const ArrowField& child : field.children) add_dictionaries(child);
  }

  template <typename Number>
  Number take_number() {
    Number value;
    if (end_ - at_ < sizeof(value)) throw std::runtime_error("the file ends within a message");
    std::memcpy(&value, content().data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }

  std::string_view take(std::uint64_t size) {
    if (size > end_ - at_) throw std::runtime_error("the file ends within a message");
    const std::string_view bytes = content().substr(at_, size);
    at_ += size;
    return bytes;
  }

  void read_message() {
    message_at_ = at_;
    if (at_ == end_) {
      is_ended_ = true;  // a stream need not say so
      return;
    }
    auto size = take_number<std::uint32_t>();
    constexpr std::uint32_t kGoesOn = 0xffffffff;  // before messages since version 0.15
    if (size == kGoesOn) size = take_number<std::uint32_t>();
    if (size == 0) {
      is_ended_ = true;
      return;
    }
    const FlatTable message = FlatTable::root(take(size));
    const auto body_size = message.number<std::int64_t>(3, 0);
    if (body_size < 0) throw std::runtime_error("a message has a negative size");
    const std::string_view body = take(static_cast<std::uint64_t>(body_size));
    enum Kind : std::uint8_t { kSchema = 1, kDictionary = 2, kRecords = 3 };
    const auto kind = message.number<std::uint8_t>(1, 0);
    if (kind == kSchema) {
      if (!fields_.empty()) throw std::runtime_error("it has a second schema");
      fields_ = read_arrow_schema(message.table(2));
      return;
    }
    if (fields_.empty()) throw std::runtime_error("its first message is no schema");
    if (kind == kDictionary) return read_dictionary(message.table(2), body);
    if (kind != kRecords) throw std::runtime_error("it holds tensors, which are not read");
    batch_ = read_arrow_batch(message.table(2), body, columns_, is_read_);
    row_in_batch_ = 0;
  }

  void read_dictionary(const FlatTable& message, std::string_view body) {
    const auto number = message.number<std::int64_t>(0, 0);
    const auto field = dictionary_fields_.find(number);
    if (field == dictionary_fields_.end()) {
      throw std::runtime_error("a dictionary belongs to no column");
    }
    const bool adds = message.number<std::uint8_t>(2, 0) != 0;
    ArrowDictionary& dictionary = dictionaries_[number];
    if (!adds) dictionary.clear();
    dictionary.push_back(read_arrow_batch(message.table(1), body, {&field->second}, {true}));
  }

  void write_row() {
    row_.assign(1, '{');
    ArrowJson json(dictionaries_, row_);
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (i > 0) row_ += ',';
      append_json_string(row_, fields_[i].name);
      row_ += ':';
      if (is_read_[i]) {
        json.write(batch_.arrays[i], row_in_batch_);
      } else {
        row_ += "\"\"";
      }
    }
    row_ += '}';
  }

  std::string path_;
  MappedFile file_;
  std::uint64_t at_ = 0;
  std::uint64_t end_ = 0;  // of the stream of messages
  std::uint64_t message_at_ = 0;
  bool is_ended_ = false;
  std::vector<ArrowField> fields_;
  std::vector<const ArrowField*> columns_;
  std::vector<bool> is_read_;
  std::map<std::int64_t, ArrowField> dictionary_fields_;  // what their values are
  ArrowDictionaries dictionaries_;
  ArrowBatch batch_;
  std::int64_t row_in_batch_ = 0;
  std::int64_t number_ = 0;
  std::string row_;
};

}  // namespace

std::unique_ptr<RowSource> open_arrow(const fs::path& path, IsRead is_read) {
  return std::make_unique<Arrow>(path, is_read);
}

}  // namespace atl::data
