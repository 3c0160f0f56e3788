#pragma once

// Rows of JSONL as other programs call their keys: Alpaca's and ShareGPT's.

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "atoll/data/jsonl/jsonl_line.h"

namespace atl::data {

/// Reads an object with Alpaca's keys (instruction, output, perhaps input) or ShareGPT's
/// (conversations, of from and value, or role and content) into `line`: its kind, text, completion
/// and mapping. `chat`: Alpaca's are a conversation, else a prompt in the words of Stanford's
/// Alpaca. False for an object with neither. Throws Error(kUser) beginning with `origin` for a role
/// or key that would be lost.
bool read_foreign_row(const simdjson::dom::object& object, bool chat, const std::string& origin,
                      JsonlLine& line);

/// Whether read_foreign_row() looks at that key.
bool is_foreign_key(std::string_view key);

/// Whether messages are ShareGPT's: the first of them has "from" and "value", and no "role".
bool has_sharegpt_messages(const simdjson::dom::element& messages);

/// ShareGPT's messages as a JSON array of objects with "role" and "content". Throws as
/// read_foreign_row.
std::string sharegpt_messages(const simdjson::dom::element& messages, const std::string& origin);

/// "its keys are question, answer; read them with --field prompt=question ...": for the end of a
/// message on an object without a key that is asked for.
std::string advice_on_keys(const simdjson::dom::object& object);

}  // namespace atl::data
