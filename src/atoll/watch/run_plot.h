#pragma once

// `atoll runs plot`: curves as text or SVG.

#include <string>
#include <vector>

#include "atoll/watch/run_reader.h"

namespace atl::watch {

/// What the horizontal axis is.
enum class PlotAxis : std::uint8_t { kStep, kTokens, kHours };

/// "step", "tokens" or "hours"; throws Error(kUser) for another word.
PlotAxis plot_axis(const std::string& name);

/// How curves are drawn.
struct PlotOptions {
  std::string metric = "loss";
  PlotAxis x = PlotAxis::kStep;
  double smooth = 0;   ///< part of the value before that stays, 0 to below 1; does not cross gaps
  bool log_y = false;  ///< values above 0 alone are drawn then
  int columns = 100, rows = 24;  ///< of text
};

/// The curves of one metric in a frame of characters, a letter a run. Throws Error(kUser) where no
/// run has the metric.
std::string plot_text(const std::vector<RunData>& runs, const PlotOptions& options);

/// The same as an SVG file: a line through the means, a band from lowest to highest, a mark where
/// values are not finite. Text of runs is escaped.
std::string plot_svg(const std::vector<RunData>& runs, const PlotOptions& options);

/// `text` for HTML and SVG: none of its characters is markup.
std::string escape_markup(const std::string& text);

}  // namespace atl::watch
