#pragma once

#include <memory>

#include "atoll/data/bytes/text_window.h"
#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// The lines of JSONL, but blank ones.
std::unique_ptr<RowSource> open_json_lines(TextWindow window);

/// The elements of a file that is one JSON array. What an element is, its reader checks.
std::unique_ptr<RowSource> open_json_array(TextWindow window);

}  // namespace atl::data
