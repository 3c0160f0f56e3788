#include "atoll/ops/matmul/cpu_dnnl.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "atoll/ops/serve.h"

namespace atl::ops::cpu {

namespace {

using Md = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;

/// The one place where a oneDNN error becomes ours.
template <typename Fn>
decltype(auto) translate_errors(const MatmulShape& shape, Fn&& fn) {
  try {
    return fn();
  } catch (const dnnl::error& error) {
    const bool memory = error.status == dnnl_out_of_memory;
    throw make_error(memory ? ErrorKind::kResource : ErrorKind::kInternal,
                     "oneDNN could not multiply M {} N {} K {}: {} (status {})", shape.m, shape.n,
                     shape.k, error.what(), static_cast<int>(error.status));
  }
}

Md plain(std::int64_t rows, std::int64_t cols, std::int64_t ld, bool transposed) {
  return transposed ? Md({rows, cols}, kF32, {1, ld}) : Md({rows, cols}, kF32, {ld, 1});
}

Md plain_b(const MatmulBlock& block) {
  return plain(block.k, block.n, block.ldb, block.b_transposed);
}

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const MatmulBlock& block,
                                      std::int64_t m, const Md& b) {
  dnnl::primitive_attr attributes;
  if (block.accumulate) {
    dnnl::post_ops post_ops;
    post_ops.append_sum(1.0F);
    attributes.set_post_ops(post_ops);
  }
  const Md a = plain(m, block.k, block.lda, block.a_transposed);
  const Md c = plain(m, block.n, block.ldc, false);
  if (!block.bias) return {dnnl::matmul::desc(a, b, c), attributes, engine};
  const Md bias = plain(1, block.n, block.n, false);
  return {dnnl::matmul::desc(a, b, bias, c), attributes, engine};
}

/// The layout of b that the kernels for blocks of layout_m rows like best, whatever is fused.
Md packed_layout(const dnnl::engine& engine, MatmulBlock block) {
  block.bias = block.accumulate = false;
  const Md any({block.k, block.n}, kF32, dnnl::memory::format_tag::any);
  return describe(engine, block, block.layout_m, any).weights_desc();
}

/// A primitive with its arguments, ready for other pointers.
struct Compiled {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

/// A map that forgets everything when it is full: shapes that vary without end cost time, and no
/// memory. A training run uses a few dozen entries.
template <typename Key, typename Value>
class BoundedMap {
 public:
  template <typename Make>
  Value& get(const Key& key, Make&& make) {
    const auto found = map_.find(key);
    if (found != map_.end()) return found->second;
    if (map_.size() >= kCapacity) map_.clear();
    return map_.emplace(key, make()).first->second;
  }

 private:
  static constexpr std::size_t kCapacity = 512;
  std::map<Key, Value> map_;
};

/// What one thread keeps of oneDNN. Primitives are made on the thread that runs them: the library's
/// scratchpad belongs to the thread, and so does OpenMP's thread count, which is set to one here.
class ThreadState {
 public:
  static ThreadState& mine() {
    thread_local ThreadState state;
    return state;
  }

  /// Runs one block.
  void multiply(const MatmulBlock& block, const Operands& at) {
    Compiled& compiled = products_.get(block, [&] { return compile_product(block); });
    set(compiled, DNNL_ARG_SRC, at.a);
    if (block.layout_m != 0) {
      set(compiled, DNNL_ARG_WEIGHTS, at.packed);
    } else {
      set(compiled, DNNL_ARG_WEIGHTS, at.b);
    }
    if (block.bias) set(compiled, DNNL_ARG_BIAS, at.bias);
    set(compiled, DNNL_ARG_DST, at.c);
    execute(compiled);
  }

  /// Repacks the block's b.
  void pack(const MatmulBlock& block, const float* b, std::byte* packed) {
    Compiled& compiled = reorders_.get(block, [&] { return compile_reorder(block); });
    set(compiled, DNNL_ARG_FROM, b);
    set(compiled, DNNL_ARG_TO, packed);
    execute(compiled);
  }

