#pragma once

#include "atoll/cli/command.h"

namespace atl::cli {

/// One thing that `atoll bench` measures. Each stands in a file of its own and is listed in
/// bench.cpp.
struct Benchmark {
  const char* name = "";
  const char* summary = "";      ///< in `atoll bench --help`
  bool takes_overrides = false;  ///< accepts --group.key=value for every key of a recipe
  Action (*add)(ArgumentParser& parser) = nullptr;  ///< declares options on `parser`
};

/// What they measure; each is defined in the file of its name.
Benchmark bench_step();
Benchmark bench_ops();
Benchmark bench_tokenizer();
Benchmark bench_generate();
Benchmark bench_serve();
Benchmark bench_checkpoint();

}  // namespace atl::cli
