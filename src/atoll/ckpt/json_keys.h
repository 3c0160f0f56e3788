#pragma once

#include <string_view>

namespace atl::ckpt {

/// For files of strangers, before they are parsed: throws Error(kDamaged) when `text` is not JSON,
/// nests more than `max_depth` levels deep, or has a key twice in one object, of which a parser
/// would keep one without a word. Linear in the text.
void check_json_keys(std::string_view text, int max_depth);

}  // namespace atl::ckpt
