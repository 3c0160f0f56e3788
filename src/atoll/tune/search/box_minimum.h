#pragma once

#include <functional>
#include <vector>

namespace atl::tune {

/// A box, and when to stop.
struct BoxOptions {
  std::vector<double> low, high;
  int max_iterations = 100;
  double tolerance = 1e-6;  ///< of the projected gradient, in any coordinate
};

/// Gives a function's value and writes its gradient.
using Differentiable = std::function<double(const std::vector<double>& x, std::vector<double>& g)>;

/// Goes downhill from `x` inside a box and returns the value where it ends; `x` becomes that point.
/// L-BFGS on the coordinates that are free, with projected backtracking (Bertsekas 1982; Nocedal
/// and Wright 2006, section 7.2). A value that is not finite counts as infinitely high.
double box_minimum(const Differentiable& f, std::vector<double>& x, const BoxOptions& options);

}  // namespace atl::tune
