#include "atoll/parallel/compress/sign_exchange.h"

#include <algorithm>
#include <array>

#include "atoll/base/check.h"
#include "atoll/compress/feedback.h"
#include "atoll/parallel/compress/code_pieces.h"
#include "atoll/parallel/compress/compression.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

constexpr std::size_t kScaleBytes = sizeof(float);
constexpr std::size_t kGridElements = 256;  // that round_residual() rounds together

std::size_t code_bytes(std::int64_t elements) {
  return kScaleBytes + static_cast<std::size_t>((elements + 7) / 8);
}

using Values = std::array<float, kBlockElements>;  // of one piece

// The sum of magnitudes as eight interleaved sums in double, added in a fixed order: compilers can
// vectorize this loop.
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

// Writes the scale, then a bit for each element: 1 where it is negative.
void write_code(float scale, std::span<const float> x, std::byte* out) {
  std::memcpy(out, &scale, kScaleBytes);
  std::byte* bits = out + kScaleBytes;
  std::fill_n(bits, (x.size() + 7) / 8, std::byte{0});
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::signbit(x[i])) bits[i / 8] |= std::byte{1} << static_cast<int>(i % 8);
  }
}

static_assert(kBlockElements <= ops::kSignPiece);

// Each sum adds its elements in their order. A GPU sums blocks of rows first: its last bits differ.
void sketch_on_host(Run& run, const Tensor& grads, std::span<float> sketch) {
  const std::int64_t n = grads.num_elements(), numbers = std::ssize(sketch);
  const float* g = grads.data<float>();
  constexpr std::int64_t kColumns = 64;
  run.threads().run(numbers / kColumns, [&](std::int64_t task) {
    std::array<float, kColumns> sums = {};
    for (std::int64_t row = task * kColumns; row < n; row += numbers) {
      const std::uint64_t signs = ops::sketch_signs(static_cast<std::uint64_t>(row));
      const std::int64_t count = std::min(kColumns, n - row);
      for (std::int64_t c = 0; c < count; ++c) {
        sums[static_cast<std::size_t>(c)] += (signs >> c & 1U) != 0 ? -g[row + c] : g[row + c];
      }
    }
    std::copy(sums.begin(), sums.end(), sketch.begin() + task * kColumns);
  });
}

bool has_decay(const FlatLayout& layout, std::int64_t element) {
  const auto after =
      std::partition_point(layout.ranges().begin(), layout.ranges().end(),
                           [&](const optim::ParamRange& range) { return range.begin <= element; });
  return (after - 1)->decay;
}

}  // namespace

SignUnits sign_units(double beta2, double eps, std::int64_t updates) {
  const double correction = 1 - std::pow(beta2, static_cast<double>(updates));
  return {static_cast<float>(1 / std::sqrt(correction)), static_cast<float>(eps)};
}

void encode_signs(std::span<float> momenta, const float* v, const SignUnits& units,
                  std::byte* out) {
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
  write_code(scale, all, out);
  for (std::size_t i = 0; i < momenta.size(); ++i) {
    const float said = (std::signbit(scaled[i]) ? -scale : scale) * units.of(v[i]);
    momenta[i] = v[i] == 0 ? 0 : momenta[i] - said;
  }
  for (std::size_t i = 0; i < momenta.size(); i += kGridElements) {
    compress::round_residual(momenta.subspan(i, std::min(kGridElements, momenta.size() - i)));
  }
}

// A momentum is the rounded product of scale and unit, so its quotient by the unit is at most two
// neighbouring floats away from the scale. The loop tries these floats.
void recover_signs(std::span<const float> momenta, const float* v, const SignUnits& units,
                   std::byte* out) {
  std::size_t first = 0;
  while (first < momenta.size() && v[first] == 0) ++first;
  float scale = 0;
  if (first < momenta.size()) {
    const float quotient = std::fabs(momenta[first]) / units.of(v[first]);
    scale = quotient;
    float candidate = quotient;
    for (int i = 0; i < 2; ++i) candidate = std::nextafter(candidate, 0.0F);
    for (int i = 0; i < 5; ++i) {
      bool fits = true;
      for (std::size_t j = first; fits && j < momenta.size(); ++j) {
        fits = v[j] == 0 || candidate * units.of(v[j]) == std::fabs(momenta[j]);
      }
      if (fits) scale = candidate;
      candidate = std::nextafter(candidate, HUGE_VALF);
    }
  }
  write_code(scale, momenta, out);
}

