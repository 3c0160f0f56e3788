#pragma once

// SVG files: what the pictures of a study are made of.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace atl::tune {

/// Of a picture, and the margins that its axes leave.
constexpr double kWidth = 800, kHeight = 420;
constexpr double kLeft = 70, kRight = 30, kTop = 40, kBottom = 50;

/// An SVG file, with a white ground so that it can be read in dark viewers too.
class Drawing {
 public:
  explicit Drawing(const std::string& title, double height = kHeight);

  void line(double x1, double y1, double x2, double y2, const std::string& color, double width = 1);
  /// `title` is what a pointer over it shows.
  void polyline(const std::vector<std::pair<double, double>>& points, const std::string& color,
                double width, const std::string& title);
  void box(double x, double y, double width, double height, const std::string& color);
  void dot(double x, double y, const std::string& color, const std::string& title);
  /// `anchor`: "start", "middle" or "end".
  void text(double x, double y, const std::string& what, const char* anchor = "start",
            int size = 12);
  /// The file's text.
  std::string svg() const;

 private:
  double height_;
  std::string body_;
};

/// From bad (0) to good (1): grey to blue; the best is orange.
std::string color_of(double quality);
constexpr const char* kBest = "#d9600f";

/// The ends of an axis, apart from each other: `low` is drawn at `at_low`.
struct Axis {
  double low = 0, high = 1;
  double at_low = 0, at_high = 1;

  static Axis of(std::vector<double> values, double at_low, double at_high);
  double operator()(double x) const {
    return at_low + (x - low) / (high - low) * (at_high - at_low);
  }
};

}  // namespace atl::tune
