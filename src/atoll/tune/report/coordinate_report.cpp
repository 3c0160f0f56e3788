// The coordinate check as people and programs read it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/tune/report/coordinate_check.h"
#include "atoll/tune/report/drawing.h"

namespace atl::tune {

namespace {

std::string title_of(const CoordinateCheck& check) {
  if (check.parametrisation != "mup") return check.parametrisation + " parametrisation";
  return fmt::format("muP, base width {}, base head_dim {}", check.base_width, check.base_head_dim);
}

}  // namespace

std::string describe(const CoordinateCheck& check) {
  std::string text = fmt::format("{}: RMS change after {} steps\n{:<12}", title_of(check),
                                 check.last_step(), "width");
  for (const std::int64_t width : check.widths) text += fmt::format("{:>10}", width);
  text += "     slope\n";
  for (const std::string& activation : check.activations) {
    text += fmt::format("{:<12}", activation);
    for (const std::int64_t width : check.widths) {
      text += fmt::format("{:>10.3g}", check.rms(width, check.last_step(), activation));
    }
    text += fmt::format("{:>10.3f}\n", check.slope(activation, check.last_step()));
  }
  return text;
}

std::string to_csv(const std::vector<CoordinateCheck>& checks) {
  std::string text = "parametrisation,step,width,activation,rms_change\n";
  for (const CoordinateCheck& check : checks) {
    for (const CoordinateChange& change : check.changes) {
      text += fmt::format("{},{},{},{},{:.6g}\n", check.parametrisation, change.step, change.width,
                          change.activation, change.rms);
    }
  }
  return text;
}

std::string to_svg(const std::vector<CoordinateCheck>& checks) {
  std::vector<double> logs;
  for (const CoordinateCheck& check : checks) {
    for (const CoordinateChange& change : check.changes) {
      if (change.step == check.last_step()) logs.push_back(std::log10(change.rms));
    }
  }
  Drawing drawing("RMS change of activations over width, both logarithmic");
  const double panel = (kWidth - kLeft - kRight) / static_cast<double>(checks.size());
  constexpr double kGap = 90;  // names of lines stand there
  const Axis y = Axis::of(logs, kHeight - kBottom, kTop + 30);
  for (std::size_t k = 0; k < checks.size(); ++k) {
    const CoordinateCheck& check = checks[k];
    const double left = kLeft + panel * static_cast<double>(k);
    const Axis x = {std::log(static_cast<double>(check.widths.front())),
                    std::log(static_cast<double>(check.widths.back())), left, left + panel - kGap};
    drawing.text(left, kTop + 14, title_of(check));
    drawing.line(x.at_low, y.at_low, x.at_high, y.at_low, "#444444");
    drawing.line(x.at_low, y.at_low, x.at_low, y.at_high, "#444444");
    for (const double at : {y.low, y.high}) {
      drawing.text(x.at_low - 6, y(at) + 4, fmt::format("{:.2g}", std::pow(10, at)), "end", 10);
    }
    for (const std::int64_t width : check.widths) {
      drawing.text(x(std::log(static_cast<double>(width))), y.at_low + 16, std::to_string(width),
                   "middle", 10);
    }
    for (std::size_t i = 0; i < check.activations.size(); ++i) {
      const std::string& name = check.activations[i];
      std::vector<std::pair<double, double>> points;
      for (const std::int64_t width : check.widths) {
        points.emplace_back(x(std::log(static_cast<double>(width))),
                            y(std::log10(check.rms(width, check.last_step(), name))));
      }
      const bool is_logits = i + 1 == check.activations.size();
      const double place = static_cast<double>(i) / static_cast<double>(check.activations.size());
      const std::string color = is_logits ? kBest : color_of(1 - place);
      const std::string label =
          fmt::format("{}: slope {:.3f}", name, check.slope(name, check.last_step()));
      drawing.polyline(points, color, 2, label);
      drawing.text(points.back().first + 6, points.back().second + 4, name, "start", 10);
    }
  }
  return drawing.svg();
}

}  // namespace atl::tune
