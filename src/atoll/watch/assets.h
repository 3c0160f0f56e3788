#pragma once

#include "atoll/http/asset.h"

namespace atl::watch {

/// All files of the page of `atoll watch`, those in page/.
const std::vector<http::Asset>& assets();

}  // namespace atl::watch
