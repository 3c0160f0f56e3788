#pragma once

// The filters, tests, methods and global functions that templates may use.

#include <string_view>

#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// The filter of this name, or nullptr.
Builtin find_filter(std::string_view name);
/// Why there is none: "is not supported", or "does not exist".
std::string_view why_not_filter(std::string_view name);
/// The test of this name ("is NAME"), or nullptr.
Builtin find_test(std::string_view name);
/// Why there is none: "is not supported", or "does not exist".
std::string_view why_not_test(std::string_view name);
/// The global function of this name, or nullptr.
Builtin find_global(std::string_view name);
/// True for the globals of Jinja2 that are missing here.
bool is_unsupported_global(std::string_view name);

/// What an attribute of a value that is no dict entry turned out to be.
struct MethodLookup {
  enum class Result {
    kFound,        ///< `builtin`, to be called with the value as its self.
    kAbsent,       ///< There is no such method.
    kForbidden,    ///< Jinja2's sandbox forbids it, because it changes the value.
    kUnsupported,  ///< Python has it, atoll does not.
  };
  Result result = Result::kAbsent;
  Builtin builtin = nullptr;
};

/// Looks for a method of strings, lists, tuples, dicts and numbers.
MethodLookup find_method(Kind kind, std::string_view name);

}  // namespace atl::text::jinja
