#include "atoll/watch/run_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/error.h"

namespace atl::watch {

namespace {

// A bucket as it is drawn; y is NaN where the bucket has no finite value.
struct DrawnPoint {
  double x = 0, y = 0, low = 0, high = 0;
  bool has_nonfinite = false;
};

struct DrawnCurve {
  std::string name;
  std::vector<DrawnPoint> points;
};

// The range of an axis; settle() makes sure that its ends differ.
struct Scale {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void settle() {
    if (low > high) low = 0, high = 1;
    if (high - low < 1e-12 * std::max(1.0, std::abs(high)))
      high = low + std::max(1e-6, std::abs(low));
  }
  double operator()(double value) const { return (value - low) / (high - low); }
};

double x_of(const CurveBucket& bucket, PlotAxis axis, const RunData& run) {
  if (axis == PlotAxis::kTokens) return static_cast<double>(bucket.tokens);
  if (axis == PlotAxis::kHours) return (bucket.time_s - run.first_time_s) / 3600;
  return static_cast<double>(bucket.last_step);
}

DrawnCurve drawn(const RunData& run, const Curve& curve, const PlotOptions& options) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto y_of = [&](double value) {
    if (!options.log_y) return value;
    return value > 0 ? std::log10(value) : kNone;
  };
  DrawnCurve result = {run.name, {}};
  double before = kNone;
  for (const CurveBucket& bucket : curve.buckets()) {
    DrawnPoint point = {.x = x_of(bucket, options.x, run),
                        .y = kNone,
                        .low = kNone,
                        .high = kNone,
                        .has_nonfinite = bucket.nonfinite > 0};
    if (bucket.count > 0) {
      point.y = y_of(bucket.mean());
      point.low = y_of(bucket.lowest);
      point.high = y_of(bucket.highest);
      if (std::isfinite(before)) point.y = options.smooth * before + (1 - options.smooth) * point.y;
    }
    before = point.y;  // after a gap, smoothing begins anew
    result.points.push_back(point);
  }
  return result;
}

std::vector<DrawnCurve> drawn(const std::vector<RunData>& runs, const PlotOptions& options) {
  if (!(options.smooth >= 0 && options.smooth < 1)) {
    throw user_error("--smooth={}: from 0 to below 1", options.smooth);
  }
  std::vector<DrawnCurve> curves;
  std::string known;
  for (const RunData& run : runs) {
    for (const std::string& name : run.names) known += (known.empty() ? "" : ", ") + name;
    const Curve* curve = run.curve(options.metric);
    curves.push_back(curve == nullptr ? DrawnCurve{run.name, {}} : drawn(run, *curve, options));
  }
  const bool has_any = std::any_of(curves.begin(), curves.end(),
                                   [](const auto& one) { return !one.points.empty(); });
  if (has_any) return curves;
  throw user_error("no run has a metric '{}'; there are {}", options.metric,
                   known.empty() ? "none" : known);
}

const char* name_of(PlotAxis axis) {
  constexpr const char* kNames[] = {"step", "tokens", "hours"};
  return kNames[static_cast<int>(axis)];
}

std::string axis_value(double value, bool is_log) {
  return fmt::format("{:.4g}", is_log ? std::pow(10.0, value) : value);
}

// --- Text

struct Canvas {
  int columns, rows;
  std::vector<std::string> lines;

