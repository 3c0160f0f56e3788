#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"

namespace atl::nn {

/// Reads a config.json field by field and remembers which were asked for. Of a field that nobody
/// asked for, finish() says whether it may be passed over: see nn/models/bookkeeping.h.
/// Every error is an Error(kUser) or Error(kDamaged) naming the file and the field.
class ConfigReader {
 public:
  /// Throws Error(kDamaged) when `json` is not a JSON object.
  ConfigReader(std::string_view json, std::string origin);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  // The two-argument forms give `fallback` when the field is absent or null.
  std::int64_t integer(const char* field);
  std::int64_t integer(const char* field, std::int64_t fallback);
  double number(const char* field);
  double number(const char* field, double fallback);
  bool boolean(const char* field, bool fallback);
  std::string text(const char* field);
  std::string text(const char* field, const std::string& fallback);
  /// A list of texts; empty when absent or null.
  std::vector<std::string> texts(const char* field);
  /// A list of numbers; empty when absent or null.
  std::vector<double> numbers(const char* field);
  /// A list of whole numbers; empty when absent or null.
  std::vector<std::int64_t> integers(const char* field);
  /// An id, or the first of a list that is one of vocab_size tokens; -1 when there is none, it is
  /// null or -1, or none of them is: transformers saves small models with the ids of large ones.
  std::int64_t token_id(const char* field, std::int64_t vocab_size);

  /// The object that a field holds, or nothing when it is absent or null. Its fields are checked by
  /// its own finish().
  std::unique_ptr<ConfigReader> object(const char* field);

  /// Whether the field is there, be it null: some fields' absence and null say different things.
  bool contains(const char* field) const;
  /// Whether the field is absent or null.
  bool is_null(const char* field) const;
  /// The error for a field whose value atoll does not compute: names file, field and value, then
  /// says `why`.
  Error refused(const char* field, std::string_view why) const;
  /// Refuses a field that is there with any value but null or the JSON text `allowed`.
  void only(const char* field, std::string_view allowed);
  /// Fields that say nothing about what training or inference in f32 computes.
  void ignore(std::initializer_list<const char*> fields);
  /// Throws Error(kUser) naming the first field that was neither read nor ignored and could change
  /// what is computed: an object, a list, or one that is named like a part of an architecture, but
  /// for null and false. Others that nobody knows are named in one warning.
  void finish() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::nn
