#include "atoll/ops/implementations.h"

#include "atoll/ops/serve.h"
#include "atoll/ops/token_rows/ref.h"
#include "atoll/ops/token_rows/token_rows.h"

namespace atl::ops {

namespace {

struct RowArgs {
  double scale;
  TokenSlots slots;
  Tensor tokens, rows, beside, y;
};

struct ColumnArgs {
  std::span<const std::int64_t> tokens;
  Tensor logits, columns;
};

constexpr Implementation<RowArgs> kForward[] = {
    {"ref", [](Run& run, const RowArgs& a) {
       return serve_any_storage(run, a.y.dtype(), [&]<typename T>(T) {
         ref::place_token_rows<T>(run, a.scale, a.slots, a.tokens, a.rows, a.beside, a.y);
       });
     }}};

constexpr Implementation<RowArgs> kBackward[] = {
    {"ref", [](Run& run, const RowArgs& a) {
       return serve_any_storage(run, a.y.dtype(), [&]<typename T>(T) {
         ref::place_token_rows_backward<T>(run, a.scale, a.slots, a.tokens, a.y, a.rows);
       });
     }}};

constexpr Implementation<ColumnArgs> kTake[] = {
    {"ref", [](Run& run, const ColumnArgs& a) {
       return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
         ref::take_columns<T>(run, a.tokens, a.logits, a.columns);
       });
     }}};

constexpr Implementation<ColumnArgs> kPut[] = {
    {"ref", [](Run& run, const ColumnArgs& a) {
       return serve_any_float(run, a.logits.dtype(), [&]<typename T>(T) {
         ref::put_columns<T>(run, a.tokens, a.columns, a.logits);
       });
     }}};

void check(const char* op, const RowArgs& args) {
  check_size(op, Dtype::kI32, args.y.dim(0), {args.tokens});
  ATOLL_CHECK(args.rows.dim(1) == args.y.dim(1), "{}: {} of {}", op, args.rows.spec().to_string(),
              args.y.spec().to_string());
  if (args.beside.defined()) check_spec(op, args.y.spec(), {args.beside});
}

void check(const char* op, const ColumnArgs& args) {
  const auto count = static_cast<std::int64_t>(args.tokens.size());
  check_spec(op, {args.logits.dtype(), {args.logits.dim(0), count}}, {args.columns});
}

}  // namespace

void place_token_rows(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor rows,
                      Tensor beside, Tensor y) {
  const RowArgs args = {scale, slots, tokens, rows, beside, y};
  check("place_token_rows", args);
  dispatch<RowArgs>("place_token_rows", kForward, run, args, cost_of({tokens, rows}));
}

void place_token_rows_backward(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor dy,
                               Tensor drows) {
  const RowArgs args = {scale, slots, tokens, drows, {}, dy};
  check("place_token_rows_backward", args);
  dispatch<RowArgs>("place_token_rows_backward", kBackward, run, args, cost_of({tokens, drows}));
}

void take_columns(Run& run, std::span<const std::int64_t> tokens, Tensor logits, Tensor taken) {
  const ColumnArgs args = {tokens, logits, taken};
  check("take_columns", args);
  dispatch<ColumnArgs>("take_columns", kTake, run, args, cost_of({taken, taken, taken}));
}

void put_columns(Run& run, std::span<const std::int64_t> tokens, Tensor given, Tensor logits) {
  const ColumnArgs args = {tokens, logits, given};
  check("put_columns", args);
  dispatch<ColumnArgs>("put_columns", kPut, run, args, cost_of({given, given}));
}

}  // namespace atl::ops
