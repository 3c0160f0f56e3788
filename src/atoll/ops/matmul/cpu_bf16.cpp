#include "atoll/ops/matmul/cpu_bf16.h"

#include <omp.h>

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/matmul/cpu_dnnl.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/convert.h"

namespace atl::ops::cpu {

namespace {

using Md = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

// Long sums are cut into panels, so that a packed piece of b stays in the second-level cache.
constexpr std::int64_t kMaxPanel = 1024;
// The library's layouts pad rows and columns to at most so many.
constexpr std::int64_t kPadding = 64;

/// A thread's room: b packed, c and the bias in f32.
struct Pieces {
  alignas(64) std::byte packed[(kMaxPanel + kPadding) * kMaxBlockCols * sizeof(Bf16)];
  alignas(64) float c[kMaxGroup * kMaxBlockRows * kMaxBlockCols];
  alignas(64) float bias[kMaxBlockCols];
};

static_assert(kMaxBlockCols % kPadding == 0, "a padded piece must fit");

/// One call of the library: rows of op(a) times columns of op(b), c in f32.
struct Block {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t packed_for = 0;  ///< rows of the block that chose b's layout; 0: b is plain
  bool a_transposed = false, b_transposed = false;
  bool bias = false, accumulate = false;

  friend auto operator<=>(const Block&, const Block&) = default;
};

Md rows_of(std::int64_t rows, std::int64_t cols, std::int64_t ld, bool transposed) {
  return transposed ? Md({rows, cols}, Type::bf16, {1, ld}) : Md({rows, cols}, Type::bf16, {ld, 1});
}

Md plain_b(const Block& block) {
  return rows_of(block.k, block.n, block.ldb, block.b_transposed);
}

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const Block& block,
                                      std::int64_t m, const Md& b) {
  dnnl::primitive_attr attributes;
  if (block.accumulate) {
    dnnl::post_ops post_ops;
    post_ops.append_sum(1.0F);
    attributes.set_post_ops(post_ops);
  }
  const Md a = rows_of(m, block.k, block.lda, block.a_transposed);
  const Md c({m, block.n}, Type::f32, {block.ldc, 1});
  if (!block.bias) return {dnnl::matmul::desc(a, b, c), attributes, engine};
  const Md bias({1, block.n}, Type::f32, {block.n, 1});
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
}

/// The layout of b that blocks of `rows` rows like best, whatever is fused.
Md packed_layout(const dnnl::engine& engine, Block block, std::int64_t rows) {
  block.bias = block.accumulate = false;
  const Md any({block.k, block.n}, Type::bf16, dnnl::memory::format_tag::any);
  return describe(engine, block, rows, any).weights_desc();
}

/// A primitive with its arguments, ready for other pointers.
struct Compiled {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// What one thread keeps of the library, which ties a primitive's scratchpad to the thread that
/// made it, and the number of OpenMP's threads to the thread that set it: one, here.
class ThreadState {
 public:
  static ThreadState& mine() {
    thread_local const auto state = std::make_unique<ThreadState>();
    return *state;
  }
  ThreadState() { omp_set_num_threads(1); }

  Pieces& pieces() { return *pieces_; }

  void multiply(const Block& block, const Bf16* a, const void* b, const float* bias, float* c) {
    Compiled& compiled = get(products_, block, [&] {
      const Md layout =
          block.packed_for != 0 ? packed_layout(engine_, block, block.packed_for) : plain_b(block);
      const auto description = describe(engine_, block, block.m, layout);
      Compiled made{dnnl::matmul(description), {}};
      add(made, DNNL_ARG_SRC, description.src_desc());
      add(made, DNNL_ARG_WEIGHTS, layout);
      if (block.bias) add(made, DNNL_ARG_BIAS, description.bias_desc());
      add(made, DNNL_ARG_DST, description.dst_desc());
      return made;
    });
    set(compiled, DNNL_ARG_SRC, a);
    set(compiled, DNNL_ARG_WEIGHTS, b);
    if (block.bias) set(compiled, DNNL_ARG_BIAS, bias);
    set(compiled, DNNL_ARG_DST, c);
    execute(compiled);
  }

