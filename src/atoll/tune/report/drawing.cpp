#include "atoll/tune/report/drawing.h"

#include <algorithm>
#include <cmath>

namespace atl::tune {

namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

}  // namespace

Drawing::Drawing(const std::string& title, double height) : height_(height) {
  text(kWidth / 2, 22, title, "middle", 15);
}

void Drawing::line(double x1, double y1, double x2, double y2, const std::string& color,
                   double width) {
  body_ += fmt::format(
      "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='{}'/>\n", x1,
      y1, x2, y2, color, width);
}

void Drawing::polyline(const std::vector<std::pair<double, double>>& points,
                       const std::string& color, double width, const std::string& title) {
  std::string list;
  for (const auto& [x, y] : points) list += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ += fmt::format(
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='{}'><title>{}</title>"
      "</polyline>\n",
      list, color, width, escaped(title));
}

void Drawing::box(double x, double y, double width, double height, const std::string& color) {
  body_ += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>\n",
                       x, y, width, height, color);
}

void Drawing::dot(double x, double y, const std::string& color, const std::string& title) {
  body_ +=
      fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'><title>{}</title></circle>\n", x,
                  y, color, escaped(title));
}

void Drawing::text(double x, double y, const std::string& what, const char* anchor, int size) {
  body_ += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}' font-size='{}'>{}</text>\n", x,
                       y, anchor, size, escaped(what));
}

std::string Drawing::svg() const {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif'>\n<rect width='{0}' height='{1}' fill='white'/>\n{2}</svg>\n",
      kWidth, height_, body_);
}

std::string color_of(double quality) {
  const auto mix = [&](int bad, int good) {
    return static_cast<int>(std::lround(bad + quality * (good - bad)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(205, 31), mix(205, 98), mix(210, 168));
}

Axis Axis::of(std::vector<double> values, double at_low, double at_high) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  Axis axis = {0, 1, at_low, at_high};
  if (values.empty()) return axis;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  axis.low = *low;
  axis.high = *high > *low ? *high : *low + 1;
  return axis;
}

}  // namespace atl::tune
