#pragma once

// What a study may change in a recipe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/settings/settings.h"

namespace atl::tune {

/// One setting of a space. Searchers see a number from 0 to 1, its unit coordinate; equal
/// distances of it are equal ratios of the value where `log` says so.
struct Dimension {
  enum class Kind {
    kReal,
    kInteger,   ///< low, low + step, ..., at most high
    kOrdered,   ///< a list of numbers, ascending
    kCategory,  ///< a list of words, or false and true: no order
  };

  std::string key;  ///< "optim.lr"
  Kind kind = Kind::kReal;
  double low = 0, high = 1;
  bool log = false;
  std::int64_t step = 1;              ///< kInteger
  std::vector<SettingValue> choices;  ///< kOrdered, kCategory

  /// The dimension that decides whether this one matters, and its values (as TOML) with which it
  /// does; -1: it always matters.
  int parent = -1;
  std::vector<std::string> when;

  /// How many values there are; 0: it is continuous.
  std::size_t num_values() const;
  /// The value at a unit coordinate, in the type of the setting.
  SettingValue value(double unit) const;
  /// The unit coordinate that stands for value(unit): equal for equal values.
  double snap(double unit) const;
  /// The unit coordinate of the value with this index, from 0 to num_values() - 1.
  double unit_of_index(std::size_t index) const;
  std::size_t index_of(double unit) const;
  /// The unit coordinate of a number, clamped to the ends; for kinds but kCategory.
  double unit_of(double number) const;
};

/// A point of the unit cube, one coordinate a dimension.
using Units = std::vector<double>;

/// Which settings a study changes, and within which bounds.
class Space {
 public:
  Space() = default;
  /// Checks that conditions have no cycle. Throws Error(kUser).
  explicit Space(std::vector<Dimension> dimensions);

  std::size_t size() const { return dimensions_.size(); }
  const Dimension& operator[](std::size_t i) const { return dimensions_[i]; }
  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  /// The index of a key; -1 where it is not in the space.
  int find(const std::string& key) const;

  /// Whether dimension `i` matters at this point.
  bool is_active(std::size_t i, const Units& units) const;
  /// The point that stands for all points with the same settings: each coordinate snapped, those
  /// that do not matter 1/2.
  Units canonical(const Units& units) const;
  /// The settings at a point: key and value of each dimension that matters.
  std::vector<std::pair<std::string, SettingValue>> values(const Units& units) const;
  /// How many different settings there are; 0: infinitely many (or more than 2^53).
  double num_points() const;
  /// The space as a table of a study file.
  std::string to_toml() const;
  /// One line for each dimension, with all that describes it.
  std::string describe() const;

 private:
  std::vector<Dimension> dimensions_;
};

/// The space that the entries "space.*" of a study file describe, with every key checked against
/// `settings`: the registry of a recipe. `origin` is the file, for messages. Throws Error(kUser)
/// for a key that does not exist (with the nearest), bounds the wrong way round or out of range,
/// words a setting cannot be, conditions that cannot hold, and a space without any dimension.
Space parse_space(const std::vector<TomlEntry>& entries, const std::string& origin);

}  // namespace atl::tune
