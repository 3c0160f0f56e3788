// Files of a run's directory that others than the trainer may have written: lines of alerts.jsonl
// and metrics.jsonl, and a request for a trace.

#include "atoll/metrics/alert.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/train/report/trace_request.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(atl::fuzz::text(data, size));
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::metrics::Alert alert = atl::metrics::parse_alert(text, "alerts.jsonl:1");
    atl::metrics::parse_alert(atl::metrics::to_jsonl(alert), "again");
    if (atl::metrics::to_line(alert).find('\n') != std::string::npos) std::abort();
  });
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::metrics::Record record = atl::metrics::parse_jsonl(text, "metrics.jsonl:1");
    atl::metrics::parse_jsonl(atl::metrics::to_jsonl(record), "again");
  });
  atl::fuzz::expect_result_or_refusal([&] {
    // What names a file must stay in its directory.
    const std::string id = atl::train::parse_trace_request(text, "trace-request.json").id;
    if (id.find_first_of("/.\\") != std::string::npos) std::abort();
  });
  return 0;
}
