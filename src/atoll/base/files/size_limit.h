#pragma once

#include <string>

namespace atl {

/// "; files may have at most 1.0 MiB here (ulimit -f); ...": why a file may not grow (EFBIG), and
/// what to do. The program ignores SIGXFSZ, which would end it without a word.
std::string size_limit_advice();

}  // namespace atl
