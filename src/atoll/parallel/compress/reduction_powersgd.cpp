// PowerSGD (Vogels et al. 2019, arXiv 1905.13727). For each gradient matrix M, ranks sum P = M Q,
// make the columns of P orthonormal, and then sum Q = M^T P. The sum of all M is about P Q^T, as
// well as two factors of low rank can approximate it. The next step begins with this Q, so that
// steps are iterations of a power method. A rank's residual is M - P Q^T, with its own M and Q.
// Vectors, embeddings, and matrices that factors would not make smaller are summed uncompressed.

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"
#include "atoll/compress/feedback.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/parallel/compress/factor_kernels.h"
#include "atoll/parallel/compress/reductions.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

constexpr std::int64_t kSmallElements = 1 << 14;  // stretches up to this size are sent with P
constexpr std::int64_t kGridElements = 256;       // that round_residual() rounds together
constexpr float kEpsilon = 1e-20F;                // keeps a column of zeros zero

struct Matrix {
  std::int64_t begin = 0;  // in the flat vector
  std::int64_t rows = 0, cols = 0;
  std::int64_t residual_at = 0;  // in the vector of the residual
  std::int64_t p_at = 0;         // P^T, (r, rows), in the packed vector of its bucket
  std::int64_t q_at = 0;         // Q^T, (r, cols), in the vector of all Q
  std::int64_t number = 0;
  bool is_finite = true;  // the sum of all P, in this step
};

struct Stretch {
  std::int64_t begin = 0, count = 0;  // in the flat vector
  std::int64_t packed_at = -1;        // in the packed vector; -1: not packed, summed in place
};

struct BucketParts {
  std::vector<Matrix> matrices;
  std::vector<Stretch> plain;
  std::int64_t packed = 0;              // elements of the packed vector: small stretches, then P
  std::int64_t q_begin = 0, q_end = 0;  // Q of these matrices in the vector of all Q
  int request = -1;
  Tensor sum;
  std::vector<comm::Work> in_place;
};