  Canvas(int width, int height)
      : columns(width),
        rows(height),
        lines(static_cast<std::size_t>(height), std::string(static_cast<std::size_t>(width), ' ')) {
  }
  // x and y are from 0 to 1, y upwards. A cell that another curve has taken is not changed.
  void dot(double x, double y, char mark) {
    const auto column =
        std::clamp(static_cast<int>(std::lround(x * (columns - 1))), 0, columns - 1);
    const auto row = std::clamp(static_cast<int>(std::lround((1 - y) * (rows - 1))), 0, rows - 1);
    char& cell = lines[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
    if (cell == ' ') cell = mark;
  }
};

void draw_text(Canvas& canvas, const DrawnCurve& curve, const Scale& x, const Scale& y, char mark) {
  const DrawnPoint* before = nullptr;
  for (const DrawnPoint& point : curve.points) {
    if (!std::isfinite(point.y)) {
      before = nullptr;
      continue;
    }
    canvas.dot(x(point.x), y(point.y), mark);
    if (before != nullptr) {
      const int between = std::max(1, 2 * canvas.columns / static_cast<int>(curve.points.size()));
      for (int i = 1; i < between; ++i) {
        const double part = static_cast<double>(i) / between;
        canvas.dot(x(before->x + part * (point.x - before->x)),
                   y(before->y + part * (point.y - before->y)), mark);
      }
    }
    before = &point;
  }
}

// --- SVG

constexpr double kWidth = 900, kHeight = 460;
constexpr double kLeft = 70, kRight = 20, kTop = 36, kBottom = 44;
constexpr double kLegendLine = 16;
// Visible on white, and distinct for colour-blind people (Okabe and Ito 2008).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000"};

struct SvgFrame {
  Scale x, y;

  double at_x(double value) const { return kLeft + x(value) * (kWidth - kLeft - kRight); }
  double at_y(double value) const {
    return kHeight - kBottom - y(value) * (kHeight - kTop - kBottom);
  }
};

std::string svg_text(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", x, y, anchor,
                     escape_markup(text));
}

// One stretch of a curve between two gaps.
void draw_piece(std::string& svg, const SvgFrame& frame, const std::vector<DrawnPoint>& piece,
                const char* color) {
  if (piece.empty()) return;
  std::string line, band;
  for (const DrawnPoint& point : piece) {
    line += fmt::format("{:.1f},{:.1f} ", frame.at_x(point.x), frame.at_y(point.y));
    band += fmt::format("{:.1f},{:.1f} ", frame.at_x(point.x), frame.at_y(point.high));
  }
  for (auto it = piece.rbegin(); it != piece.rend(); ++it) {
    band += fmt::format("{:.1f},{:.1f} ", frame.at_x(it->x), frame.at_y(it->low));
  }
  svg += fmt::format("<polygon points='{}' fill='{}' fill-opacity='0.2'/>\n", band, color);
  if (piece.size() == 1) {
    svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>\n",
                       frame.at_x(piece[0].x), frame.at_y(piece[0].y), color);
    return;
  }
  svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'/>\n", line,
                     color);
}

void draw_svg(std::string& svg, const SvgFrame& frame, const DrawnCurve& curve, const char* color) {
  std::vector<DrawnPoint> piece;
  for (const DrawnPoint& point : curve.points) {
    if (point.has_nonfinite) {
      svg += fmt::format(
          "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}' "
          "stroke-dasharray='3 3'><title>not finite</title></line>\n",
          frame.at_x(point.x), kTop, kHeight - kBottom, color);
    }
    const bool is_drawn =
        std::isfinite(point.y) && std::isfinite(point.low) && std::isfinite(point.high);
    if (is_drawn) {
      piece.push_back(point);
      continue;
    }
    draw_piece(svg, frame, piece, color);
    piece.clear();
  }
  draw_piece(svg, frame, piece, color);
}

void draw_axes(std::string& svg, const SvgFrame& frame, const PlotOptions& options) {
  constexpr int kLines = 5;
  for (int i = 0; i <= kLines; ++i) {
    const double part = static_cast<double>(i) / kLines;
    const double x = frame.x.low + part * (frame.x.high - frame.x.low);
    const double y = frame.y.low + part * (frame.y.high - frame.y.low);
    svg += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' stroke='#ddd'/>\n",
                       kLeft, kWidth - kRight, frame.at_y(y), frame.at_y(y));
    svg += svg_text(kLeft - 6, frame.at_y(y) + 4, axis_value(y, options.log_y), "end");
    svg += svg_text(frame.at_x(x), kHeight - kBottom + 18, axis_value(x, false), "middle");
  }
  svg += svg_text((kLeft + kWidth) / 2, kHeight - 8, name_of(options.x), "middle");
}

}  // namespace

