#pragma once

#include <cstddef>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/jinja/ast.h"
#include "atoll/text/jinja/runtime.h"

namespace atl::text::jinja {

/// A piece of an output, in bytes.
struct Piece {
  std::size_t begin;
  std::size_t end;
};

/// What one turn of a loop wrote whose element is a message.
struct Turn {
  std::size_t message;    ///< Its place in the list of messages that render() was given.
  const Statement* loop;  ///< Of the tree that was rendered.
  std::size_t begin;      ///< In the output, in bytes.
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
  /// The turns that wrote into the output itself, in the order in which they ended. A turn whose
  /// output went into a variable, a macro or a filter is not among them.
  std::vector<Turn> turns;
  /// Where in the output a loop ended, the last time that it ran.
  std::unordered_map<const Statement*, std::size_t> loop_ends;
};

/// Renders a template. `variables` is a dict; `now` is what strftime_now shows, in local time.
/// `messages` are dicts among the variables: Output::turns tells of the loops over them. Throws
/// Error(kUser) naming `origin` and the line, also when a limit is reached.
Output render(const Tree& tree, std::string_view origin, const Value& variables, std::time_t now,
              const Limits& limits = {}, std::span<const Value> messages = {});

}  // namespace atl::text::jinja
