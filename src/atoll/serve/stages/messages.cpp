#include "atoll/serve/stages/messages.h"

#include <algorithm>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/wire/archive.h"

namespace atl::serve {

template <typename Archive>
void fields(Archive& archive, TokenResult& result) {
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;
  for (const auto& [token, logprob] : result.top) {
    tokens.push_back(token);
    logprobs.push_back(logprob);
  }
  archive(result.token);
  archive(result.logprob);
  archive(tokens);
  archive(logprobs);
  if constexpr (Archive::kReads) {
    if (tokens.size() != logprobs.size()) throw damaged_error("a token without a probability");
    result.top.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) result.top.emplace_back(tokens[i], logprobs[i]);
  }
}

template <typename Archive>
void fields(Archive& archive, PieceResult& result) {
  archive(result.targets);
  archive(result.drawn);
  archive(result.target_errors);
  archive(result.drawn_errors);
  archive(result.hidden);
}

template <typename Archive>
void fields(Archive& archive, StepRoom& room) {
  archive(room.max_positions);
  archive(room.max_rows);
  archive(room.num_blocks);
}

}  // namespace atl::serve

namespace atl::serve::stages {

template <typename Archive>
void fields(Archive& archive, Assignment& a) {
  archive(a.protocol);
  archive(a.server);
  archive(a.epoch);
  archive(a.model);
  archive(a.weights);
  archive(a.first_layer);
  archive(a.end_layer);
  archive(a.room);
  archive(a.vocab_size);
  archive(a.next);
}

template <typename Archive>
void fields(Archive& archive, Ready& ready) {
  archive(ready.epoch);
  archive(ready.bytes_per_step);
}

template <typename Archive>
void fields(Archive& archive, Trouble& trouble) {
  archive(trouble.epoch);
  archive(trouble.why);
  archive(trouble.breaks);
}

template <typename Archive>
void fields(Archive& archive, Beat& beat) {
  archive(beat.sent_ns);
}

template <typename Archive>
void fields(Archive& archive, Greeting& greeting) {
  archive(greeting.epoch);
}

template <typename Archive>
void fields(Archive& archive, PieceMessage& p) {
  archive(p.tokens);
  archive(p.blocks);
  archive(p.targets);
  archive(p.first_position);
  archive(p.first_drawn);
  archive(p.wanted);
  archive(p.wants_hidden);
  archive(p.sampling.temperature);
  archive(p.sampling.top_k);
  archive(p.sampling.top_p);
  archive(p.sampling.seed);
  archive(p.sequence);
  archive(p.top_logprobs);
  archive(p.min_p);
  archive(p.presence_penalty);
  archive(p.frequency_penalty);
  archive(p.repetition_penalty);
  archive(p.bias_tokens);
  archive(p.biases);
  archive(p.counted_tokens);
  archive(p.counts);
  archive(p.allowed);
}

template <typename Archive>
void fields(Archive& archive, StepMessage& step) {
  archive(step.epoch);
  archive(step.number);
  archive(step.pieces);
  archive(step.seconds);
  archive(step.hidden);
}

template <typename Archive>
void fields(Archive& archive, ResultMessage& result) {
  archive(result.epoch);
  archive(result.number);
  archive(result.error);
  archive(result.pieces);
  archive(result.seconds);
}

template <typename Message>
std::string encode(Kind kind, const Message& message) {
  wire::Writer writer;
  writer(kind);
  writer(message);
  return writer.take();
}

template <typename Message>
Message decode(std::string_view frame) {
  wire::Reader reader(frame.substr(1));
  Message message;
  reader(message);
  reader.end();
  return message;
}

template std::string encode(Kind kind, const Assignment& message);
template Assignment decode(std::string_view frame);
template std::string encode(Kind kind, const Ready& message);
template Ready decode(std::string_view frame);
template std::string encode(Kind kind, const Trouble& message);
template Trouble decode(std::string_view frame);
template std::string encode(Kind kind, const Beat& message);
template Beat decode(std::string_view frame);
template std::string encode(Kind kind, const Greeting& message);
template Greeting decode(std::string_view frame);
template std::string encode(Kind kind, const StepMessage& message);
template StepMessage decode(std::string_view frame);
template std::string encode(Kind kind, const ResultMessage& message);
template ResultMessage decode(std::string_view frame);

namespace {

// What a constraint of another process allows.
class FixedMask final : public TokenConstraint {
 public:
  explicit FixedMask(std::vector<std::uint64_t> allowed) : allowed_(std::move(allowed)) {}

  void mask(std::span<std::uint64_t> allowed) override {
    const std::size_t words = std::min(allowed.size(), allowed_.size());
    for (std::size_t i = 0; i < words; ++i) allowed[i] &= allowed_[i];
  }
  void accept(std::int32_t /*token*/) override {}
  bool is_over() const override { return false; }

