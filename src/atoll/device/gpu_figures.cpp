#include "atoll/device/gpu_figures.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "atoll/base/error.h"

namespace atl {

namespace {

// NVIDIA's data sheets: A100 (2021), H100 and H200 (2024), Ada architecture (2022), L40S (2023),
// Blackwell HGX (2024). Where these state products with sparsity, half of that.
constexpr GpuFigures kFigures[] = {
    {"A100-SXM4-80GB", 312, 2039, 80, 19.5, 300, 32, 80},
    {"A100-SXM4-40GB", 312, 1555, 40, 19.5, 300, 32, 80},
    {"A100 80GB PCIe", 312, 1935, 80, 19.5, 32, 32, 80},
    {"A100-PCIE-40GB", 312, 1555, 40, 19.5, 32, 32, 80},
    {"H100 80GB HBM3", 989, 3350, 80, 67, 450, 64, 90},
    {"H100 PCIe", 756, 2000, 80, 51, 64, 64, 90},
    {"H200", 989, 4800, 141, 67, 450, 64, 90},
    {"RTX 4090", 165, 1008, 24, 82.6, 32, 32, 89},
    {"L40S", 362, 864, 48, 91.6, 32, 32, 89},
    {"B200", 2250, 8000, 180, 75, 900, 64, 100},
};

// Without case, and with nothing between words.
std::string plain(std::string_view text) {
  std::string all;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) continue;
    all += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return all;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  constexpr std::string_view kBetween = " -_";
  for (std::size_t begin = text.find_first_not_of(kBetween); begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    std::string word = plain(text.substr(begin, end - begin));
    if (!word.empty()) words.push_back(std::move(word));
    begin = text.find_first_not_of(kBetween, end);
  }
  return words;
}

}  // namespace

std::span<const GpuFigures> all_gpu_figures() {
  return kFigures;
}

const GpuFigures* find_gpu_figures(std::string_view name) {
  const GpuFigures* best = nullptr;
  for (const GpuFigures& figures : kFigures) {
    if (name.find(figures.name) == name.npos) continue;
    if (best == nullptr || figures.name.size() > best->name.size()) best = &figures;
  }
  return best;
}

const GpuFigures& gpu_figures_named(std::string_view words) {
  const std::vector<std::string> wanted = words_of(words);
  std::string known;
  for (const GpuFigures& figures : kFigures) {
    const std::string name = plain(figures.name);
    const bool fits = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
      return name.find(word) != name.npos;
    });
    if (fits && !wanted.empty()) return figures;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", figures.name);
  }
  throw user_error("no figures are known of a GPU called \"{}\"; these are: {}", words, known);
}

}  // namespace atl