SignExchange::SignExchange(const FlatLayout& layout, int rank)
    : layout_(layout), rank_(static_cast<std::size_t>(rank)) {
  ATOLL_CHECK(layout.flat().dtype == Dtype::kF32, "signs of {}", layout.flat().to_string());
  const std::vector<BucketCodes> buckets = code_pieces(layout, code_bytes);
  std::int64_t byte = 0;
  piece_parts_.push_back(0);
  byte_parts_.push_back(0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(layout.num_ranks()); ++r) {
    std::int64_t owned = 0;
    for (const BucketCodes& codes : buckets) {
      for (auto i = codes.first_of_parts[r]; i < codes.first_of_parts[r + 1]; ++i) {
        const CodePiece& piece = codes.pieces[i];
        pieces_.push_back({piece.begin, piece.count, byte, owned, has_decay(layout, piece.begin)});
        byte += static_cast<std::int64_t>(code_bytes(piece.count));
        owned += piece.count;
      }
    }
    piece_parts_.push_back(pieces_.size());
    byte_parts_.push_back(byte);
    if (r == rank_) num_owned_ = owned;
  }
  const std::int64_t mine = byte_parts_[rank_ + 1] - byte_parts_[rank_];
  for (int r = 0; r <= layout.num_ranks(); ++r) received_parts_.push_back(r * mine);
}

void SignExchange::request(MemoryPlan& plan) {
  table_request_ =
      plan.request_forever("places of signs", "codes",
                           Spec{Dtype::kI64, {std::ssize(pieces_), ops::kSignColumns}}.bytes());
  residual_request_ =
      plan.request_forever("residual of the momentum", "residual", layout_.flat().bytes());
  residual_sum_request_ = plan.request_forever("residual of the momentum, as its owner", "residual",
                                               Spec{Dtype::kF32, {num_owned_}}.bytes());
  codes_request_ = plan.request_forever(
      "signs", "codes", static_cast<std::size_t>(byte_parts_.back() + received_parts_.back()));
}

void SignExchange::bind(const Arena& arena, std::span<const std::int64_t> held) {
  table_ = arena.tensor(table_request_, {Dtype::kI64, {std::ssize(pieces_), ops::kSignColumns}});
  is_on_gpu_ = !is_on_host(table_);
  write_on_host<std::int64_t>(table_, [&](std::span<std::int64_t> to) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const std::span<std::int64_t> row = to.subspan(i * ops::kSignColumns, ops::kSignColumns);
      row[ops::kSignBegin] = pieces_[i].begin;
      row[ops::kSignCount] = pieces_[i].count;
      row[ops::kSignByte] = pieces_[i].byte;
      row[ops::kSignOwned] = pieces_[i].owned;
      row[ops::kSignHeld] = held.empty() ? pieces_[i].begin : held[i];
      row[ops::kSignDecay] = pieces_[i].decay ? 1 : 0;
    }
  });
  residual_ = arena.tensor(residual_request_, layout_.flat());
  residual_sum_ = arena.tensor(residual_sum_request_, {Dtype::kF32, {num_owned_}});
  const std::int64_t sent = byte_parts_.back();
  const std::int64_t all = sent + received_parts_.back();
  const Tensor codes = arena.tensor(codes_request_, {Dtype::kU8, {all}});
  sent_ = codes.rows(0, sent);
  received_ = codes.rows(sent, all);
}

comm::Group& SignExchange::group() const {
  ATOLL_CHECK(group_ != nullptr && group_->size() == layout_.num_ranks() &&
                  group_->rank() == static_cast<int>(rank_),
              "not connected");
  return *group_;
}

std::span<const SignPiece> SignExchange::owned() const {
  return std::span(pieces_).subspan(piece_parts_[rank_],
                                    piece_parts_[rank_ + 1] - piece_parts_[rank_]);
}

std::span<float> SignExchange::residual(const SignPiece& piece) const {
  return {residual_.data<float>() + piece.begin, static_cast<std::size_t>(piece.count)};
}