PlotAxis plot_axis(const std::string& name) {
  for (const PlotAxis axis : {PlotAxis::kStep, PlotAxis::kTokens, PlotAxis::kHours}) {
    if (name == name_of(axis)) return axis;
  }
  throw user_error("--x={}: one of step, tokens, hours", name);
}

std::string escape_markup(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // XML does not allow other control characters.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string plot_text(const std::vector<RunData>& runs, const PlotOptions& options) {
  constexpr int kMargin = 12;
  const std::vector<DrawnCurve> curves = drawn(runs, options);
  Scale x, y;
  for (const DrawnCurve& curve : curves) {
    for (const DrawnPoint& point : curve.points) {
      x.take(point.x);
      y.take(point.y);
    }
  }
  x.settle();
  y.settle();
  Canvas canvas(std::max(20, options.columns - kMargin), std::max(5, options.rows));
  for (std::size_t i = 0; i < curves.size(); ++i) {
    draw_text(canvas, curves[i], x, y, static_cast<char>('a' + i % 26));
  }
  std::string text = fmt::format("{}{}\n", options.metric, options.log_y ? " (log)" : "");
  for (int row = 0; row < canvas.rows; ++row) {
    const double part = 1 - static_cast<double>(row) / (canvas.rows - 1);
    const bool is_labelled = row % 4 == 0 || row == canvas.rows - 1;
    const std::string label =
        is_labelled ? axis_value(y.low + part * (y.high - y.low), options.log_y) : "";
    std::string line = canvas.lines[static_cast<std::size_t>(row)];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>9} |{}\n", label, line);
  }
  text +=
      fmt::format("{:>9} +{}\n", "", std::string(static_cast<std::size_t>(canvas.columns), '-'));
  const std::string low = axis_value(x.low, false);
  const std::string high = fmt::format("{} {}", name_of(options.x), axis_value(x.high, false));
  text += fmt::format("{:>9}  {}{:>{}}\n", "", low, high,
                      canvas.columns - static_cast<int>(low.size()));
  for (std::size_t i = 0; i < curves.size(); ++i) {
    text += fmt::format("{}  {}{}\n", static_cast<char>('a' + i % 26), curves[i].name,
                        curves[i].points.empty() ? "  (has none)" : "");
  }
  return text;
}

std::string plot_svg(const std::vector<RunData>& runs, const PlotOptions& options) {
  const std::vector<DrawnCurve> curves = drawn(runs, options);
  SvgFrame frame;
  for (const DrawnCurve& curve : curves) {
    for (const DrawnPoint& point : curve.points) {
      frame.x.take(point.x);
      for (const double value : {point.y, point.low, point.high}) frame.y.take(value);
    }
  }
  frame.x.settle();
  frame.y.settle();
  const double height = kHeight + kLegendLine * static_cast<double>(curves.size());
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' font-family='sans-serif' "
      "font-size='12'>\n<rect width='{0}' height='{1}' fill='white'/>\n",
      kWidth, height);
  svg += svg_text(kLeft, 22, options.metric + (options.log_y ? " (log)" : ""), "start");
  draw_axes(svg, frame, options);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const char* color = kColors[i % std::size(kColors)];
    draw_svg(svg, frame, curves[i], color);
    const double y = kHeight + kLegendLine * static_cast<double>(i);
    svg +=
        fmt::format("<rect x='{}' y='{:.1f}' width='14' height='4' fill='{}'/>\n", kLeft, y, color);
    svg += svg_text(kLeft + 22, y + 6, curves[i].name, "start");
  }
  return svg + "</svg>\n";
}

}  // namespace atl::watch
