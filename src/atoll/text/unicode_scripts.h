#pragma once

// Which characters the pre-tokenizer UnicodeScripts of Hugging Face's library takes for the same
// script, whatever Unicode the system has; tools/golden/unicode_scripts.py asks the library.

#include <optional>
#include <string_view>
#include <vector>

namespace atl::text {

/// The number of the script of a code point; nothing for one that goes with any script: a space,
/// or one that is not assigned.
std::optional<int> script_of(char32_t code_point);

/// The bytes of `text`, which is UTF-8, at which a word of one script begins; ascending. What
/// stands before the first of them is of no script, and the library drops it.
std::vector<std::size_t> script_starts(std::string_view text);

}  // namespace atl::text
