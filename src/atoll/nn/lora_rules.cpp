#include "atoll/nn/lora_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace atl::nn {

namespace {

double scale_of(double alpha, std::int64_t rank, bool rank_stabilized) {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

bool any_called(const std::string& module, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_called(module, name); });
}

std::optional<text::PythonPattern> compiled(const std::string& pattern, const std::string& where) {
  if (pattern.empty()) return std::nullopt;
  return text::PythonPattern(pattern, where);
}

}  // namespace

bool is_called(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

double LoraOptions::scale() const {
  return scale_of(alpha, rank, rank_stabilized);
}

// The patterns around PEFT's are those that it puts there.
LoraRules::LoraRules(const LoraOptions& options, const std::string& where)
    : options_(options),
      target_(compiled(options.target_pattern, where)),
      excluded_(compiled(options.excluded_pattern, where)) {
  for (const std::string& module : options.modules_to_save) {
    saved_.emplace_back(fmt::format(R"((^|.*\.){}($|\..*))", module), where);
  }
  for (const std::string& pattern : options.layer_patterns) {
    layers_.emplace_back(fmt::format(R"((?:^|.*?\.){}\.(?P<idx>\d+)\.)", pattern), where);
  }
  if (layers_.empty()) layers_.emplace_back(R"(.*?\.[^.]*\.(?P<idx>\d+)\.)", where);
  for (const auto& [pattern, rank] : options.ranks) {
    ranks_.emplace_back(fmt::format(R"((.*\.)?({})$)", pattern), where);
  }
  for (const auto& [pattern, alpha] : options.alphas) {
    alphas_.emplace_back(fmt::format(R"((.*\.)?({})$)", pattern), where);
  }
}

bool LoraRules::is_excluded(const std::string& module) const {
  if (excluded_ && excluded_->matches(module)) return true;
  if (any_called(module, options_.excluded)) return true;
  return std::any_of(saved_.begin(), saved_.end(), [&](const text::PythonPattern& pattern) {
    return pattern.matches_beginning(module);
  });
}

bool LoraRules::is_in_layers(const std::string& module) const {
  if (options_.layers.empty()) return true;
  for (const text::PythonPattern& pattern : layers_) {
    const std::optional<std::string> number = pattern.group(module, "idx");
    if (!number) continue;
    std::int64_t index = -1;
    std::from_chars(number->data(), number->data() + number->size(), index);
    return std::find(options_.layers.begin(), options_.layers.end(), index) !=
           options_.layers.end();
  }
  return false;
}

LoraShape LoraRules::shape_of(const std::string& name) const {
  std::int64_t rank = options_.rank;
  double alpha = options_.alpha;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].matches_beginning(name)) continue;
    rank = options_.ranks[i].second;
    break;
  }
  for (std::size_t i = 0; i < alphas_.size(); ++i) {
    if (!alphas_[i].matches_beginning(name)) continue;
    alpha = options_.alphas[i].second;
    break;
  }
  return {rank, scale_of(alpha, rank, options_.rank_stabilized)};
}

std::optional<LoraShape> LoraRules::of_module(const std::string& module, bool in_all_linear) const {
  if (is_excluded(module)) return std::nullopt;
  if (target_) {
    if (!target_->matches(module)) return std::nullopt;
    return shape_of(module);
  }
  const std::vector<std::string>& targets = options_.targets;
  if (targets == std::vector<std::string>{"all-linear"}) {
    if (!in_all_linear) return std::nullopt;
    return shape_of(module);
  }
  // A whole name counts in every block.
  if (std::find(targets.begin(), targets.end(), module) != targets.end()) return shape_of(module);
  if (!any_called(module, targets) || !is_in_layers(module)) return std::nullopt;
  return shape_of(module);
}

std::optional<LoraShape> LoraRules::of_parameter(const std::string& name) const {
  if (!any_called(name, options_.target_parameters)) return std::nullopt;
  return shape_of(name);
}

bool LoraRules::saves(std::string_view module) const {
  for (std::string_view at = module;; at = at.substr(0, at.rfind('.'))) {
    for (const std::string& name : options_.modules_to_save) {
      if (at.ends_with(name)) return true;
    }
    if (at.find('.') == std::string_view::npos) return false;
  }
}

}  // namespace atl::nn
