#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/axis.h"
#include "atoll/nn/layer.h"
#include "atoll/nn/model.h"
#include "atoll/nn/preference_loss.h"

namespace atl::nn {

/// What is known of a sample beside its tokens.
struct SampleFacts {
  double reference = 0;       ///< the log-probability of its answer by the reference model, in nats
  bool is_desirable = false;  ///< of labelled answers
};

/// Where heads find the facts of samples. While `of` is empty, a head gives each token's loss, as
/// without preferences: the references themselves are made so.
struct PreferenceSource {
  /// By Batch::first_sample plus the row. Called on the thread of the pass.
  std::function<SampleFacts(std::int64_t sample)> of;
};

/// Sums over pairs.
struct PreferenceSums {
  double loss = 0;
  double chosen_reward = 0, rejected_reward = 0;
  double num_chosen = 0, num_rejected = 0;  ///< answers that these rewards are of
  double num_pairs = 0, num_right = 0;

  static constexpr std::size_t kCount = 7;
  using Numbers = std::array<double, kCount>;
  /// All of them, the loss first.
  Numbers numbers() const;
  static PreferenceSums of(std::span<const double> numbers);
  PreferenceSums& operator+=(const PreferenceSums& other);
};

/// Positions that a row of a PreferenceHead's batch must have.
inline constexpr std::int64_t kLeastPairContext = 4;

/// The sum of each row of y, (B, T): the losses of answers, where a PreferenceHead has no facts.
std::vector<double> sums_of_rows(const Tensor& y);
/// The sums of a micro-batch whose y a PreferenceHead has made.
PreferenceSums sums_of_pairs(const Tensor& y);

/// A head whose loss is one of pairs of sequences: rows 2 k and 2 k + 1 of a batch.
/// x: (B, T, C), B even, T at least kLeastPairContext  y: (B, T), see sums_of_pairs().
///
/// The loss of a pair is a function of the log-probabilities of its two answers, so each token of
/// an answer has the same factor before its gradient, and that is known only when the whole answer
/// is. The inner head therefore runs twice: over all rows for the log-probabilities, and then over
/// each row for the gradients, with the row's factor in Run::loss_scale. Run::loss_scale itself is
/// one over the positions of the step, as routers have it that weigh losses of their own; a pair
/// has 2 T of them.
class PreferenceHead final : public Layer {
 public:
  /// `inner` is a head that makes each token's loss, and its gradients in the forward pass.
  /// `context`: the ranks that have parts of each sequence; the first of them writes y. Both
  /// `context` and `source` must outlive this.
  PreferenceHead(std::unique_ptr<Layer> inner, const PreferenceOptions& options, Axis* context,
                 std::shared_ptr<const PreferenceSource> source);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  void visit(ParamVisitor& visitor) override { inner_->visit(visitor); }

 private:
  std::vector<SequenceScore> scores(const Pass& pass) const;
  void add_gradients(Run& run, const Pass& pass, const std::vector<PairLoss>& pairs);
  void report(const Pass& pass, const std::vector<PairLoss>& pairs) const;

  std::unique_ptr<Layer> inner_;
  PreferenceOptions options_;
  Axis* context_;
  std::shared_ptr<const PreferenceSource> source_;
};

/// Puts a PreferenceHead around the head of `model`, before its memory is planned and before a
/// pipeline is cut.
void use_preferences(Model& model, const PreferenceOptions& options,
                     std::shared_ptr<const PreferenceSource> source);

}  // namespace atl::nn