  /// Can blocks of this kind, also with `tail_m` rows, share a packed b of at most `bytes`?
  bool can_pack(const MatmulBlock& block, std::int64_t tail_m, std::size_t bytes) {
    return can_pack_.get({block, tail_m}, [&] {
      const Md layout = packed_layout(engine_, block);
      if (layout == plain_b(block) || layout.get_size() > bytes) return false;
      for (const std::int64_t m : {block.layout_m, tail_m}) {
        const std::string_view name = describe(engine_, block, m, layout).impl_info_str();
        if (name.find("ref") != std::string_view::npos) return false;
      }
      return true;
    });
  }

 private:
  ThreadState() { omp_set_num_threads(1); }

  Compiled compile_product(const MatmulBlock& block) {
    const Md b = block.layout_m != 0 ? packed_layout(engine_, block) : plain_b(block);
    const auto description = describe(engine_, block, block.m, b);
    Compiled compiled{dnnl::matmul(description), {}};
    add(compiled, DNNL_ARG_SRC, description.src_desc());
    add(compiled, DNNL_ARG_WEIGHTS, b);
    if (block.bias) add(compiled, DNNL_ARG_BIAS, description.bias_desc());
    add(compiled, DNNL_ARG_DST, description.dst_desc());
    return compiled;
  }

  Compiled compile_reorder(const MatmulBlock& block) {
    const Md from = plain_b(block);
    const Md to = packed_layout(engine_, block);
    Compiled compiled{dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to)), {}};
    add(compiled, DNNL_ARG_FROM, from);
    add(compiled, DNNL_ARG_TO, to);
    return compiled;
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
  BoundedMap<MatmulBlock, Compiled> products_;
  BoundedMap<MatmulBlock, Compiled> reorders_;
  BoundedMap<std::pair<MatmulBlock, std::int64_t>, bool> can_pack_;
};

MatmulGrid grid_of(const MatmulShape& shape, std::int64_t rows, std::int64_t cols) {
  const std::int64_t m_block = even_block(shape.m, rows, 16);
  const std::int64_t n_block = even_block(shape.n, cols, 64);
  return {m_block, n_block, (shape.m + m_block - 1) / m_block, (shape.n + n_block - 1) / n_block};
}

MatmulBlock block_at(const MatmulShape& shape, const MatmulGrid& grid, std::int64_t i,
                     std::int64_t j) {
  MatmulBlock block;
  block.m = std::min(grid.m_block, shape.m - i * grid.m_block);
  block.n = std::min(grid.n_block, shape.n - j * grid.n_block);
  block.k = shape.k;
  block.a_transposed = shape.transpose == Transpose::kTN;
  block.b_transposed = shape.transpose == Transpose::kNT;
  block.lda = block.a_transposed ? shape.m : shape.k;
  block.ldb = block.b_transposed ? shape.k : shape.n;
  block.ldc = shape.n;
  return block;
}

const float* b_column(const MatmulShape& shape, const float* b, std::int64_t column) {
  return b + column * (shape.transpose == Transpose::kNT ? shape.k : 1);
}

}  // namespace

std::int64_t even_block(std::int64_t total, std::int64_t most, std::int64_t unit) {
  const std::int64_t blocks = (total + most - 1) / most;
  const std::int64_t block = (total + blocks - 1) / blocks;
  return std::min(total, (block + unit - 1) / unit * unit);
}

std::size_t packed_block_bytes(std::int64_t k, std::int64_t n) {
  const auto round = [](std::int64_t size) { return align_up(static_cast<std::size_t>(size)); };
  return round(k) * round(n) * sizeof(float);
}

