#pragma once

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/runtime.h"

namespace atl::text::jinja {

/// A piece of an output, in bytes.
struct Piece {
  std::size_t begin;
  std::size_t end;
};

/// What a template wrote.
struct Output {
  std::string text;
  /// What was written inside {% generation %}, in order, without overlaps.
  std::vector<Piece> generated;
  /// The line of a {% generation %} whose output went into a variable, a macro or a filter, so
  /// that its place is not known; 0 if there was none.
  int lost_generation_line = 0;
};

/// Renders a template. `variables` is a dict; `now` is what strftime_now shows, in local time.
/// Throws Error(kUser) naming `origin` and the line, also when a limit is reached.
Output render(const Tree& tree, std::string_view origin, const Value& variables, std::time_t now,
              const Limits& limits = {});

}  // namespace atl::text::jinja
