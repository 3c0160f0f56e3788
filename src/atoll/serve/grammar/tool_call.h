#pragma once

#include <string_view>

#include "atoll/serve/grammar/grammar.h"

namespace atl::serve::grammar {

/// The grammar of an answer that calls tools and says nothing else. `request` is a JSON object:
///   "tools"      a list of {"name": "...", "parameters": a JSON schema}; without "parameters" a
///                tool takes an empty object
///   "tagged"     true: each call stands between <tool_call> and </tool_call>, on a line of its own
///   "arguments"  what the member with the arguments is called: "arguments" or "parameters"
///   "max_calls"  calls at most; the least is one. More than one only where they are tagged.
/// Throws Error(kUser) as schema_grammar(), naming the tool.
Grammar tool_call_grammar(std::string_view request);

}  // namespace atl::serve::grammar
