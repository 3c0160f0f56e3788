#pragma once

#include <memory>
#include <vector>

#include "atoll/metrics/record.h"

namespace atl::metrics {

/// Takes the records of a run and stores them. Called from one thread.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Takes a record; steps never decrease. Throws Error when the record cannot be stored.
  virtual void write(const Record& record) = 0;
  /// Waits until all records that were written are on the disk.
  virtual void flush() = 0;
};

/// Gives every record to each of its sinks, in the order in which they were added.
class FanOut : public Sink {
 public:
  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }
  void write(const Record& record) override {
    for (const auto& sink : sinks_) sink->write(record);
  }
  void flush() override {
    for (const auto& sink : sinks_) sink->flush();
  }

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace atl::metrics