/// Measured: 256 x 384 is as fast as the uncut product. Smaller blocks, down to 64 x 128, cost some
/// percent (at 64 columns a fifth); they are for products that would not make 16 blocks otherwise,
/// as long as a block is worth a thread's waking.
MatmulGrid cut_matmul(const MatmulShape& shape) {
  constexpr std::int64_t kMinFlops = 8'000'000;
  std::int64_t rows = kMaxBlockRows;
  std::int64_t cols = kMaxBlockCols;
  MatmulGrid grid = grid_of(shape, rows, cols);
  while (grid.m_blocks * grid.n_blocks < kEnoughBlocks) {
    if (grid.m_block * grid.n_block * shape.k < kMinFlops) break;  // half of 2 m n k
    if (grid.m_block > 64 && grid.m_block >= grid.n_block) {
      rows = std::max<std::int64_t>(64, grid.m_block / 2);
    } else if (grid.n_block > 128) {
      cols = std::max<std::int64_t>(128, grid.n_block / 2);
    } else if (grid.m_block > 64) {
      rows = std::max<std::int64_t>(64, grid.m_block / 2);
    } else {
      break;
    }
    grid = grid_of(shape, rows, cols);
  }
  return grid;
}

void for_each_group(Run& run, const MatmulShape& shape, const MatmulGrid& grid,
                    const std::function<void(const MatmulArea& area)>& compute) {
  const std::int64_t blocks = grid.m_blocks * grid.n_blocks;
  const std::int64_t group_rows =
      std::clamp<std::int64_t>(blocks / kEnoughBlocks, 1, kMaxGroup) * grid.m_block;
  const std::int64_t groups = (shape.m + group_rows - 1) / group_rows;
  run.threads().run(groups * grid.n_blocks, [&](std::int64_t task) {
    const std::int64_t row = task % groups * group_rows;
    const std::int64_t col = task / groups * grid.n_block;
    compute({row, col, std::min(group_rows, shape.m - row), std::min(grid.n_block, shape.n - col)});
  });
}

void multiply_block(const MatmulBlock& block, const Operands& operands) {
  const MatmulShape shape = {Transpose::kNN, block.m, block.n, block.k};
  translate_errors(shape, [&] { ThreadState::mine().multiply(block, operands); });
}

bool pack_block(const MatmulBlock& block, std::int64_t tail_m, const float* b, std::byte* packed) {
  const MatmulShape shape = {Transpose::kNN, block.m, block.n, block.k};
  return translate_errors(shape, [&] {
    ThreadState& state = ThreadState::mine();
    if (!state.can_pack(block, tail_m, packed_block_bytes(block.k, block.n))) return false;
    state.pack(block, b, packed);
    return true;
  });
}

void multiply(Run& run, const MatmulShape& shape, const Operands& at, bool accumulate) {
  translate_errors(shape, [&] {
    const MatmulGrid grid = cut_matmul(shape);
    run.threads().run(grid.m_blocks * grid.n_blocks, [&](std::int64_t task) {
      const std::int64_t i = task % grid.m_blocks;
      const std::int64_t j = task / grid.m_blocks;
      const std::int64_t row = i * grid.m_block;
      const std::int64_t column = j * grid.n_block;
      MatmulBlock block = block_at(shape, grid, i, j);
      block.bias = at.bias != nullptr;
      block.accumulate = accumulate;
      Operands piece;
      piece.a = at.a + row * (block.a_transposed ? 1 : block.lda);
      piece.b = b_column(shape, at.b, column);
      piece.packed = nullptr;
      piece.c = at.c + row * shape.n + column;
      piece.bias = at.bias != nullptr ? at.bias + column : nullptr;
      ThreadState::mine().multiply(block, piece);
    });
  });
}

Declined matmul_dnnl(Run& run, const MatmulArgs& args) {
  if (args.shape.k == 0) return "nothing to sum";
  if (!args.all_of(Dtype::kF32)) return "not f32";
  return serve_host(run, [&] {
    const MatmulShape& shape = args.shape;
    const Operands operands = {args.a.data<float>(), args.b.data<float>(), nullptr,
                               args.c.data<float>(),
                               args.bias.defined() ? args.bias.data<float>() : nullptr};
    multiply(run, shape, operands, args.accumulate);
  });
}

}  // namespace atl::ops::cpu
