#pragma once

#include <memory>

struct pcre2_real_code_8;

namespace atl::text {

/// Frees a compiled pattern.
struct FreePcre2Code {
  void operator()(pcre2_real_code_8* code) const;
};

/// Sole owner of a compiled pattern.
using Pcre2Code = std::unique_ptr<pcre2_real_code_8, FreePcre2Code>;

}  // namespace atl::text
