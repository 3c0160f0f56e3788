#pragma once

// What the machines that have a model's layers between them say to each other. Each message is a
// frame: its kind, then its fields, as wire/archive.h writes them.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/serve/batch/step_executor.h"

namespace atl::serve::stages {

/// Machines of another number do not understand each other.
inline constexpr std::uint32_t kProtocol = 1;
/// The rows of a step in f32 must fit in a frame.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxQueueBytes = std::size_t{256} << 20;

/// What a frame is, who sends it, and which message it carries.
enum class Kind : std::uint8_t {
  kAssign,   ///< server to stage: Assignment
  kReady,    ///< stage to server: Ready
  kRefused,  ///< stage to server: Trouble
  kPing,     ///< server to stage: Beat
  kPong,     ///< the same back
  kHello,    ///< stage to the next one: Greeting
  kWelcome,  ///< the same back
  kStep,     ///< server to the first stage, and from each stage to the next: StepMessage
  kResult,   ///< the last stage to the server, or any stage where a step fails: ResultMessage
  kTrouble,  ///< stage to server: Trouble with the next stage
};

/// Which layers a stage has, and for which steps.
struct Assignment {
  std::uint32_t protocol = kProtocol;  ///< stays the first field in all versions
  std::uint64_t server = 0;            ///< a random number, that of the same server always
  std::uint64_t epoch = 0;  ///< steps of another one are dropped; no two servers' are alike
  std::string model;        ///< see model_dir::model_identity
  std::string weights;      ///< as --weights
  std::int64_t first_layer = 0, end_layer = 0;
  StepRoom room;
  std::int64_t vocab_size = 0;  ///< ids below it may be drawn
  std::string next;             ///< HOST:PORT of the next stage; empty: this is the last
};

/// The stage has its layers, and the next stage hears it.
struct Ready {
  std::uint64_t epoch = 0;
  std::uint64_t bytes_per_step = 0;  ///< of weights
};

/// What keeps a stage from its work, in one line for people.
struct Trouble {
  std::uint64_t epoch = 0;
  std::string why;
  bool breaks = false;  ///< what was sent may be lost
};

/// A heartbeat, which comes back as it is.
struct Beat {
  std::int64_t sent_ns = 0;  ///< by the clock of the server, which alone reads it
};

/// A stage greets the next one, which answers when it has its layers in the same epoch.
struct Greeting {
  std::uint64_t epoch = 0;
};

/// A StepPiece. All that a choice depends on comes with each step, so that stages remember nothing
/// of a sequence but its keys and values.
struct PieceMessage {
  std::vector<std::int32_t> tokens, blocks, targets;
  std::int64_t first_position = 0, first_drawn = -1;
  StepModel::Wanted wanted = StepModel::Wanted::kNothing;
  bool wants_hidden = false;

  SamplingOptions sampling;
  std::int64_t sequence = 0;
  std::int32_t top_logprobs = -1;
  double min_p = 0, presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<std::int32_t> bias_tokens;
  std::vector<double> biases;
  std::vector<std::int32_t> counted_tokens;  ///< empty where there is no penalty
  std::vector<std::int64_t> counts;
  std::vector<std::uint64_t> allowed;  ///< see TokenConstraint::mask; empty: all are
};

/// A step on its way through the stages.
struct StepMessage {
  std::uint64_t epoch = 0, number = 0;
  std::vector<PieceMessage> pieces;
  std::vector<double> seconds;  ///< that the stages before have computed
  std::vector<float> hidden;    ///< (rows, C), what they gave; empty for the first stage
};

/// What comes back of a step.
struct ResultMessage {
  std::uint64_t epoch = 0, number = 0;
  std::string error;
  std::vector<PieceResult> pieces;
  std::vector<double> seconds;
};

/// The bytes of one of the messages above.
template <typename Message>
std::string encode(Kind kind, const Message& message);

/// Throws Error(kDamaged) for an empty frame.
Kind kind_of(std::string_view frame);

/// The message of a frame. Throws Error(kDamaged) where it is none.
template <typename Message>
Message decode(std::string_view frame);

/// The protocol of a frame of kAssign, whatever its version is.
std::uint32_t protocol_of(std::string_view frame);

/// A step as it is sent; `vocab_size`: how long masks are.
StepMessage to_message(const StepOrder& order, std::int64_t vocab_size);

/// The pieces of a step that came, and what their choices point to.
class ReceivedStep {
 public:
  /// Throws Error(kDamaged) for a step that these layers cannot take: rows, positions or blocks
  /// beyond `room`, tokens beyond the vocabulary, hidden states of another width.
  ReceivedStep(StepMessage message, const nn::ModelConfig& config, const StepRoom& room,
               std::int64_t vocab_size, bool has_input);

  std::span<const StepPiece> pieces() const { return pieces_; }
  const StepMessage& message() const { return message_; }
  /// What is sent on.
  StepMessage take_message() { return std::move(message_); }

 private:
  struct Source {
    explicit Source(const PieceMessage& piece);
    GenerationRequest request;
    TokenSampler sampler;
    TokenCounts counts;
  };

  StepMessage message_;
  std::deque<Source> sources_;  // does not move what pieces_ point to
  std::vector<StepPiece> pieces_;
};

}  // namespace atl::serve::stages
