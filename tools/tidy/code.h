#pragma once

// A reader of C++ that knows comments, literals, braces and nothing else: enough to find
// declarations at namespace scope and the length of functions.

#include <string>
#include <string_view>
#include <vector>

namespace atl::tidy {

/// The text with comments and the insides of string and character literals as spaces; every other
/// character stays in its line and column. Raw strings are understood.
std::string blank_comments_and_literals(std::string_view text);

/// Something declared or defined outside any function body.
struct Declaration {
  enum class Kind { kType, kFunction, kOther };
  Kind kind = Kind::kOther;
  std::string head;    ///< its text up to ';' or '{', on one line
  int first_line = 0;  ///< counted from 1; the line of its template<> or attribute if it has one
  int last_line = 0;   ///< of the ';' or the closing brace
  bool has_body = false;
  bool member = false;    ///< inside a class, struct, union or enum
  bool internal = false;  ///< inside an anonymous, `internal` or `detail` namespace
};

/// Every declaration in the order of its first line. `code` comes from
/// blank_comments_and_literals(); preprocessor lines are passed over.
std::vector<Declaration> find_declarations(std::string_view code);

}  // namespace atl::tidy
