#pragma once

#include <string>
#include <vector>

#include "atoll/plan/ranking.h"

namespace atl::plan {

/// A small model's recipe as arguments; `more` in place of its own.
inline std::vector<std::string> small_recipe(std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"--run.dir=runs/none",
                                  "--data.text=none.txt",
                                  "--model.hidden_size=32",
                                  "--model.num_hidden_layers=3",
                                  "--model.num_attention_heads=4",
                                  "--model.num_key_value_heads=2",
                                  "--train.context=16",
                                  "--train.batch_size=8"};
  for (const std::string& one : more) {
    const std::string key = one.substr(0, one.find('=') + 1);
    std::erase_if(all, [&](const std::string& own) { return own.starts_with(key); });
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// A machine that does not exist.
inline Figures round_figures() {
  Figures figures;
  figures.machine = "one that is not there";
  figures.ranks_per_host = 4;
  figures.threads = 1;
  figures.memory_gib = 1;
  figures.flops_per_s = 1e11;
  figures.bytes_per_s = 1e10;
  figures.overlap = 0.5;
  figures.speedups = {1.5, 1.25, 1.125, 1};
  figures.host[2] = {2e-5, 2e9, 1e9, 3e9};
  figures.host[4] = {4e-5, 1e9, 5e8, 3e9};
  return figures;
}

inline Question small_question(int ranks, std::vector<std::string> more = {}) {
  return {.recipe = "",
          .overrides = small_recipe(std::move(more)),
          .ranks = ranks,
          .vocab_size = 300,
          .figures = round_figures(),
          .memory_bytes = 1 << 30};
}

}  // namespace atl::plan
