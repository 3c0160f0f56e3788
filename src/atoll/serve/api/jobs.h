#pragma once

// A file of requests, answered by one generator all at once.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "atoll/serve/api/serving.h"

namespace atl::serve::api {

/// What is answered, and where to.
struct Jobs {
  std::filesystem::path requests;
  std::filesystem::path answers;
  std::string identity;       ///< of model and template: answers of another are not gone on with
  std::uint64_t seed = 0;     ///< request i without a seed gets this + i
  std::int64_t at_once = 16;  ///< requests that are with the generator
};

/// Counts of one run_jobs() call.
struct JobsDone {
  std::int64_t answered = 0;
  std::int64_t failed = 0;  ///< of these: their line says why
  std::int64_t there = 0;   ///< answered by an earlier call
  bool is_whole = false;    ///< all lines are answered
};

/// Answers each line of a file of JSON lines: the body of a request for /v1/chat/completions (it
/// has "messages") or /v1/completions ("prompt"), with one answer; perhaps with a "custom_id", and
/// perhaps as OpenAI's batches have it, in "body". Line i of the answers is for line i of the
/// requests: {"line":i,"custom_id":...,"text":...,"finish_reason":...,"usage":{...}}, or "error"
/// in place of the last three. Where answers are there already the work goes on behind them, with
/// the bytes that it would have had in one go. Ends early when `wants_end` says so, which is asked
/// often. Throws Error(kUser) for a file that cannot be read, and for answers to other requests, or
/// of another model.
JobsDone run_jobs(const Jobs& jobs, const ServedModel& model,
                  const std::function<bool()>& wants_end);

}  // namespace atl::serve::api
