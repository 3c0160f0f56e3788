#pragma once

// `atoll runs plot`: curves as text or SVG.

#include <string>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// The quantity on the horizontal axis.
enum class PlotAxis : std::uint8_t { kStep, kTokens, kHours };

/// "step", "tokens" or "hours"; throws Error(kUser) for another word.
PlotAxis plot_axis(const std::string& name);

/// How curves are drawn.
struct PlotOptions {
  std::string metric = "loss";
  PlotAxis x = PlotAxis::kStep;
  double smooth = 0;             ///< weight of the previous point, 0 to below 1; gaps reset it
  bool log_y = false;            ///< a logarithmic axis, which leaves out values of 0 and below
  int columns = 100, rows = 24;  ///< of a text plot
};

/// The curves of one metric in a frame of characters, with a letter for each run. Throws
/// Error(kUser) where no run has the metric.
std::string plot_text(const std::vector<RunData>& runs, const PlotOptions& options);

/// The same plot as an SVG file: a line through the means, a band from lowest to highest value, a
/// mark where values are not finite. Texts of runs are escaped.
std::string plot_svg(const std::vector<RunData>& runs, const PlotOptions& options);

/// `text` escaped for HTML and SVG.
std::string escape_markup(const std::string& text);

}  // namespace atl::watch
