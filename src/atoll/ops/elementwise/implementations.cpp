#include "atoll/ops/elementwise/elementwise.h"

#include <cstring>

#include "atoll/ops/elementwise/cpu.h"
#include "atoll/ops/elementwise/cuda.h"
#include "atoll/ops/elementwise/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Add {
  Tensor a, b, y;
};
struct AddBias {
  Tensor x, bias, y;
};
struct Scale {
  double factor;
  Tensor x, y;
};
struct Copy {
  Tensor x, y;
};
struct FillZero {
  Tensor x;
};
struct Dropout {
  double p;
  std::int64_t layer;
  Tensor x, y;
  RowPart part;
};
struct SumOfSquares {
  Tensor x;
  double* sum;
};
struct SumsOfSquares {
  Tensor x;
  std::span<const Block> blocks;
  std::span<double> sums;
};

// Bytes in one task of a copy or fill.
constexpr std::int64_t kBytesPerTask = 1 << 18;

constexpr Implementation<Add> kAdd[] = {
    {"cpu",
     [](Run& run, const Add& a) {
       return serve_f32_or_bf16(run, a.y.dtype(), [&] { cpu::add(run, a.a, a.b, a.y); });
     }},
    {"cuda", [](Run& run, const Add& a) { return cuda::add(run, a.a, a.b, a.y); }},
    {"ref",
     [](Run& run, const Add& a) {
       return serve_any_storage(run, a.y.dtype(),
                                [&]<typename T>(T) { ref::add<T>(a.a, a.b, a.y); });
     }},
};

constexpr Implementation<AddBias> kAddBias[] = {
    {"cuda", [](Run& run, const AddBias& a) { return cuda::add(run, a.x, a.bias, a.y); }},
    {"ref",
     [](Run& run, const AddBias& a) {
       return serve_any_storage(run, a.y.dtype(), [&]<typename T>(T) {
         ref::add_bias<T>(run.threads(), a.x, a.bias, a.y);
       });
     }},
};

constexpr Implementation<Scale> kScale[] = {
    {"cpu",
     [](Run& run, const Scale& a) {
       return serve_f32_or_bf16(run, a.y.dtype(), [&] { cpu::scale(run, a.factor, a.x, a.y); });
     }},
    {"cuda", [](Run& run, const Scale& a) { return cuda::scale(run, a.factor, a.x, a.y); }},
    {"ref",
     [](Run& run, const Scale& a) {
       return serve_any_storage(run, a.y.dtype(),
                                [&]<typename T>(T) { ref::scale<T>(a.factor, a.x, a.y); });
     }},
};

// Copies and fills move bytes, so one implementation serves every dtype.
constexpr Implementation<Copy> kCopy[] = {
    {"cpu",
     [](Run& run, const Copy& a) {
       return serve_host(run, [&] {
         const auto bytes = static_cast<std::int64_t>(a.x.bytes());
         run.threads().run_chunked(bytes, kBytesPerTask, [&](std::int64_t begin, std::int64_t end) {
           std::memcpy(static_cast<std::byte*>(a.y.raw()) + begin,
                       static_cast<const std::byte*>(a.x.raw()) + begin,
                       static_cast<std::size_t>(end - begin));
         });
       });
     }},
    {"cuda", [](Run& run, const Copy& a) { return cuda::copy(run, a.x, a.y); }},
};

constexpr Implementation<Copy> kConvert[] = {
    {"cpu",
     [](Run& run, const Copy& a) { return serve_host(run, [&] { cpu::convert(run, a.x, a.y); }); }},
    {"cuda", [](Run& run, const Copy& a) { return cuda::convert(run, a.x, a.y); }},
};

constexpr Implementation<FillZero> kFillZero[] = {
    {"cpu",
     [](Run& run, const FillZero& a) {
       return serve_host(run, [&] {
         const auto bytes = static_cast<std::int64_t>(a.x.bytes());
         run.threads().run_chunked(bytes, kBytesPerTask, [&](std::int64_t begin, std::int64_t end) {
           std::memset(static_cast<std::byte*>(a.x.raw()) + begin, 0,
                       static_cast<std::size_t>(end - begin));
         });
       });
     }},
    {"cuda", [](Run& run, const FillZero& a) { return cuda::fill_zero(run, a.x); }},
};

constexpr Implementation<Dropout> kDropout[] = {
    {"cpu",
     [](Run& run, const Dropout& a) {
       if (a.part.count > 1 && a.x.dim(2) % 4 != 0) return "a part begins within a random block";
       return serve_f32_or_bf16(run, a.x.dtype(),
                                [&] { cpu::dropout(run, a.p, a.layer, a.x, a.y, a.part); });
     }},
    {"cuda",
     [](Run& run, const Dropout& a) { return cuda::dropout(run, a.p, a.layer, a.x, a.y, a.part); }},
    {"ref",
     [](Run& run, const Dropout& a) {
       return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
         ref::dropout<T>(run, a.p, a.layer, a.x, a.y, a.part);
       });
     }},
};

