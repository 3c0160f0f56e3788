#include "atoll/tune/trial/simulation.h"

#include <algorithm>

namespace atl::tune {

SimulatedOutcome simulate_study(const Problem& problem, const SimulatedTrials& trials) {
  struct Busy {
    double until;
    int worker;
    Job job;
  };
  SimulatedOutcome outcome;
  Tuner tuner(problem, {}, [&](std::span<const Event> events) {
    outcome.events.insert(outcome.events.end(), events.begin(), events.end());
  });
  std::vector<Busy> busy;
  std::vector<int> free;
  for (int worker = trials.workers; worker > 0; --worker) free.push_back(worker - 1);
  double now = 0;
  for (;;) {
    while (!free.empty()) {
      const std::optional<Job> job = tuner.next();
      if (!job) break;
      const Trial& trial = tuner.history().trial(job->trial);
      outcome.steps += job->step - trial.reached();
      const double seconds = trials.seconds ? trials.seconds(trial, job->step)
                                            : static_cast<double>(job->step - trial.reached());
      busy.push_back({now + seconds, free.back(), *job});
      free.pop_back();
    }
    if (busy.empty()) break;
    const auto first = std::min_element(busy.begin(), busy.end(), [](const Busy& a, const Busy& b) {
      return std::pair(a.until, a.worker) < std::pair(b.until, b.worker);
    });
    const Busy done = *first;
    busy.erase(first);
    free.push_back(done.worker);
    now = done.until;
    const Trial& trial = tuner.history().trial(done.job.trial);
    const Measurement measurement = {.step = done.job.step,
                                     .values = trials.train(trial, done.job.step),
                                     .tokens = done.job.step - trial.reached(),
                                     .seconds = 0};
    tuner.result(done.job.trial, measurement);
  }
  outcome.history = tuner.history();
  outcome.seconds = now;
  return outcome;
}

}  // namespace atl::tune
