#pragma once

#include <span>
#include <string>

#include "atoll/ops/profile.h"

namespace atl::cli {

/// What the machine can do at most, as it was just measured.
struct Ceilings {
  double flops = 0;  ///< per second: multiply-adds on registers
  double bytes = 0;  ///< per second: read and written by a copy that no cache holds
};

/// The part of the machine's best that a call reaches: its time at the higher of its two ceilings,
/// against the time it took. Above 1 where operands come from a cache.
double roofline_fraction(const ops::OpProfile::Row& row, const Ceilings& ceilings);

/// A table for people, most time first: calls and milliseconds a step, share of the step, GFLOP/s,
/// GB/s and roofline_fraction of each row, and what is left between the ops. `step_seconds`: of
/// each step that `rows` are of.
std::string op_table(std::span<const ops::OpProfile::Row> rows, const Ceilings& ceilings,
                     std::span<const double> step_seconds);

/// Something that was measured, beside the most that it could be.
struct Figure {
  std::string what;
  double value = 0;      ///< the median
  std::string unit;      ///< of value and limit: "GFLOP/s"
  double limit = 0;      ///< as it was measured just then
  std::string limit_is;  ///< "multiply-adds on registers"
  double share = 0;      ///< of the limit
  std::string note;      ///< what else there is to say: "5.21 ms"
};

/// A table for people: a line a figure.
std::string figure_table(std::span<const Figure> figures);
/// The same as one line of JSON: an array of objects with Figure's names, share as "percent".
std::string figures_to_json(std::span<const Figure> figures);

}  // namespace atl::cli
