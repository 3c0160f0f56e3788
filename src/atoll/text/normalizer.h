#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// Unicode normalization of the text before it is cut into words.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalForm> forms) : forms_(std::move(forms)) {}

  /// The normalized text: `piece` itself when nothing changes, else a view of `buffer`. Bytes that
  /// are not UTF-8 stay as they are, and stop characters from combining across them.
  std::string_view apply(std::string_view piece, std::string& buffer) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace atl::text
