#include "atoll/tune/schedule/registry.h"

#include <functional>

#include "atoll/base/check.h"
#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/search/cma_es.h"
#include "atoll/tune/search/gp_search.h"
#include "atoll/tune/search/grid.h"
#include "atoll/tune/search/random.h"
#include "atoll/tune/search/tpe.h"

namespace atl::tune {

namespace {

struct SearcherEntry {
  const char* name;
  std::unique_ptr<Searcher> (*make)();
};
template <typename T>
std::unique_ptr<Searcher> make_one() {
  return std::make_unique<T>();
}
constexpr SearcherEntry kSearchers[] = {
    {"gp", make_one<GpSearch>},         {"tpe", make_one<TpeSearch>},
    {"cma-es", make_one<CmaEsSearch>},  {"quasi-random", make_one<QuasiRandomSearch>},
    {"random", make_one<RandomSearch>}, {"grid", make_one<Grid>},
};

struct SchedulerEntry {
  const char* name;
  std::unique_ptr<Scheduler> (*make)(const Rules& rules);
};
template <typename T>
std::unique_ptr<Scheduler> make_one_by(const Rules& rules) {
  return std::make_unique<T>(rules);
}
constexpr SchedulerEntry kSchedulers[] = {
    {"none", make_one_by<NoScheduler>}, {"median", make_one_by<MedianStop>},
    {"asha", make_one_by<Asha>},        {"hyperband", make_one_by<Hyperband>},
    {"pbt", make_one_by<Pbt>},
};

}  // namespace

std::vector<std::string> searcher_names() {
  std::vector<std::string> names;
  for (const SearcherEntry& entry : kSearchers) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Searcher> make_searcher(const std::string& name) {
  for (const SearcherEntry& entry : kSearchers) {
    if (name == entry.name) return entry.make();
  }
  ATOLL_CHECK(false, "there is no searcher {}", name);
  return nullptr;
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names;
  for (const SchedulerEntry& entry : kSchedulers) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Scheduler> make_scheduler(const std::string& name, const Rules& rules) {
  for (const SchedulerEntry& entry : kSchedulers) {
    if (name == entry.name) return entry.make(rules);
  }
  ATOLL_CHECK(false, "there is no scheduler {}", name);
  return nullptr;
}

}  // namespace atl::tune
