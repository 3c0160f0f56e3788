#include "atoll/data/field_map.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::data {

namespace dom = simdjson::dom;

FieldMap::FieldMap(std::vector<std::pair<std::string, std::string>> fields) {
  for (auto& [name, spec] : fields) {
    if (spec.empty()) throw user_error("{} is empty; give the key that holds it", name);
    Field field{.spec = spec};
    const auto malformed = [&name = name, &spec = spec](std::string_view what) {
      return user_error("{} is \"{}\": {}; write a key in braces, and braces that are text twice",
                        name, spec, what);
    };
    std::string text;
    for (std::size_t at = 0; at < spec.size(); ++at) {
      const char letter = spec[at];
      if (letter != '{' && letter != '}') {
        text += letter;
        continue;
      }
      field.is_template = true;
      if (at + 1 < spec.size() && spec[at + 1] == letter) {
        text += letter;
        ++at;
        continue;
      }
      const std::size_t end = spec.find_first_of("{}", at + 1);
      if (letter == '}' || end == std::string::npos || spec[end] == '{' || end == at + 1) {
        throw malformed(letter == '}' ? "a } without {" : "a { without a key and }");
      }
      field.pieces.push_back(
          {text, key_index(std::string_view(spec).substr(at + 1, end - at - 1))});
      text.clear();
      at = end;
    }
    if (!field.is_template) {
      field.pieces.push_back({"", key_index(spec)});
    } else {
      if (field.pieces.empty()) throw malformed("it has no key");
      field.pieces.push_back({text, std::nullopt});
    }
    fields_.push_back(std::move(field));
  }
}

bool FieldMap::reads(std::string_view key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

std::size_t FieldMap::key_index(std::string_view key) {
  const auto at = std::find(keys_.begin(), keys_.end(), key);
  if (at == keys_.end()) {
    keys_.emplace_back(key);
    return keys_.size() - 1;
  }
  return static_cast<std::size_t>(at - keys_.begin());
}

bool FieldValues::take(std::string_view key, dom::element value) {
  if (value.is_null()) return true;  // how tables are written whose rows differ in their columns
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (map_.keys_[i] != key) continue;
    if (values_[i]) return false;
    values_[i] = value;
  }
  return true;
}

bool FieldValues::has(std::size_t field) const {
  const auto& pieces = map_.fields_[field].pieces;
  return std::any_of(pieces.begin(), pieces.end(),
                     [&](const auto& piece) { return piece.key && values_[*piece.key]; });
}

std::optional<dom::element> FieldValues::value(std::size_t field) const {
  const FieldMap::Field& wanted = map_.fields_[field];
  if (wanted.is_template) return std::nullopt;
  return values_[*wanted.pieces.front().key];
}

std::optional<std::string> FieldValues::text(std::size_t field, std::string& problem) const {
  const FieldMap::Field& wanted = map_.fields_[field];
  std::string text;
  for (const FieldMap::Piece& piece : wanted.pieces) {
    text += piece.text;
    if (!piece.key) continue;
    const auto& value = values_[*piece.key];
    const std::string& key = map_.keys_[*piece.key];
    std::string_view string;
    if (!value) {
      problem = fmt::format("has no \"{}\", of which it is to make \"{}\"", key, wanted.spec);
      return std::nullopt;
    }
    if (!value->get(string)) {
      text += string;
    } else if (wanted.is_template && value->is_number()) {
      text += simdjson::minify(*value);
    } else {
      problem = fmt::format("has a \"{}\" that is not a string", key);
      return std::nullopt;
    }
  }
  return text;
}

}  // namespace atl::data
