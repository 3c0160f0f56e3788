#pragma once

#include <memory>

#include "atoll/data/bytes/text_window.h"
#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// The records of a table of CSV (RFC 4180) or TSV, whose first record names the columns; all
/// values are texts. Quoted values may hold separators, line ends and doubled quotes; lines end
/// with LF, CRLF or CR; empty lines are skipped. What separates values is the tab of a .tsv file;
/// else that one of comma, semicolon and tab that the first record has most of. A row is known by
/// its first line. Throws Error(kUser), naming the line, for a record with more or fewer values
/// than columns, a quote that does not end or that something follows, and a column without a name
/// or named twice.
std::unique_ptr<RowSource> open_csv(TextWindow window, IsRead is_read);

}  // namespace atl::data
