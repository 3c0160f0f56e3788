// What a launch and an agent that joins it are sent by the other: an offer, and lines.

#include "atoll/launch/offer.h"

#include "fuzz.h"

namespace {

using namespace atl::launch;

// What is taken must be what its text says: nothing of it may be lost on the way.
void check_offer(std::string_view text) {
  atl::fuzz::expect_result_or_refusal([&] {
    const std::string again = format_offer(parse_offer(text));
    if (format_offer(parse_offer(again)) != again) std::abort();
  });
}

void check_lines(std::string text) {
  while (const std::optional<std::string> line = take_line(text)) {
    if (const auto order = parse_order(*line)) {
      if (parse_order(format_order(*order)) != order) std::abort();
      if (rank_flags(*order, "tcp://127.0.0.1:1").empty()) std::abort();
    }
    if (const auto end = parse_end(*line)) {
      const auto again = parse_end(format_end(*end));
      const bool is_same =
          again && again->exit_code == end->exit_code && again->signal == end->signal;
      if (!is_same) std::abort();
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = atl::fuzz::text(data, size);
  check_offer(text);
  check_lines(std::string(text));
  return 0;
}
