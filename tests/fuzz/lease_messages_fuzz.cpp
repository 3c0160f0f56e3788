// What a tuner and its workers on other machines are sent by each other.

#include "atoll/tune/lease/lease_messages.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl::tune;
  const std::string_view bytes = atl::fuzz::text(data, size);
  atl::fuzz::expect_result_or_refusal([&] {
    const std::string again = encode(decode(bytes));
    // What is taken must be what its encoding says: nothing of it may be lost on the way.
    if (encode(decode(again)) != again) std::abort();
  });
  return 0;
}
