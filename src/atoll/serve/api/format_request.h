#pragma once

// The form that a client wants an answer to have.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "atoll/serve/batch/request.h"
#include "atoll/serve/grammar/constraint.h"

namespace atl::serve::api {

/// Makes what keeps an answer in its form, which may end by `end_tokens`; called once for each
/// answer, on any thread. Throws Error(kUser) saying what of the form cannot be kept.
using MakeConstraint = std::function<std::unique_ptr<TokenConstraint>(
    const FormatRequest& format, std::span<const std::int32_t> end_tokens)>;

}  // namespace atl::serve::api