std::span<float> SignExchange::residual_sum(const SignPiece& piece) const {
  return {residual_sum_.data<float>() + piece.owned, static_cast<std::size_t>(piece.count)};
}

void SignExchange::average(Run& run, const SignUnits& units, const Moments& moments,
                           float residual_share, const Add& add) {
  comm::Group& ranks = group();
  run.threads().run(std::ssize(pieces_), [&](std::int64_t number) {
    const SignPiece& piece = pieces_[static_cast<std::size_t>(number)];
    for (float& one : residual(piece)) one *= residual_share;
    add(piece, residual(piece));
    encode_signs(residual(piece), moments(piece), units, code(piece));
  });
  ranks.all_to_all(sent_, byte_parts_, received_, received_parts_);
  sum_received(run, units, moments, residual_share);
  gather();
}

Tensor SignExchange::owned_table() const {
  return table_.rows(static_cast<std::int64_t>(piece_parts_[rank_]),
                     static_cast<std::int64_t>(piece_parts_[rank_ + 1]));
}

void SignExchange::average(Run& run, ops::EncodeSigns added) {
  comm::Group& ranks = group();
  added.pieces = table_;
  added.codes = sent_;
  added.residual = {residual_, ops::kSignBegin};
  ops::encode_signs(run, added);
  ranks.all_to_all(sent_, byte_parts_, received_, received_parts_);
  const std::span<const SignPiece> mine = owned();
  ops::encode_signs(run, {.adds = ops::EncodeSigns::Adds::kRanks,
                          .units = added.units,
                          .pieces = owned_table(),
                          .codes = sent_,
                          .v = added.v,
                          .residual = residual_sums(),
                          .residual_share = added.residual_share,
                          .sent = {.codes = received_,
                                   .byte_first = mine.empty() ? 0 : mine.front().byte,
                                   .sources = layout_.num_ranks(),
                                   .source_bytes = received_parts_[1]},
                          .share = 1.0F / static_cast<float>(layout_.num_ranks())});
  gather();
}

void SignExchange::gather() {
  group().all_gather(sent_, byte_parts_);
}

void SignExchange::sum_received(Run& run, const SignUnits& units, const Moments& moments,
                                float residual_share) {
  const std::span<const SignPiece> mine = owned();
  const float share = 1.0F / static_cast<float>(layout_.num_ranks());
  run.threads().run(std::ssize(mine), [&](std::int64_t number) {
    const SignPiece& piece = mine[static_cast<std::size_t>(number)];
    const auto count = static_cast<std::size_t>(piece.count);
    Values sum = {};
    for (std::size_t from = 0; from + 1 < received_parts_.size(); ++from) {
      const Signs signs(static_cast<const std::byte*>(received_.raw()) + received_parts_[from] +
                        piece.byte - mine.front().byte);
      for (std::size_t j = 0; j < count; ++j) sum[j] += signs(j);
    }
    const float* v = moments(piece);
    const std::span<float> residual = residual_sum(piece);
    for (std::size_t j = 0; j < count; ++j) {
      residual[j] = residual[j] * residual_share + sum[j] * share * units.of(v[j]);
    }
    encode_signs(residual, v, units, code(piece));
  });
}

std::vector<optim::StateTensor> SignExchange::state() const {
  std::vector<optim::StateTensor> all = {{residual_name(static_cast<int>(rank_)), 0, residual_}};
  // Pieces that touch become one StateTensor.
  std::int64_t first = 0, end = -1;
  for (const SignPiece& piece : owned()) {
    if (piece.begin != end) {
      first = piece.owned;
      all.push_back({kResidualSum, piece.begin, {}});
    }
    end = piece.begin + piece.count;
    all.back().tensor = residual_sum_.rows(first, piece.owned + piece.count);
  }
  return all;
}

double sketched_norm(Run& run, comm::Group& group, const Tensor& grads, std::int64_t numbers) {
  std::vector<float> sketch(static_cast<std::size_t>(numbers));
  is_on_host(grads) ? sketch_on_host(run, grads, sketch) : ops::sketch(run, grads, sketch);
  group.all_reduce({sketch.data(), {Dtype::kF32, {numbers}}});
  double squares = 0;
  for (const float one : sketch) squares += static_cast<double>(one) * static_cast<double>(one);
  return std::sqrt(squares);
}

}  // namespace atl::parallel
