#pragma once

// What a model learns from comparisons of answers: the losses of pairs of sequences, as functions
// of the log-probabilities of their answers.

#include <cstdint>
#include <span>
#include <vector>

namespace atl::nn {

/// A loss of pairs. Below, h = (chosen - its reference) - (rejected - its reference), of
/// log-probabilities of answers in nats, and s the logistic function.
enum class PreferenceKind {
  kSigmoid,  ///< -(1 - e) log s(beta h) - e log s(-beta h), e = label_smoothing (Rafailov et al.
             ///< 2023, eq. 7; Mitchell 2023, "conservative DPO")
  kRobust,   ///< the same with -e for +e in the second term, over 1 - 2 e (Chowdhury et al. 2024)
  kIpo,      ///< (h - 1 / (2 beta))^2, of log-probabilities a token (Azar et al. 2023, eq. 17)
  kHinge,    ///< max(0, 1 - beta h) (Zhao et al. 2023)
  kOrpo,     ///< -log p - beta log s(log odds ratio), both of means a token (Hong et al. 2024)
  kKto,      ///< labelled answers instead of pairs (Ethayarajh et al. 2024, eq. 8)
};

/// How pairs become a loss.
struct PreferenceOptions {
  PreferenceKind kind = PreferenceKind::kSigmoid;
  double beta = 0.1;           ///< of kOrpo, the weight of the odds ratio
  double label_smoothing = 0;  ///< part of the pairs whose answers are taken to be swapped
  double desirable_weight = 1, undesirable_weight = 1;  ///< of kKto
};

/// The answer of one sequence.
struct SequenceScore {
  double logp = 0;            ///< the sum over its tokens, in nats
  double reference = 0;       ///< the same by the reference model; 0: there is none
  std::int64_t tokens = 0;    ///< 0: the row is empty, and its pair has no loss
  bool is_desirable = false;  ///< of kKto
};

/// The loss of one pair and what follows from it.
struct PairLoss {
  bool counts = false;  ///< false: an empty pair; the rest is 0
  double loss = 0;
  double first_slope = 0, second_slope = 0;       ///< d loss / d logp of its two sequences
  bool has_chosen = false, has_rejected = false;  ///< which of the rewards it has; 0: it has not
  double chosen_reward = 0, rejected_reward = 0;
  bool is_right = false;  ///< the chosen answer has the higher reward
};

/// The losses of the pairs of a micro-batch: sequences 2 k and 2 k + 1, the chosen and the rejected
/// answer to one prompt. Rewards are beta (logp - reference), of kOrpo beta times the mean logp a
/// token. With kKto a pair is an answer and an unrelated answer to the same prompt, of which the
/// second has no gradient and no reward: the mean of logp - reference over the second answers, if
/// above 0, is what an answer's is compared with. An answer that is desirable has a chosen reward,
/// and another a rejected one; it is right where it is on the side of its label.
std::vector<PairLoss> preference_losses(const PreferenceOptions& options,
                                        std::span<const SequenceScore> sequences);

}  // namespace atl::nn