// The dot product as eight interleaved sums in double, added in a fixed order.
double dot(const float* a, const float* b, std::int64_t n) {
  std::array<double, 8> columns = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::int64_t c = 0; c < 8; ++c) {
      columns[static_cast<std::size_t>(c)] +=
          static_cast<double>(a[i + c]) * static_cast<double>(b[i + c]);
    }
  }
  double sum = 0;
  for (const double column : columns) sum += column;
  for (; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Makes the r rows of x, each of n, orthogonal and of length 1 or 0 (Gram-Schmidt).
void orthogonalise(float* x, std::int64_t r, std::int64_t n) {
  for (std::int64_t k = 0; k < r; ++k) {
    float* row = x + k * n;
    for (std::int64_t before = 0; before < k; ++before) {
      const float* other = x + before * n;
      const auto along = static_cast<float>(dot(row, other, n));
      for (std::int64_t i = 0; i < n; ++i) row[i] -= along * other[i];
    }
    const auto length = static_cast<float>(std::sqrt(dot(row, row, n)));
    for (std::int64_t i = 0; i < n; ++i) row[i] /= length + kEpsilon;
  }
}

bool all_finite(const float* x, std::int64_t n) {
  return std::all_of(x, x + n, [](float value) { return std::isfinite(value); });
}

class PowerSgd final : public CompressedReduction {
 public:
  PowerSgd(const FlatLayout& layout, int rank, const CompressionOptions& options)
      : layout_(layout), rank_(rank), r_(options.rank), feedback_(options.feedback) {
    auto range = layout.ranges().begin();
    for (const Bucket& bucket : layout.buckets()) {
      BucketParts& parts = buckets_.emplace_back();
      parts.q_begin = q_elements_;
      for (; range != layout.ranges().end() && range->begin < bucket.end; ++range) {
        is_smaller(*range) ? add_matrix(*range, parts) : add_plain(*range, parts);
      }
      for (Stretch& stretch : parts.plain) {
        if (stretch.count > kSmallElements) continue;
        stretch.packed_at = parts.packed;
        parts.packed += stretch.count;
      }
      for (Matrix& matrix : parts.matrices) {
        matrix.p_at = parts.packed;
        parts.packed += r_ * matrix.rows;
      }
      parts.q_end = q_elements_;
      std::vector<FactorKernels::Matrix> matrices;
      for (const Matrix& x : parts.matrices) {
        matrices.push_back({x.begin, x.rows, x.cols, x.residual_at, x.p_at, x.q_at});
      }
      kernels_.emplace_back(r_, bucket.begin, std::move(matrices));
    }
  }

  void request(MemoryPlan& plan) override {
    if (feedback_) {
      residual_request_ = plan.request_forever("residual of gradients", "residual",
                                               Spec{Dtype::kF32, {residual_}}.bytes());
    }
    q_request_ =
        plan.request_forever("factors", "codes", Spec{Dtype::kF32, {2 * q_elements_}}.bytes());
    for (BucketParts& parts : buckets_) {
      parts.request =
          plan.request_forever("factors", "codes", Spec{Dtype::kF32, {parts.packed}}.bytes());
    }
    for (FactorKernels& kernels : kernels_) kernels.request(plan);
  }

  void bind(const Arena& arena) override {
    if (feedback_) residual_memory_ = arena.tensor(residual_request_, {Dtype::kF32, {residual_}});
    const Tensor both = arena.tensor(q_request_, {Dtype::kF32, {2 * q_elements_}});
    q_ = both.rows(0, q_elements_);
    q_sum_ = both.rows(q_elements_, 2 * q_elements_);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      BucketParts& parts = buckets_[b];
      parts.sum = arena.tensor(parts.request, {Dtype::kF32, {parts.packed}});
      kernels_[b].bind(arena, parts.sum, q_, q_sum_, residual_memory_);
      for (const Matrix& matrix : parts.matrices) draw(matrix);
    }
  }

  comm::Work start(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients) override {
    BucketParts& parts = buckets_[b];
    const std::int64_t first = layout_.buckets()[b].begin;
    for (const Stretch& stretch : parts.plain) {
      const Tensor here =
          gradients.rows(stretch.begin - first, stretch.begin - first + stretch.count);
      if (stretch.packed_at < 0) {
        parts.in_place.push_back(group.start_all_reduce(here));
      } else {
        ops::copy(run, here, packed_rows(parts, stretch));
      }
    }
    if (!is_on_host(gradients)) {
      kernels_[b].project(run, gradients);
    } else {
      for (const Matrix& matrix : parts.matrices) {
        multiply(run, matrix, gradients.data<float>() + matrix.begin - first,
                 packed(parts, matrix.p_at));
      }
    }
    if (parts.packed == 0) return {};
    return group.start_all_reduce(parts.sum);
  }

  comm::Work next(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients,
                  const Tensor& /*mine*/, bool /*everybody_needs_it*/) override {
    BucketParts& parts = buckets_[b];
    const std::int64_t first = layout_.buckets()[b].begin;
    for (const Stretch& stretch : parts.plain) {
      if (stretch.packed_at < 0) continue;
      ops::copy(run, packed_rows(parts, stretch),
                gradients.rows(stretch.begin - first, stretch.begin - first + stretch.count));
    }
    if (!is_on_host(gradients)) {
      kernels_[b].leave_residual(run, gradients);
    } else {
      for (Matrix& matrix : parts.matrices) {
        leave_residual(run, matrix, gradients.data<float>() + matrix.begin - first,
                       packed(parts, matrix.p_at));
      }
    }
    for (comm::Work& work : parts.in_place) work.wait();
    parts.in_place.clear();
    if (parts.q_begin == parts.q_end) return {};
    return group.start_all_reduce(q_sum_.rows(parts.q_begin, parts.q_end));
  }

  void end(Run& run, std::size_t b, const Tensor& gradients) override {
    if (!is_on_host(gradients)) return kernels_[b].restore(run, gradients);
    BucketParts& parts = buckets_[b];
    const std::int64_t first = layout_.buckets()[b].begin;
    for (const Matrix& matrix : parts.matrices) {
      float* to = gradients.data<float>() + matrix.begin - first;
      const float* q = q_sum_.data<float>() + matrix.q_at;
      if (!matrix.is_finite || !all_finite(q, r_ * matrix.cols)) {
        std::fill_n(to, matrix.rows * matrix.cols, std::nanf(""));
        continue;
      }
      put_together(run, matrix, packed(parts, matrix.p_at), q, to);
      float* warm = q_.data<float>() + matrix.q_at;
      std::copy_n(q, r_ * matrix.cols, warm);
      orthogonalise(warm, r_, matrix.cols);
    }
  }

  std::vector<optim::StateTensor> state() const override {
    std::vector<optim::StateTensor> all;
    if (!feedback_) return all;
    for (const BucketParts& parts : buckets_) {
      for (const Matrix& matrix : parts.matrices) {
        const std::int64_t end = matrix.residual_at + matrix.rows * matrix.cols;
        // Matrices that touch are one piece.
        if (!all.empty() && all.back().begin + all.back().tensor.num_elements() == matrix.begin) {
          const std::int64_t begin = matrix.residual_at - all.back().tensor.num_elements();
          all.back().tensor = residual_memory_.rows(begin, end);
        } else {
          all.push_back(
              {residual_name(rank_), matrix.begin, residual_memory_.rows(matrix.residual_at, end)});
        }
      }
    }
    return all;
  }

  std::vector<Tensor> factors() const override {
    std::vector<Tensor> all;
    for (const BucketParts& parts : buckets_) {
      for (const Matrix& matrix : parts.matrices) {
        all.push_back(
            q_.rows(matrix.q_at, matrix.q_at + r_ * matrix.cols).reshaped({r_, matrix.cols}));
      }
    }
    return all;
  }

 private:
  bool is_smaller(const optim::ParamRange& range) const {
    return range.matrix && r_ <= std::min(range.rows, range.cols) &&
           r_ * (range.rows + range.cols) < range.rows * range.cols;
  }

  void add_matrix(const optim::ParamRange& range, BucketParts& parts) {
    parts.matrices.push_back({.begin = range.begin,
                              .rows = range.rows,
                              .cols = range.cols,
                              .residual_at = residual_,
                              .q_at = q_elements_,
                              .number = num_matrices_++});
    residual_ += range.rows * range.cols;
    q_elements_ += r_ * range.cols;
  }

  static void add_plain(const optim::ParamRange& range, BucketParts& parts) {
    const bool touches =
        !parts.plain.empty() && parts.plain.back().begin + parts.plain.back().count == range.begin;
    if (touches) {
      parts.plain.back().count += range.count;
    } else {
      parts.plain.push_back({range.begin, range.count});
    }
  }

  static Tensor packed_rows(const BucketParts& parts, const Stretch& stretch) {
    return parts.sum.rows(stretch.packed_at, stretch.packed_at + stretch.count);
  }
  static float* packed(BucketParts& parts, std::int64_t at) { return parts.sum.data<float>() + at; }

  // The first Q: the same on all ranks.
  void draw(const Matrix& matrix) {
    // Larger than any parameter's number, so that no initial values come from the same stream.
    const auto number = std::uint64_t{1} << 40 | static_cast<std::uint64_t>(matrix.number);
    const RngStream stream(0, RngPurpose::kInit, number);
    const Tensor q = q_.rows(matrix.q_at, matrix.q_at + r_ * matrix.cols);
    write_on_host<float>(q, [&](std::span<float> to) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = stream.normal(i);
      orthogonalise(to.data(), r_, matrix.cols);
    });
  }

  // m += residual, and P^T (r, rows) = Q^T m^T.
  void multiply(Run& run, const Matrix& matrix, float* m, float* p) const {
    const float* q = q_.data<float>() + matrix.q_at;
    const float* residual =
        feedback_ ? residual_memory_.data<float>() + matrix.residual_at : nullptr;
    run.threads().run(matrix.rows, [&](std::int64_t row) {
      float* values = m + row * matrix.cols;
      if (residual != nullptr) {
        for (std::int64_t j = 0; j < matrix.cols; ++j) values[j] += residual[row * matrix.cols + j];
      }
      for (std::int64_t k = 0; k < r_; ++k) {
        p[k * matrix.rows + row] =
            static_cast<float>(dot(values, q + k * matrix.cols, matrix.cols));
      }
    });
  }

  // p is the sum of all P. Makes it orthonormal, computes this rank's Q, and keeps m - P Q^T as the
  // residual.
  void leave_residual(Run& run, Matrix& matrix, const float* m, float* p) {
    float* q = q_sum_.data<float>() + matrix.q_at;
    matrix.is_finite = all_finite(p, r_ * matrix.rows);
    if (!matrix.is_finite) {
      std::fill_n(q, r_ * matrix.cols, 0.0F);
      return;
    }
    orthogonalise(p, r_, matrix.rows);
    constexpr std::int64_t kColumns = 64;
    run.threads().run_chunked(matrix.cols, kColumns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = 0; k < r_; ++k) {
        float* to = q + k * matrix.cols;
        std::fill(to + begin, to + end, 0.0F);
        for (std::int64_t i = 0; i < matrix.rows; ++i) {
          const float factor = p[k * matrix.rows + i];
          for (std::int64_t j = begin; j < end; ++j) to[j] += factor * m[i * matrix.cols + j];
        }
      }
    });
    if (!feedback_ || !all_finite(q, r_ * matrix.cols)) return;
    float* residual = residual_memory_.data<float>() + matrix.residual_at;
    put_together(run, matrix, p, q, residual);
    const std::int64_t n = matrix.rows * matrix.cols;
    constexpr std::int64_t kGrain = 32 * kGridElements;
    run.threads().run_chunked(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) residual[i] = m[i] - residual[i];
      for (std::int64_t i = begin; i < end; i += kGridElements) {
        compress::round_residual(
            {residual + i, static_cast<std::size_t>(std::min(kGridElements, end - i))});
      }
    });
  }

  // to (rows, cols) = P Q^T.
  void put_together(Run& run, const Matrix& matrix, const float* p, const float* q,
                    float* to) const {
    run.threads().run(matrix.rows, [&](std::int64_t row) {
      float* values = to + row * matrix.cols;
      std::fill_n(values, matrix.cols, 0.0F);
      for (std::int64_t k = 0; k < r_; ++k) {
        const float factor = p[k * matrix.rows + row];
        for (std::int64_t j = 0; j < matrix.cols; ++j) values[j] += factor * q[k * matrix.cols + j];
      }
    });
  }

  const FlatLayout& layout_;
  int rank_;
  std::int64_t r_;
  bool feedback_;
  std::int64_t residual_ = 0;  // elements
  std::int64_t q_elements_ = 0;
  std::int64_t num_matrices_ = 0;
  std::vector<BucketParts> buckets_;
  std::vector<FactorKernels> kernels_;  // of each bucket, for a GPU
  int residual_request_ = -1, q_request_ = -1;
  Tensor residual_memory_, q_, q_sum_;
};

}  // namespace

std::unique_ptr<CompressedReduction> make_powersgd(const FlatLayout& layout, int rank,
                                                   const CompressionOptions& options) {
  return std::make_unique<PowerSgd>(layout, rank, options);
}

}  // namespace atl::parallel