  /// Puts b into pieces().packed in the layout of packed_for rows.
  void pack(const Block& block, const Bf16* b) {
    Compiled& compiled = get(reorders_, block, [&] {
      const Md from = plain_b(block);
      const Md to = packed_layout(engine_, block, block.packed_for);
      Compiled made{dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to)), {}};
      add(made, DNNL_ARG_FROM, from);
      add(made, DNNL_ARG_TO, to);
      return made;
    });
    set(compiled, DNNL_ARG_FROM, b);
    set(compiled, DNNL_ARG_TO, pieces_->packed);
    execute(compiled);
  }

  /// Can blocks of this kind, also with `tail_m` rows, share a packed b?
  bool can_pack(const Block& block, std::int64_t tail_m) {
    return get(can_pack_, {block, tail_m}, [&] {
      const Md layout = packed_layout(engine_, block, block.packed_for);
      if (layout == plain_b(block) || layout.get_size() > sizeof(Pieces::packed)) return false;
      for (const std::int64_t m : {block.packed_for, tail_m}) {
        const std::string_view name = describe(engine_, block, m, layout).impl_info_str();
        if (name.find("ref") != std::string_view::npos) return false;
      }
      return true;
    });
  }

 private:
  // Of each map; a training run uses a few dozen. Shapes that vary without end cost time, and no
  // memory.
  static constexpr std::size_t kCapacity = 512;

  template <typename Map, typename Make>
  static typename Map::mapped_type& get(Map& map, const typename Map::key_type& key, Make&& make) {
    const auto found = map.find(key);
    if (found != map.end()) return found->second;
    if (map.size() >= kCapacity) map.clear();
    return map.emplace(key, make()).first->second;
  }
  void add(Compiled& compiled, int argument, const Md& layout) {
    compiled.arguments.emplace(argument, dnnl::memory(layout, engine_, DNNL_MEMORY_NONE));
  }
  static void set(Compiled& compiled, int argument, const void* data) {
    compiled.arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }
  void execute(Compiled& compiled) {
    compiled.primitive.execute(stream_, compiled.arguments);
    stream_.wait();
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unique_ptr<Pieces> pieces_ = std::make_unique_for_overwrite<Pieces>();
  std::map<Block, Compiled> products_;
  std::map<Block, Compiled> reorders_;
  std::map<std::pair<Block, std::int64_t>, bool> can_pack_;
};

/// Computes one area of c, whose rows are blocks of the grid.
class Group {
 public:
  Group(const MatmulArgs& args, const MatmulGrid& grid, const MatmulArea& area)
      : args_(args), grid_(grid), area_(area), state_(ThreadState::mine()) {
    const std::int64_t offset = area.row * args.shape.n + area.col;
    if (args.c.dtype() == Dtype::kF32) {
      c_ = args.c.data<float>() + offset;
      ldc_ = args.shape.n;
    } else {
      c_ = state_.pieces().c;
      ldc_ = area.cols;
    }
  }