constexpr Implementation<SumsOfSquares> kSumsOfSquares[] = {
    {"cpu",
     [](Run& run, const SumsOfSquares& a) {
       return serve_f32(run, a.x.dtype(),
                        [&] { cpu::sums_of_squares(run, a.x, a.blocks, a.sums); });
     }},
    {"cuda",
     [](Run& run, const SumsOfSquares& a) {
       return cuda::sums_of_squares(run, a.x, a.blocks, a.sums);
     }},
    {"ref",
     [](Run& run, const SumsOfSquares& a) {
       return serve_any_float(run, a.x.dtype(), [&]<typename T>(T) {
         for (std::size_t i = 0; i < a.blocks.size(); ++i) {
           const Block& block = a.blocks[i];
           a.sums[i] = ref::sum_of_squares<T>(a.x.rows(block.begin, block.begin + block.count));
         }
       });
     }},
};

constexpr Implementation<SumOfSquares> kSumOfSquares[] = {
    {"cpu",
     [](Run& run, const SumOfSquares& a) {
       return serve_f32(run, a.x.dtype(), [&] { *a.sum = cpu::sum_of_squares(run, a.x); });
     }},
    {"cuda", [](Run& run, const SumOfSquares& a) { return cuda::sum_of_squares(run, a.x, a.sum); }},
    {"ref",
     [](Run& run, const SumOfSquares& a) {
       return serve_any_float(run, a.x.dtype(),
                              [&]<typename T>(T) { *a.sum = ref::sum_of_squares<T>(a.x); });
     }},
};

}  // namespace

void add(Run& run, Tensor a, Tensor b, Tensor y) {
  check_size("add", y.dtype(), y.num_elements(), {a, b, y});
  dispatch<Add>("add", kAdd, run, {a, b, y}, cost_of({a, b, y}));
}

void add_bias(Run& run, Tensor x, Tensor bias, Tensor y) {
  check_spec("add_bias", x.spec(), {x, y});
  check_spec("add_bias", {x.dtype(), {x.dim(-1)}}, {bias});
  dispatch<AddBias>("add_bias", kAddBias, run, {x, bias, y}, cost_of({x, y}));
}

void scale(Run& run, double factor, Tensor x, Tensor y) {
  check_size("scale", y.dtype(), y.num_elements(), {x, y});
  dispatch<Scale>("scale", kScale, run, {factor, x, y}, cost_of({x, y}));
}

void copy(Run& run, Tensor x, Tensor y) {
  check_size("copy", x.dtype(), x.num_elements(), {x, y});
  dispatch<Copy>("copy", kCopy, run, {x, y}, cost_of({x, y}));
}

void convert(Run& run, Tensor x, Tensor y) {
  if (x.dtype() == y.dtype()) return copy(run, x, y);
  const Dtype other = x.dtype() == Dtype::kBf16 ? Dtype::kF32 : Dtype::kBf16;
  ATOLL_CHECK(x.dtype() == Dtype::kBf16 || x.dtype() == Dtype::kF32, "convert: x is {}",
              x.spec().to_string());
  check_size("convert", x.dtype(), x.num_elements(), {x});
  check_size("convert", other, x.num_elements(), {y});
  dispatch<Copy>("convert", kConvert, run, {x, y}, cost_of({x, y}));
}

void fill_zero(Run& run, Tensor x) {
  check_size("fill_zero", x.dtype(), x.num_elements(), {x});
  dispatch<FillZero>("fill_zero", kFillZero, run, {x}, cost_of({x}));
}

RngStream dropout_stream(std::uint64_t seed, std::int64_t layer, std::int64_t step,
                         std::int64_t sample) {
  constexpr int kStepBits = 48;
  ATOLL_CHECK(layer >= 0 && layer < (std::int64_t{1} << 16) && step >= 0 &&
                  step < (std::int64_t{1} << kStepBits) && sample >= 0,
              "dropout in layer {} at step {} of sample {}", layer, step, sample);
  const auto where = static_cast<std::uint64_t>(layer) << kStepBits;
  return RngStream(seed, RngPurpose::kDropout, where | static_cast<std::uint64_t>(step),
                   static_cast<std::uint64_t>(sample));
}

void dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, RowPart part) {
  ATOLL_CHECK(part.count >= 1 && part.index >= 0 && part.index < part.count, "part {} of {}",
              part.index, part.count);
  ATOLL_CHECK(p >= 0 && p < 1, "dropout: p is {}, it must be in [0, 1)", p);
  ATOLL_CHECK(x.shape().rank() == 3, "dropout: x is {}", x.spec().to_string());
  check_spec("dropout", x.spec(), {x, y});
  dispatch<Dropout>("dropout", kDropout, run, {p, layer, x, y, part}, cost_of({x, y}));
}

void sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks, std::span<double> sums) {
  check_size("sums_of_squares", x.dtype(), x.num_elements(), {x});
  ATOLL_CHECK_EQ(blocks.size(), sums.size());
  for (const Block& block : blocks) {
    ATOLL_CHECK(
        block.begin >= 0 && block.count >= 0 && block.count <= x.num_elements() - block.begin,
        "elements {} to {} of {}", block.begin, block.begin + block.count, x.spec().to_string());
  }
  dispatch<SumsOfSquares>("sums_of_squares", kSumsOfSquares, run, {x, blocks, sums}, cost_of({x}));
}

double sum_of_squares(Run& run, Tensor x) {
  check_size("sum_of_squares", x.dtype(), x.num_elements(), {x});
  double sum = 0;
  dispatch<SumOfSquares>("sum_of_squares", kSumOfSquares, run, {x, &sum}, cost_of({x}));
  return sum;
}

}  // namespace atl::ops
