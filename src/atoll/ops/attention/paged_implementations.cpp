#include <algorithm>
#include <cstring>
#include <vector>

#include "atoll/ops/attention/attention_paged.h"
#include "atoll/ops/attention/attention_sinks.h"
#include "atoll/ops/attention/checks.h"
#include "atoll/ops/attention/cpu_paged.h"
#include "atoll/ops/attention/cpu_shape.h"

namespace atl::ops {

namespace {

struct PagedArgs {
  HeadLayout heads;
  AttentionScores scores;
  std::int64_t window = 0;
  std::span<const PagedRows> sequences;
  std::int64_t block_size = 0;
  Tensor qkv, k_cache, v_cache, out, lse;
};

// Throws unless each row is in one sequence at most, and each position has a block.
void check_sequences(const PagedArgs& args) {
  const std::int64_t num_rows = args.qkv.dim(1);
  const std::int64_t num_blocks = args.k_cache.dim(1) / args.block_size;
  std::int64_t next = 0;
  for (const PagedRows& rows : args.sequences) {
    ATOLL_CHECK(rows.first_row >= next && rows.num_rows > 0 &&
                    rows.first_row + rows.num_rows <= num_rows && rows.first_position >= 0,
                "rows {} to {} at position {}, of {} rows", rows.first_row,
                rows.first_row + rows.num_rows, rows.first_position, num_rows);
    next = rows.first_row + rows.num_rows;
    const std::int64_t end = rows.first_position + rows.num_rows;
    const std::int64_t needed = (end + args.block_size - 1) / args.block_size;
    ATOLL_CHECK(std::ssize(rows.blocks) >= needed, "{} blocks of {} for {} positions",
                rows.blocks.size(), args.block_size, end);
    for (std::int64_t i = 0; i < needed; ++i) {
      const std::int32_t block = rows.blocks[static_cast<std::size_t>(i)];
      ATOLL_CHECK(block >= 0 && block < num_blocks, "block {} of {}", block, num_blocks);
    }
  }
}

// Keys and values go to the caches; what no sequence has becomes zeros.
void store_rows(Run& run, const PagedArgs& args) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t width = args.heads.kv_width();
  const std::int64_t num_rows = args.qkv.dim(1);
  std::vector<std::int64_t> places(static_cast<std::size_t>(num_rows), -1);
  for (const PagedRows& rows : args.sequences) {
    for (std::int64_t i = 0; i < rows.num_rows; ++i) {
      const std::int64_t at = rows.first_position + i;
      const std::int32_t block = rows.blocks[static_cast<std::size_t>(at / args.block_size)];
      places[static_cast<std::size_t>(rows.first_row + i)] =
          block * args.block_size + at % args.block_size;
    }
  }
  run.threads().run_chunked(num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t place = places[static_cast<std::size_t>(row)];
      if (place < 0) {
        std::fill_n(args.out.data<float>() + row * args.heads.query_width(),
                    args.heads.query_width(), 0.0F);
        continue;
      }
      const float* keys =
          args.qkv.data<float>() + row * args.heads.qkv_width() + args.heads.query_width();
      std::copy_n(keys, width, args.k_cache.data<float>() + place * width);
      std::copy_n(keys + width, width, args.v_cache.data<float>() + place * width);
    }
  });
}

Declined tiled(Run& run, const PagedArgs& args) {
  if (args.heads.head_dim > static_cast<std::int64_t>(cpu::kMaxTiledHeadDim)) {
    return "head_dim above 256";
  }
  return serve_f32(run, args.qkv.dtype(), [&] {
    store_rows(run, args);
    if (args.lse.defined()) std::fill_n(args.lse.data<float>(), args.lse.num_elements(), 0.0F);
    cpu::attention_paged(run, args.heads, args.scores, args.window, args.sequences, args.block_size,
                         args.qkv, args.k_cache, args.v_cache, args.out, args.lse);
  });
}

constexpr Implementation<PagedArgs> kPaged[] = {{"cpu", tiled}};

OpCost cost_of_paged(const PagedArgs& args) {
  OpCost cost = cost_of({args.qkv, args.out});
  double places = 0;
  for (const PagedRows& rows : args.sequences) {
    places += static_cast<double>(rows.first_position + rows.num_rows);
  }
  cost.bytes += 2 * places * static_cast<double>(args.heads.kv_width()) * sizeof(float);
  return cost;
}

}  // namespace

void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out) {
  attention_paged(run, heads, scores, window, sequences, block_size, qkv, k_cache, v_cache, out,
                  {});
}

void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse) {
  const char* op = "attention_paged";
  check_heads(op, heads, qkv);
  check_spec(op, attended_spec(heads, qkv), {out});
  ATOLL_CHECK(qkv.dim(0) == 1 && block_size > 0 && k_cache.dim(1) % block_size == 0,
              "{}: {} beside a cache of {} places in blocks of {}", op, qkv.spec().to_string(),
              k_cache.dim(1), block_size);
  check_spec(op, {qkv.dtype(), {1, k_cache.dim(1), heads.kv_width()}}, {k_cache, v_cache});
  if (lse.defined()) check_spec(op, lse_spec(heads, qkv), {lse});
  const PagedArgs args = {heads, scores,  window,  sequences, block_size,
                          qkv,   k_cache, v_cache, out,       lse};
  check_sequences(args);
  dispatch<PagedArgs>(op, kPaged, run, args, cost_of_paged(args));
}

}  // namespace atl::ops