  void compute() {
    const bool narrow = args_.c.dtype() == Dtype::kBf16;
    if (narrow && args_.accumulate) {
      simd::widen_rows(size(area_.rows), size(area_.cols), {stored_c(), size(args_.shape.n)},
                       {c_, size(ldc_)});
    }
    const std::int64_t panel = even_block(args_.shape.k, kMaxPanel, 32);
    for (std::int64_t k = 0; k < args_.shape.k; k += panel) {
      add_panel(k, std::min(panel, args_.shape.k - k));
    }
    if (!narrow) return;
    simd::narrow_rows(size(area_.rows), size(area_.cols), {c_, size(ldc_)},
                      {stored_c(), size(args_.shape.n)});
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  Bf16* stored_c() const { return args_.c.data<Bf16>() + area_.row * args_.shape.n + area_.col; }

  /// Adds the terms [k, k + count) of every sum.
  void add_panel(std::int64_t k, std::int64_t count) {
    const MatmulShape& shape = args_.shape;
    Block block;
    block.n = area_.cols;
    block.k = count;
    block.a_transposed = shape.transpose == Transpose::kTN;
    block.b_transposed = shape.transpose == Transpose::kNT;
    block.lda = block.a_transposed ? shape.m : shape.k;
    block.ldb = block.b_transposed ? shape.k : shape.n;
    block.ldc = ldc_;
    const Bf16* const stored =
        args_.b.data<Bf16>() +
        (block.b_transposed ? area_.col * shape.k + k : k * shape.n + area_.col);
    const void* const b = pack(block, stored);
    block.bias = args_.bias.defined() && k == 0;
    block.accumulate = args_.accumulate || k > 0;
    if (block.bias) take_bias();
    for (std::int64_t row = 0; row < area_.rows; row += grid_.m_block) {
      block.m = std::min(grid_.m_block, area_.rows - row);
      const std::int64_t from = area_.row + row;
      const Bf16* const a =
          args_.a.data<Bf16>() + (block.a_transposed ? k * shape.m + from : from * shape.k + k);
      state_.multiply(block, a, b, state_.pieces().bias, c_ + row * ldc_);
    }
  }

  /// b in the layout that the kernels like best; sets block.packed_for, or returns b as it is.
  const void* pack(Block& block, const Bf16* b) {
    block.packed_for = grid_.m_block;
    const std::int64_t tail_m = args_.shape.m - (grid_.m_blocks - 1) * grid_.m_block;
    if (!state_.can_pack(block, tail_m)) {
      block.packed_for = 0;
      return b;
    }
    state_.pack(block, b);
    return state_.pieces().packed;
  }

  void take_bias() {
    if (args_.bias.dtype() == Dtype::kF32) {
      std::copy_n(args_.bias.data<float>() + area_.col, area_.cols, state_.pieces().bias);
    } else {
      simd::widen_rows(1, size(area_.cols), {args_.bias.data<Bf16>() + area_.col, size(area_.cols)},
                       {state_.pieces().bias, size(area_.cols)});
    }
  }

  const MatmulArgs& args_;
  const MatmulGrid& grid_;
  MatmulArea area_;
  ThreadState& state_;
  float* c_;
  std::int64_t ldc_;
};

void multiply_groups(Run& run, const MatmulArgs& args) {
  const MatmulGrid grid = cut_matmul(args.shape);
  for_each_group(run, args.shape, grid,
                 [&](const MatmulArea& area) { Group(args, grid, area).compute(); });
}

}  // namespace

bool library_has_bf16() {
  static const bool has = [] {
    try {
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      const Block block = {.m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64};
      describe(engine, block, block.m, plain_b(block));
      return true;
    } catch (const dnnl::error&) {  // "unimplemented": CPUs without AVX-512
      return false;
    }
  }();
  return has;
}

Declined multiply_bf16(Run& run, const MatmulArgs& args) {
  if (args.shape.k == 0) return "nothing to sum";
  if (args.a.dtype() != Dtype::kBf16 || args.b.dtype() != Dtype::kBf16) return "not bf16";
  if (args.c.dtype() != Dtype::kBf16 && args.c.dtype() != Dtype::kF32) return "a result in f64";
  return serve_host(run, [&] {
    try {
      multiply_groups(run, args);
    } catch (const dnnl::error& error) {
      const bool memory = error.status == dnnl_out_of_memory;
      throw make_error(memory ? ErrorKind::kResource : ErrorKind::kInternal,
                       "oneDNN could not multiply bf16, M {} N {} K {}: {} (status {})",
                       args.shape.m, args.shape.n, args.shape.k, error.what(),
                       static_cast<int>(error.status));
    }
  });
}

Declined matmul_bf16(Run& run, const MatmulArgs& args) {
  if (args.a.dtype() != Dtype::kBf16 || args.b.dtype() != Dtype::kBf16) return "not bf16";
  if (bf16_arithmetic() == Bf16Arithmetic::kF32) return "widened to f32 on this CPU";
  if (!library_has_bf16()) return "the library has no bf16 on this CPU";
  return multiply_bf16(run, args);
}

}  // namespace atl::ops::cpu
