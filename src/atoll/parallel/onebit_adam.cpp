#include "atoll/parallel/onebit_adam.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/compress/feedback.h"

namespace atl::parallel {

namespace {

constexpr std::size_t kScaleBytes = sizeof(float);
constexpr std::size_t kGridElements = 256;  // that round_owed() gets at once
constexpr std::int64_t kSketch = 8192;

std::int64_t code_bytes(std::int64_t elements) {
  return static_cast<std::int64_t>(kScaleBytes) + (elements + 7) / 8;
}

// What a momentum is divided by before its sign is taken, and a sign multiplied with.
struct Units {
  float root_scale = 1;
  float eps = 0;

  float of(float v) const { return std::sqrt(v) * root_scale + eps; }
};

using Values = std::array<float, kBlockElements>;  // of a piece

// The sum of magnitudes, over columns in a fixed order: a loop that vectors can take.
double sum_of_magnitudes(std::span<const float> x) {
  std::array<double, 8> columns = {};
  std::size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    for (std::size_t c = 0; c < 8; ++c) columns[c] += static_cast<double>(std::fabs(x[i + c]));
  }
  double sum = 0;
  for (const double column : columns) sum += column;
  for (; i < x.size(); ++i) sum += static_cast<double>(std::fabs(x[i]));
  return sum;
}

// Writes momenta as their mean magnitude and signs, in Units, and leaves of each what they do not
// say. `v` 0 masks an element.
void encode_signs(std::span<float> momenta, const float* v, const Units& units, std::byte* out) {
  Values scaled;
  std::int64_t unmasked = 0;
  for (std::size_t i = 0; i < momenta.size(); ++i) {
    const bool is_masked = v[i] == 0;
    scaled[i] = is_masked ? 0 : momenta[i] / units.of(v[i]);
    unmasked += is_masked ? 0 : 1;
  }
  const std::span<const float> all = std::span(scaled).first(momenta.size());
  const float scale =
      unmasked == 0 ? 0
                    : static_cast<float>(sum_of_magnitudes(all) / static_cast<double>(unmasked));
  std::memcpy(out, &scale, kScaleBytes);
  std::byte* bits = out + kScaleBytes;
  std::fill_n(bits, (momenta.size() + 7) / 8, std::byte{0});
  for (std::size_t i = 0; i < momenta.size(); ++i) {
    const bool is_negative = std::signbit(scaled[i]);
    if (is_negative) bits[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
    const float said = (is_negative ? -scale : scale) * units.of(v[i]);
    momenta[i] = v[i] == 0 ? 0 : momenta[i] - said;
  }
  for (std::size_t i = 0; i < momenta.size(); i += kGridElements) {
    compress::round_owed(momenta.subspan(i, std::min(kGridElements, momenta.size() - i)));
  }
}

// The signs times their scale.
class Signs {
 public:
  explicit Signs(const std::byte* code) : bits_(code + kScaleBytes) {
    std::memcpy(&scale_, code, kScaleBytes);
  }
  float operator()(std::size_t i) const {
    const auto bit = std::to_integer<unsigned>(bits_[i / 8]) >> (i % 8) & 1U;
    return bit != 0 ? -scale_ : scale_;
  }

 private:
  const std::byte* bits_;
  float scale_ = 0;
};

// 64 random signs (Steele et al. 2014, SplitMix).
std::uint64_t sign_bits(std::uint64_t number) {
  std::uint64_t z = (number + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

OneBitAdam::OneBitAdam(const optim::OptimizerOptions& options, const FlatLayout& layout,
                       int num_ranks, int rank, std::int64_t warmup)
    : adamw_(optim::make_optimizer(options, layout.flat(), layout.ranges())),
      beta1_(options.number("beta1")),
      beta2_(options.number("beta2")),
      eps_(options.number("eps")),
      weight_decay_(options.number("weight_decay")),
      layout_(layout),
      num_ranks_(num_ranks),
      rank_(rank),
      warmup_(std::max<std::int64_t>(warmup, 1)) {
  ATOLL_CHECK(options.kind == "adamw" && layout.flat().dtype == Dtype::kF32, "1-bit {} of {}",
              options.kind, layout.flat().to_string());
  std::int64_t byte = 0;
  for (const optim::ParamRange& range : layout.ranges()) {
    for (std::int64_t at = 0; at < range.count; at += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, range.count - at);
      pieces_.push_back({range.begin + at, count, byte, range.decay});
      byte += code_bytes(count);
    }
  }
  const auto place_of = [&](std::int64_t piece) {
    return piece == std::ssize(pieces_) ? byte : pieces_[static_cast<std::size_t>(piece)].byte;
  };
  for (int r = 0; r <= num_ranks; ++r) {
    piece_parts_.push_back(std::ssize(pieces_) * r / num_ranks);
    byte_parts_.push_back(place_of(piece_parts_.back()));
  }
  const std::int64_t mine = place_of(end_owned()) - place_of(first_owned());
  for (int r = 0; r <= num_ranks; ++r) received_parts_.push_back(r * mine);
}

bool OneBitAdam::is_frozen(std::int64_t steps_taken) {
  if (frozen_at_ < 0 && steps_taken >= warmup_) frozen_at_ = steps_taken;
  return frozen_at_ >= 0;
}

double OneBitAdam::grad_norm(Run& run, const Tensor& grads) {
  const std::int64_t n = grads.num_elements();
  const float* g = grads.data<float>();
  std::vector<float> sketch(static_cast<std::size_t>(kSketch));
  constexpr std::int64_t kColumns = 64;
  run.threads().run(kSketch / kColumns, [&](std::int64_t task) {
    std::array<float, kColumns> sums = {};
    for (std::int64_t row = task * kColumns; row < n; row += kSketch) {
      const std::uint64_t signs = sign_bits(static_cast<std::uint64_t>(row));
      const std::int64_t count = std::min(kColumns, n - row);
      for (std::int64_t c = 0; c < count; ++c) {
        sums[static_cast<std::size_t>(c)] += (signs >> c & 1U) != 0 ? -g[row + c] : g[row + c];
      }
    }
    std::copy(sums.begin(), sums.end(), sketch.begin() + task * kColumns);
  });
  group_->all_reduce({sketch.data(), {Dtype::kF32, {kSketch}}});
  double squares = 0;
  for (const float one : sketch) squares += static_cast<double>(one) * static_cast<double>(one);
  return std::sqrt(squares);
}

void OneBitAdam::request(MemoryPlan& plan) {
  adamw_->request(plan);
  owed_request_ = plan.request_forever("owed momentum", "owed", layout_.flat().bytes());
  std::int64_t owned = 0;
  for (auto i = first_owned(); i < end_owned(); ++i) {
    owned += pieces_[static_cast<std::size_t>(i)].count;
  }
  owed_sum_request_ = plan.request_forever("owed momentum, as its owner", "owed",
                                           Spec{Dtype::kF32, {owned}}.bytes());
  codes_request_ = plan.request_forever(
      "signs", "codes", static_cast<std::size_t>(byte_parts_.back() + received_parts_.back()));
}

void OneBitAdam::bind(const Arena& arena) {
  adamw_->bind(arena);
  owed_ = arena.tensor(owed_request_, layout_.flat());
  std::int64_t owned = 0;
  for (auto i = first_owned(); i < end_owned(); ++i) {
    owned += pieces_[static_cast<std::size_t>(i)].count;
  }
  owed_sum_ = arena.tensor(owed_sum_request_, {Dtype::kF32, {owned}});
  const std::int64_t sent = byte_parts_.back();
  const std::int64_t all = sent + received_parts_.back();
  const Tensor codes = arena.tensor(codes_request_, {Dtype::kU8, {all}});
  sent_ = codes.rows(0, sent);
  received_ = codes.rows(sent, all);
  bind_moments();
}

// The optimizer's own state, which is of the whole flat vector in one piece.
void OneBitAdam::bind_moments() {
  for (const optim::StateTensor& piece : adamw_->state()) {
    ATOLL_CHECK(piece.begin == 0 && piece.tensor.num_elements() == layout_.flat().shape.dim(0),
                "{} from {}", piece.name, piece.begin);
    (piece.name == "exp_avg" ? m_ : v_) = piece.tensor.data<float>();
  }
  ATOLL_CHECK(m_ != nullptr && v_ != nullptr);
}

std::vector<optim::StateTensor> OneBitAdam::state() const {
  std::vector<optim::StateTensor> all = adamw_->state();
  all.push_back({owed_name(rank_), 0, owed_});
  if (first_owned() == end_owned()) return all;
  // Pieces cover the flat vector, so that neighbours touch.
  all.push_back({kOwedSum, pieces_[static_cast<std::size_t>(first_owned())].begin, owed_sum_});
  return all;
}

void OneBitAdam::update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) {
  if (frozen_at_ < 0) return adamw_->update(run, args, values, grads);
  ATOLL_CHECK(group_ != nullptr && group_->size() == num_ranks_ && group_->rank() == rank_,
              "not connected");
  send_own(run, args, grads.data<float>());
  group_->all_to_all(sent_, byte_parts_, received_, received_parts_);
  send_sums(run);
  group_->all_gather(sent_, byte_parts_);
  apply(run, args, values.data<float>());
}

namespace {

Units units_of(double beta2, double eps, std::int64_t updates) {
  const double correction = 1 - std::pow(beta2, static_cast<double>(updates));
  return {static_cast<float>(1 / std::sqrt(correction)), static_cast<float>(eps)};
}

}  // namespace

void OneBitAdam::send_own(Run& run, const optim::StepArgs& args, const float* grads) {
  const Units units = units_of(beta2_, eps_, frozen_at_);
  const auto beta1 = static_cast<float>(beta1_);
  // The mean over ranks of these is the sum of the ranks' gradients.
  const auto rest = static_cast<float>((1 - beta1_) * args.grad_scale * num_ranks_);
  float* owed = owed_.data<float>();
  run.threads().run(std::ssize(pieces_), [&](std::int64_t number) {
    const Piece& piece = pieces_[static_cast<std::size_t>(number)];
    for (std::int64_t i = piece.begin; i < piece.begin + piece.count; ++i) {
      owed[i] = beta1 * m_[i] + rest * grads[i] + owed[i];
    }
    encode_signs({owed + piece.begin, static_cast<std::size_t>(piece.count)}, v_ + piece.begin,
                 units, static_cast<std::byte*>(sent_.raw()) + piece.byte);
  });
}

void OneBitAdam::send_sums(Run& run) {
  const Units units = units_of(beta2_, eps_, frozen_at_);
  if (first_owned() == end_owned()) return;
  const auto first = pieces_[static_cast<std::size_t>(first_owned())];
  const float share = 1.0F / static_cast<float>(num_ranks_);
  run.threads().run(end_owned() - first_owned(), [&](std::int64_t i) {
    const Piece& piece = pieces_[static_cast<std::size_t>(first_owned() + i)];
    const auto count = static_cast<std::size_t>(piece.count);
    Values sum = {};
    for (std::size_t from = 0; from + 1 < received_parts_.size(); ++from) {
      const Signs signs(static_cast<const std::byte*>(received_.raw()) + received_parts_[from] +
                        piece.byte - first.byte);
      for (std::size_t j = 0; j < count; ++j) sum[j] += signs(j);
    }
    const float* v = v_ + piece.begin;
    float* owed = owed_sum_.data<float>() + piece.begin - first.begin;
    for (std::size_t j = 0; j < count; ++j) owed[j] += sum[j] * share * units.of(v[j]);
    encode_signs({owed, count}, v, units, static_cast<std::byte*>(sent_.raw()) + piece.byte);
  });
}

// Every rank makes the same momentum and the same update of what all were sent.
void OneBitAdam::apply(Run& run, const optim::StepArgs& args, float* values) {
  const Units units = units_of(beta2_, eps_, frozen_at_);
  const double correction = 1 - std::pow(beta1_, static_cast<double>(args.step));
  const auto step_size = static_cast<float>(args.lr / correction);
  run.threads().run(std::ssize(pieces_), [&](std::int64_t number) {
    const Piece& piece = pieces_[static_cast<std::size_t>(number)];
    const Signs signs(static_cast<const std::byte*>(sent_.raw()) + piece.byte);
    const auto decay = static_cast<float>(piece.decay ? args.lr * weight_decay_ : 0);
    for (std::size_t j = 0; j < static_cast<std::size_t>(piece.count); ++j) {
      const std::size_t i = static_cast<std::size_t>(piece.begin) + j;
      const float sign = v_[i] == 0 ? 0 : signs(j);
      m_[i] = sign * units.of(v_[i]);
      values[i] -= step_size * sign + decay * values[i];
    }
  });
}

}  // namespace atl::parallel
