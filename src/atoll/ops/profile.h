#pragma once

// What each op of a pass did and how long it took, for `atoll bench step`.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/tensor/tensor.h"

namespace atl::ops {

/// What a call must do at least, whatever carries it out.
struct OpCost {
  double flops = 0;  ///< of its products; 0: memory bounds it
  double bytes = 0;  ///< of its operands, each read or written once
  Shape shape;       ///< what tells it from other calls of the op
};

/// The cost of a call on these operands, told apart by the first one's shape. Those that are
/// undefined do not count; one that is read and written stands there twice.
OpCost cost_of(std::initializer_list<Tensor> operands, double flops = 0);

/// Adds up the calls of ops by what they are. For one thread.
class OpProfile {
 public:
  using Clock = std::chrono::steady_clock;

  /// All calls of one op by one implementation on operands of one shape.
  struct Row {
    std::string op, implementation;
    OpCost cost;  ///< of one call
    std::int64_t calls = 0;
    double seconds = 0;  ///< of all calls
  };

  /// Times one call, from its beginning to its end. Ops that it calls are part of it.
  class Call {
   public:
    /// Null: times nothing.
    explicit Call(OpProfile* profile) : profile_(profile) {
      if (profile_ != nullptr && profile_->depth_++ == 0) begin_ = Clock::now();
    }
    ~Call() {
      if (profile_ != nullptr) --profile_->depth_;
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    /// It was carried out, by this implementation.
    void note(std::string_view op, std::string_view implementation, const OpCost& cost) const {
      if (profile_ == nullptr || profile_->depth_ > 1) return;
      profile_->add(op, implementation, cost, Clock::now() - begin_);
    }

   private:
    OpProfile* profile_;
    Clock::time_point begin_;
  };

  /// In the order of their first calls.
  const std::vector<Row>& rows() const { return rows_; }
  /// Forgets everything.
  void clear() { rows_.clear(); }

 private:
  void add(std::string_view op, std::string_view implementation, const OpCost& cost,
           std::chrono::duration<double> took);

  std::vector<Row> rows_;
  int depth_ = 0;
};

}  // namespace atl::ops
