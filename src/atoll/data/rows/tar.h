#pragma once

#include <memory>
#include <string_view>

#include "atoll/data/bytes/text_window.h"
#include "atoll/data/rows/row_source.h"

namespace atl::data {

/// Whether content begins with the header of a tar (ustar, GNU or pax).
bool begins_like_tar(std::string_view content);

/// The samples of a tar as WebDataset keeps them: members that follow each other and are called the
/// same up to the first dot of their name. A row has the keys of the member KEY.json, an object,
/// and each member of text under what follows the first dot (KEY.caption.txt: "caption.txt"). The
/// only text of a sample whose object has no "text" is its "text" too. Members of other endings are
/// left out, counted and said. Throws Error(kUser), naming the byte, for a damaged header and for a
/// tar that ends too soon.
std::unique_ptr<RowSource> open_tar(TextWindow window);

}  // namespace atl::data
