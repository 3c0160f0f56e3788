#pragma once

// The versions of Unicode that Hugging Face's tokenizers normalizes by, whatever the system's
// utf8proc has: forms as in Unicode 9.0, lower case as in 17.0. tools/golden/unicode_oracle.py asks
// the library.

namespace atl::text {

/// Whether a code point is newer than Unicode 9.0 and takes part in forms since: it must stay as it
/// is, and nothing moves or combines across it.
bool is_inert(char32_t code_point);

/// The lower case of a code point, or itself. U+0130, whose lower case is two, stays.
char32_t lower_case(char32_t code_point);

}  // namespace atl::text
