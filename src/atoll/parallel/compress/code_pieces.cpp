#include "atoll/parallel/compress/code_pieces.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::parallel {

std::vector<BucketCodes> code_pieces(const FlatLayout& layout,
                                     const std::function<std::size_t(std::int64_t)>& bytes_of) {
  std::vector<BucketCodes> all;
  auto range = layout.ranges().begin();
  for (const Bucket& bucket : layout.buckets()) {
    BucketCodes& codes = all.emplace_back();
    std::int64_t byte = 0;
    std::size_t part = 0;  // the part that ends next
    codes.byte_parts.push_back(0);
    codes.first_of_parts.push_back(0);
    const auto end_parts = [&](std::int64_t at) {
      while (part + 1 < bucket.parts.size() && bucket.begin + bucket.parts[part + 1] == at) {
        codes.byte_parts.push_back(byte);
        codes.first_of_parts.push_back(codes.pieces.size());
        ++part;
      }
    };
    end_parts(bucket.begin);
    for (; range != layout.ranges().end() && range->begin < bucket.end; ++range) {
      for (std::int64_t at = 0; at < range->count; at += kBlockElements) {
        const std::int64_t count = std::min(kBlockElements, range->count - at);
        codes.pieces.push_back({range->begin + at, count, byte});
        byte += static_cast<std::int64_t>(bytes_of(count));
        end_parts(range->begin + at + count);
      }
    }
    ATOLL_CHECK(codes.byte_parts.size() == bucket.parts.size(), "{} of {} parts end with a piece",
                codes.byte_parts.size(), bucket.parts.size());
  }
  return all;
}

}  // namespace atl::parallel
