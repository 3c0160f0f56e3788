#include "atoll/text/unicode_pins.h"

#include <algorithm>
#include <iterator>

namespace atl::text {

namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

// Every `step`-th code point from first to last becomes the one `difference` behind it.
struct LowerRow {
  char32_t first;
  char32_t last;
  char32_t step;
  int difference;
};

#include "atoll/text/unicode_pins.inc"

// The row that has `code_point` between first and last, or null.
template <typename Row, std::size_t kRows>
const Row* find(const Row (&rows)[kRows], char32_t code_point) {
  const Row* row = std::lower_bound(std::begin(rows), std::end(rows), code_point,
                                    [](const Row& r, char32_t c) { return r.last < c; });
  return row != std::end(rows) && row->first <= code_point ? row : nullptr;
}

}  // namespace

bool is_inert(char32_t code_point) {
  return find(kInert, code_point) != nullptr;
}

char32_t lower_case(char32_t code_point) {
  const LowerRow* row = find(kLower, code_point);
  if (row == nullptr || (code_point - row->first) % row->step != 0) return code_point;
  return static_cast<char32_t>(static_cast<int>(code_point) + row->difference);
}

}  // namespace atl::text