 private:
  std::vector<std::uint64_t> allowed_;
};

bool has_penalties(const LogitChanges& changes) {
  return changes.repetition_penalty != 1 || changes.presence_penalty != 0 ||
         changes.frequency_penalty != 0;
}

PieceMessage to_message(const StepPiece& piece, std::int64_t vocab_size) {
  PieceMessage message = {.tokens = piece.tokens,
                          .blocks = piece.blocks,
                          .targets = piece.targets,
                          .first_position = piece.first_position,
                          .first_drawn = piece.first_drawn,
                          .wanted = piece.wanted,
                          .wants_hidden = piece.wants_hidden};
  const GenerationRequest& request = *piece.choice.request;
  message.top_logprobs = request.top_logprobs;
  if (piece.first_drawn < 0) return message;
  const LogitChanges& changes = request.changes;
  message.sampling = request.sampling;
  message.sequence = request.sequence;
  message.min_p = changes.min_p;
  message.presence_penalty = changes.presence_penalty;
  message.frequency_penalty = changes.frequency_penalty;
  message.repetition_penalty = changes.repetition_penalty;
  for (const auto& [token, bias] : changes.bias) {
    message.bias_tokens.push_back(token);
    message.biases.push_back(bias);
  }
  if (has_penalties(changes)) {
    for (const auto& [token, count] : *piece.choice.counts) {
      message.counted_tokens.push_back(token);
      message.counts.push_back(count);
    }
  }
  if (request.constraint != nullptr) {
    message.allowed.assign(static_cast<std::size_t>(vocab_size + 63) / 64, ~std::uint64_t{0});
    request.constraint->mask(message.allowed);
  }
  return message;
}

void require(bool holds, const char* what) {
  if (!holds) throw damaged_error("a step with {}", what);
}

bool are_below(std::span<const std::int32_t> ids, std::int64_t end) {
  return std::ranges::all_of(ids, [end](std::int32_t id) { return id >= 0 && id < end; });
}

// Everything that an index is made of.
void check_piece(const PieceMessage& piece, const nn::ModelConfig& config, const StepRoom& room,
                 std::int64_t vocab_size) {
  const std::int64_t rows = std::ssize(piece.tokens);
  require(rows > 0, "a piece without tokens");
  require(piece.first_position >= 0 && piece.first_position <= room.max_positions - rows,
          "positions beyond the model's");
  require(are_below(piece.tokens, config.vocab_size) && are_below(piece.targets, config.vocab_size),
          "tokens beyond the vocabulary");
  require(std::ssize(piece.blocks) >= StepModel::blocks_for(piece.first_position + rows) &&
              are_below(piece.blocks, room.num_blocks),
          "blocks beyond the cache");
  require(piece.wanted <= StepModel::Wanted::kAll, "an unknown wish");
  require(std::ssize(piece.targets) <= rows, "more targets than rows");
  require(piece.first_drawn >= -1 && piece.first_drawn < rows, "draws beyond its rows");
  require(piece.bias_tokens.size() == piece.biases.size() &&
              piece.counted_tokens.size() == piece.counts.size(),
          "lists of different lengths");
  require(are_below(piece.bias_tokens, config.vocab_size), "tokens beyond the vocabulary");
  require(piece.allowed.empty() || std::ssize(piece.allowed) == (vocab_size + 63) / 64,
          "a mask of another length");
}

}  // namespace

Kind kind_of(std::string_view frame) {
  if (frame.empty()) throw damaged_error("an empty message");
  return static_cast<Kind>(frame.front());
}

std::uint32_t protocol_of(std::string_view frame) {
  wire::Reader reader(frame.substr(1));
  std::uint32_t protocol = 0;
  reader(protocol);
  return protocol;
}

StepMessage to_message(const StepOrder& order, std::int64_t vocab_size) {
  StepMessage message = {.epoch = order.epoch, .number = order.number};
  for (const StepPiece& piece : order.pieces) {
    message.pieces.push_back(to_message(piece, vocab_size));
  }
  return message;
}

ReceivedStep::Source::Source(const PieceMessage& piece) : sampler(piece.sampling) {
  request.sampling = piece.sampling;
  request.sequence = piece.sequence;
  request.top_logprobs = piece.top_logprobs;
  LogitChanges& changes = request.changes;
  changes.min_p = piece.min_p;
  changes.presence_penalty = piece.presence_penalty;
  changes.frequency_penalty = piece.frequency_penalty;
  changes.repetition_penalty = piece.repetition_penalty;
  for (std::size_t i = 0; i < piece.biases.size(); ++i) {
    changes.bias.emplace_back(piece.bias_tokens[i], piece.biases[i]);
  }
  for (std::size_t i = 0; i < piece.counts.size(); ++i) {
    counts[piece.counted_tokens[i]] = piece.counts[i];
  }
  if (!piece.allowed.empty()) request.constraint = std::make_unique<FixedMask>(piece.allowed);
}

ReceivedStep::ReceivedStep(StepMessage message, const nn::ModelConfig& config, const StepRoom& room,
                           std::int64_t vocab_size, bool has_input)
    : message_(std::move(message)) {
  std::int64_t rows = 0;
  for (const PieceMessage& piece : message_.pieces) {
    check_piece(piece, config, room, vocab_size);
    rows += std::ssize(piece.tokens);
    const Source& source = sources_.emplace_back(piece);
    pieces_.push_back({.tokens = piece.tokens,
                       .first_position = piece.first_position,
                       .blocks = piece.blocks,
                       .wanted = piece.wanted,
                       .wants_hidden = piece.wants_hidden,
                       .targets = piece.targets,
                       .first_drawn = piece.first_drawn,
                       .choice = {&source.request, &source.sampler, &source.counts}});
  }
  require(rows > 0 && rows <= room.max_rows, "more rows than there is memory for");
  const std::int64_t hidden = has_input ? rows * config.hidden_size : 0;
  require(std::ssize(message_.hidden) == hidden, "hidden states of another shape");
}

}  // namespace atl::serve::stages
