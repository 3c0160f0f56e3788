#pragma once

#include "atoll/http/asset.h"

namespace atl::serve {

/// All files of the chat page, those in page/.
const std::vector<http::Asset>& page_assets();

/// What the page may do, as the field Content-Security-Policy of every answer has it: run its own
/// files and ask this server. Text of a model that became markup could load nothing.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace atl::serve
