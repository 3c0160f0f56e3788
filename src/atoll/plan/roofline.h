#pragma once

#include <string>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/plan/figures.h"

namespace atl::plan {

/// All calls of one op in a pass forward and backward over a micro-batch.
struct RooflineRow {
  std::string name;  ///< "mlp_up/forward"
  std::int64_t calls = 0;
  double amount = 0;  ///< of all calls: floating-point operations, or bytes
  bool is_arithmetic = true;
  double seconds = 0;  ///< of all calls, by the figures
};

/// The ops of a micro-batch at the rates of `figures`: blocks, final norm and head, as
/// training_op_cases lists them. Embeddings, sums of residuals and biases are not among them.
std::vector<RooflineRow> roofline(const Figures& figures, const nn::ModelConfig& model,
                                  const OpSizes& sizes);

/// A line each, and their sum.
std::string roofline_table(const std::vector<RooflineRow>& rows);

}  // namespace atl::plan
