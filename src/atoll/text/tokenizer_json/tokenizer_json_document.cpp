#include "atoll/text/tokenizer_json/tokenizer_json_document.h"

#include <simdjson.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/lfs_pointer.h"
#include "atoll/base/json.h"
#include "atoll/base/nesting.h"
#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

namespace atl::text {

namespace {

namespace dom = simdjson::dom;

constexpr int kMaxNesting = 64;  // real files have less than 10 levels

// What Hugging Face's library, which is written in Rust, reads in the place of `value`: serde_json
// takes the digits as a whole number and divides by a power of ten, which rounds twice. The last
// bit decides between pieces of a Unigram model whose sums are equal but for it. `value` is taken
// to be written with as few digits as tell it from its neighbours, as everyone writes it.
double as_the_library_reads(double value) {
  constexpr int kExact = 22;  // the largest power of ten that a double holds
  std::array<char, 32> text{};
  const char* end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific)
          .ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  bool in_fraction = false;
  const char* at = text.data();
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') in_fraction = true;
    if (*at < '0' || *at > '9') continue;
    digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
    if (in_fraction) --exponent;
  }
  if (at == end) return value;
  int written = 0;
  ++at;
  if (at != end && *at == '+') ++at;
  std::from_chars(at, end, written);
  exponent += written;
  if (std::abs(exponent) > kExact) return value;
  double power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, value);
}

class Document : public JsonReader {
 public:
  Document(std::string_view text, std::string_view origin, TokenizerSpec& tables)
      : JsonReader(origin), text_(text), tables_(tables) {}

  Json read() {
    dom::parser parser;
    dom::element root;
    if (const auto error = parser.parse(text_.data(), text_.size()).get(root)) throw_why(error);
    dom::object object;
    if (root.get(object)) return value_of(root, 1);
    Json json = Json::object();
    for (const dom::key_value_pair field : object) {
      dom::object model;
      const bool has_tables = field.key == "model" && !field.value.get(model);
      json[std::string(field.key)] = has_tables ? model_of(model) : value_of(field.value, 2);
    }
    return json;
  }

 private:
  [[noreturn]] void throw_why(simdjson::error_code error) const {
    if (error == simdjson::MEMALLOC) {
      throw make_error(ErrorKind::kResource, "{}: no memory to read its {} bytes", origin(),
                       text_.size());
    }
    throw_if_deep();
    refuse_lfs_pointer(text_, origin());
    if (text_.starts_with("\xEF\xBB\xBF")) {
      throw damaged_error("{}: begins with a byte order mark; remove it", origin());
    }
    check_json(text_, origin(), {.max_depth = kMaxNesting});  // says in which line
    throw damaged_error("{}: no tokenizer has such JSON: {}", origin(),
                        error == simdjson::NUMBER_ERROR ? "a number does not fit 64 bits"
                                                        : simdjson::error_message(error));
  }

  void throw_if_deep() const {
    const int depth = nesting_depth(text_);
    if (depth <= kMaxNesting) return;
    throw damaged_error("{}: nested {} levels deep, which no tokenizer is", origin(), depth);
  }

  // `depth` is that of the brackets, if the value has some.
  Json value_of(const dom::element& value, int depth) const {
    if (depth > kMaxNesting && (value.is_object() || value.is_array())) throw_if_deep();
    switch (value.type()) {
      case dom::element_type::OBJECT: {
        Json json = Json::object();
        for (const dom::key_value_pair field : dom::object(value)) {
          json[std::string(field.key)] = value_of(field.value, depth + 1);
        }
        return json;
      }
      case dom::element_type::ARRAY: {
        Json json = Json::array();
        for (const dom::element entry : dom::array(value)) {
          json.push_back(value_of(entry, depth + 1));
        }
        return json;
      }
      case dom::element_type::STRING:
        return std::string(std::string_view(value));
      case dom::element_type::INT64: {
        const std::int64_t number = value;
        return number < 0 ? Json(number) : Json(static_cast<std::uint64_t>(number));
      }
      case dom::element_type::UINT64:
        return std::uint64_t{value};
      case dom::element_type::DOUBLE:
        return double{value};
      case dom::element_type::BOOL:
        return bool{value};
      case dom::element_type::NULL_VALUE:
        return nullptr;
    }
    return nullptr;
  }

  Json model_of(const dom::object& model) {
    Json json = Json::object();
    for (const dom::key_value_pair field : model) {
      dom::object vocab;
      dom::array pieces, merges;
      Json& place = json[std::string(field.key)];
      if (field.key == "vocab" && !field.value.get(vocab)) {
        read_vocab(vocab);
        place = Json::object();
      } else if (field.key == "vocab" && !field.value.get(pieces)) {
        read_pieces(pieces);
        place = Json::array();
      } else if (field.key == "merges" && !field.value.get(merges)) {
        read_merges(merges);
        place = Json::array();
      } else {
        place = value_of(field.value, 3);
      }
    }
    return json;
  }

  void read_vocab(const dom::object& vocab) {
    tables_.model.vocab.clear();
    tables_.model.vocab.reserve(vocab.size());
    for (const auto& [token, value] : vocab) {
      std::int64_t number = -1;
      if (value.get(number) || number < 0 || number > std::numeric_limits<std::int32_t>::max()) {
        number = id(value_of(value, 4), fmt::format("model.vocab[\"{}\"]", token));  // throws
      }
      tables_.model.vocab.emplace_back(token, static_cast<std::int32_t>(number));
    }
  }

  // Of Unigram: [token, score], and the id is the place.
  void read_pieces(const dom::array& pieces) {
    tables_.model.vocab.clear();
    tables_.words.scores.clear();
    for (const dom::element entry : pieces) {
      const std::size_t index = tables_.words.scores.size();
      dom::array pair;
      std::string_view token;
      double score = 0;
      if (entry.get(pair) || pair.size() != 2 || pair.at(0).get(token) || pair.at(1).get(score)) {
        damaged(fmt::format("model.vocab[{}]", index),
                fmt::format("{} is not [\"a\", score]", value_of(entry, 4).dump()));
      }
      tables_.model.vocab.emplace_back(token, static_cast<std::int32_t>(index));
      tables_.words.scores.push_back(as_the_library_reads(score));
    }
  }

  void read_merges(const dom::array& merges) {
    tables_.model.merges.clear();
    tables_.model.merges.reserve(merges.size());
    for (const dom::element entry : merges) {
      if (!add_merge(entry)) {
        damaged(fmt::format("model.merges[{}]", tables_.model.merges.size()),
                fmt::format("{} is neither \"a b\" nor [\"a\", \"b\"]", value_of(entry, 4).dump()));
      }
    }
  }

  bool add_merge(const dom::element& entry) {
    std::string_view left, right;
    if (!entry.get(left)) {
      const std::size_t space = left.find(' ');
      if (space == left.npos || left.find(' ', space + 1) != left.npos) return false;
      right = left.substr(space + 1);
      left = left.substr(0, space);
    } else {
      dom::array pair;
      if (entry.get(pair) || pair.size() != 2) return false;
      if (pair.at(0).get(left) || pair.at(1).get(right)) return false;
    }
    tables_.model.merges.emplace_back(left, right);
    return true;
  }

  std::string_view text_;
  TokenizerSpec& tables_;
};

}  // namespace

Json read_tokenizer_document(std::string_view text, std::string_view origin,
                             TokenizerSpec& tables) {
  return Document(text, origin, tables).read();
}

}  // namespace atl::text
