// What the hub says of a repository: lists of files, links to the next page, times to wait,
// addresses, and the names that people write. The first byte says which.

#include "atoll/hub/api.h"
#include "atoll/hub/cache.h"
#include "atoll/hub/patterns.h"
#include "atoll/hub/retry.h"
#include "fuzz.h"

namespace {

// A path of a file may never lead out of the directory that it is put in.
void require_below(std::string_view path) {
  const auto whole = (std::filesystem::path("/cache") / path).lexically_normal().string();
  if (!whole.starts_with("/cache/")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text = atl::fuzz::text(data + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      atl::fuzz::expect_result_or_refusal([&] {
        for (const atl::hub::RepoFile& file : atl::hub::parse_tree(text, "list")) {
          require_below(file.path);
          require_below(file.etag());
        }
      });
      break;
    case 1:
      atl::fuzz::expect_result_or_refusal(
          [&] { require_below(atl::hub::parse_commit(text, "answer")); });
      break;
    case 2:
      atl::hub::resolved_url("https://huggingface.co/api", atl::hub::next_link(text));
      break;
    case 3: {
      const std::string value(text);
      atl::hub::asked_wait({.fields = {{"retry-after", value}, {"ratelimit", value}}}, 0);
      break;
    }
    case 4:
      if (const auto name = atl::hub::parse_name(text, atl::hub::RepoKind::kModel)) {
        const atl::hub::RepoCache cache({.cache = "/cache"}, *name);
        if (!cache.root().string().starts_with("/cache/models--") &&
            !cache.root().string().starts_with("/cache/datasets--")) {
          std::abort();
        }
        require_below(name->revision);
        if (!name->path.empty()) require_below(name->path);
      }
      break;
    default: {
      const std::size_t half = text.size() / 2;
      atl::hub::fits_pattern(text.substr(0, half), text.substr(half));
    }
  }
  return 0;
}
