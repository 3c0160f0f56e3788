#pragma once

// What suggests the next trial.

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/tune/search/space.h"

namespace atl::tune {

/// A trial as a searcher sees it.
struct Observation {
  int trial = 0;
  Units units;       ///< canonical
  double value = 0;  ///< lower is better; infinity: it failed. Without meaning while it runs
  std::string note;
};

/// All that a suggestion may depend on.
struct SearchView {
  const Space& space;
  std::uint64_t seed = 1;
  int number = 0;                    ///< of the trial that is suggested, from 0
  int startup = 10;                  ///< quasi-random trials that a model needs
  std::vector<Observation> done;     ///< in the order in which their values came
  std::vector<Observation> running;  ///< by number
};

/// A point, and what the searcher wants to be told about it later.
struct Suggestion {
  Units units;
  std::string note;
};

/// Suggests the next trial. A suggestion is a function of the view alone: what a searcher keeps
/// between calls is only a cache, so that a study that was killed goes on as if it had not been.
class Searcher {
 public:
  virtual ~Searcher() = default;
  virtual Suggestion suggest(const SearchView& view) = 0;
  /// How many trials there are to suggest; 0: no end.
  virtual double num_trials(const Space&) const { return 0; }
};

/// A scrambled Halton sequence: each digit permuted by a random permutation of its place (Owen
/// 2017, "A randomized Halton algorithm in R").
class QuasiRandom {
 public:
  QuasiRandom(std::uint64_t seed, std::size_t dimensions);
  /// The `index`-th point.
  Units point(std::uint64_t index) const;

 private:
  struct Base {
    std::uint64_t base;
    std::vector<std::vector<std::uint64_t>> permutations;  // by place
  };
  std::vector<Base> bases_;
};

/// What quasi-random search suggests for the trial of this view: also how models begin.
Units quasi_random_point(const SearchView& view);

/// Whether two points are closer than 1e-3 in every coordinate.
bool is_same_place(const Units& a, const Units& b);

/// Whether a trial of the view, done or running, is at that place.
bool is_taken(const SearchView& view, const Units& units);

}  // namespace atl::tune
