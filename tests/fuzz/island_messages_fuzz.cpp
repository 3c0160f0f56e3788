// What an island or a coordinator is sent by the other.

#include "atoll/island/protocol/messages.h"
#include "fuzz.h"

namespace {

// What is taken must be what its encoding says: nothing of it may be lost on the way.
template <typename Decode>
void check(std::string_view bytes, Decode decode) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto message = decode(bytes);
    const std::string again = atl::island::encode(message);
    if (atl::island::encode(decode(again)) != again) std::abort();
    if (atl::island::name_of(message.body).empty()) std::abort();
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = atl::fuzz::text(data, size);
  check(bytes, atl::island::decode_from_island);
  check(bytes, atl::island::decode_to_island);
  return 0;
}
