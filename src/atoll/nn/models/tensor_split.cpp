#include "atoll/nn/models/tensor_split.h"

#include <algorithm>
#include <set>

#include "atoll/nn/embedding.h"
#include "atoll/nn/expert_parallel.h"
#include "atoll/nn/head.h"
#include "atoll/nn/ring_attention.h"
#include "atoll/nn/sequential.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/nn/ulysses.h"

namespace atl::nn {

namespace {

// Rank r's share of n: [share(n, r), share(n, r + 1)).
std::int64_t share_begin(std::int64_t n, int rank, int size) {
  return n * rank / size;
}

Slice::Rows share(std::int64_t n, int rank, int size) {
  const std::int64_t begin = share_begin(n, rank, size);
  return {begin, share_begin(n, rank + 1, size) - begin};
}

// The rows of a slice that are some of `rows`, which lie together.
Slice within(const Slice& slice, const Slice::Rows& rows) {
  Slice part = {{}, slice.column_begin, slice.num_columns};
  for (const Slice::Rows& stretch : slice.rows) {
    const std::int64_t begin = std::max(stretch.begin, rows.begin);
    const std::int64_t end = std::min(stretch.begin + stretch.count, rows.begin + rows.count);
    if (begin < end) part.rows.push_back({begin, end - begin});
  }
  return part;
}

void check_split(const ModelConfig& config, int size) {
  const ops::HeadLayout& heads = config.heads;
  if (heads.num_heads % size != 0) {
    throw user_error(
        "parallel.tp = {}: the model's {} attention heads cannot be shared evenly; choose a "
        "divisor of {}",
        size, heads.num_heads, heads.num_heads);
  }
  if (heads.num_kv_heads % size != 0 && size % heads.num_kv_heads != 0) {
    throw user_error(
        "parallel.tp = {}: the model's {} key-value heads can neither be shared evenly nor copied "
        "evenly; choose a divisor or a multiple of {}",
        size, heads.num_kv_heads, heads.num_kv_heads);
  }
  if (config.intermediate_size < size || config.vocab_size < size) {
    throw user_error(
        "parallel.tp = {}: the model has an intermediate size of {} and {} tokens, and each rank "
        "needs one of both; choose fewer ranks",
        size, config.intermediate_size, config.vocab_size);
  }
  if (config.experts.num_experts > 0 && config.experts.intermediate_size < size) {
    throw user_error(
        "parallel.tp = {}: the model's experts have an intermediate size of {}, and each rank "
        "needs one of it; choose fewer ranks",
        size, config.experts.intermediate_size);
  }
}

// `heads`: those that ranks of the context axis all have.
void check_context(const BuildOptions& options, const ops::HeadLayout& heads) {
  const int size = options.context_size;
  if (options.context_attention != ContextAttention::kUlysses) return;
  if (heads.num_heads % size == 0 && heads.num_kv_heads % size == 0) return;
  throw user_error(
      "parallel.cp = {} with parallel.cp_attention = ulysses: between their parts of a sequence "
      "ranks share the {} attention heads and {} key-value heads that each has, and {} does not "
      "divide both; take parallel.cp_attention=ring, which shares none, or a divisor of both",
      size, heads.num_heads, heads.num_kv_heads, size);
}

void check_experts(const ModelConfig& config, int size) {
  const std::int64_t experts = config.experts.num_experts;
  if (experts == 0) {
    throw user_error(
        "parallel.ep = {}: the model, of the family {}, has no experts that ranks could share; "
        "leave it out",
        size, config.family);
  }
  if (experts % size == 0) return;
  throw user_error(
      "parallel.ep = {}: the {} experts of a block cannot be shared evenly; choose a divisor of {}",
      size, experts, experts);
}

// Marks what all ranks that share experts have alike, each with a part of its gradient.
class AlikeOnAll final : public ParamVisitor {
 public:
  AlikeOnAll(const Axis& expert, int tensor_size) : expert_(expert), tensor_size_(tensor_size) {}
  void param(Param& param) override {
    if (has_others(param) || !seen_.insert(&param).second) return;
    param.shared_by.push_back({&expert_, 0});
  }

 private:
  // Whether a rank with other experts has another part of it.
  bool has_others(const Param& param) const {
    if (!param.cut) return false;
    const std::vector<Slice>& slices = param.cut->slices;
    return slices[0] != slices[static_cast<std::size_t>(tensor_size_)];
  }

  const Axis& expert_;
  int tensor_size_;
  std::set<const Param*> seen_;  // tied ones are shown twice
};

}  // namespace

ops::HeadLayout heads_of_rank(ops::HeadLayout heads, int size) {
  heads.num_heads /= size;
  heads.num_kv_heads = std::max<std::int64_t>(1, heads.num_kv_heads / size);
  return heads;
}

TensorSplit::TensorSplit(const ModelConfig& config, const BuildOptions& options)
    : axis_(std::make_unique<Axis>(Axis{options.tensor_size, options.tensor_rank})),
      kv_copies_(std::make_unique<Axis>()),
      context_(std::make_unique<Axis>(Axis{options.context_size, options.context_rank})),
      expert_(std::make_unique<Axis>(Axis{options.expert_size, options.expert_rank})),
      parts_(std::make_unique<Axis>(
          Axis{options.tensor_size * options.expert_size,
               options.expert_rank * options.tensor_size + options.tensor_rank})),
      whole_heads_(config.heads),
      heads_(config.heads),
      has_ring_(options.context_attention == ContextAttention::kRing),
      device_(options.device) {
  if (is_split()) {
    check_split(config, axis_->size);
    const auto copies =
        std::max<std::int64_t>(1, axis_->size / std::max<std::int64_t>(1, heads_.num_kv_heads));
    *kv_copies_ = {static_cast<int>(copies), axis_->rank % static_cast<int>(copies)};
    heads_ = heads_of_rank(heads_, axis_->size);
  }
  if (options.context_size > 1 && options.experts.capacity_factor > 0) {
    throw user_error(
        "parallel.cp = {}: an expert with moe.capacity_factor = {} takes the first tokens of a "
        "micro-batch, of which ranks have parts; leave moe.capacity_factor out, or use data "
        "parallel",
        options.context_size, options.experts.capacity_factor);
  }
  if (options.context_size > 1) check_context(options, heads_);
  if (expert_->size > 1) check_experts(config, expert_->size);
}

std::unique_ptr<AttentionCore> TensorSplit::attention_core() const {
  if (context_->size == 1) return nullptr;
  if (has_ring_) return std::make_unique<RingAttention>(context_.get());
  return std::make_unique<UlyssesAttention>(context_.get());
}

Param TensorSplit::all(Param param) const {
  if (is_split() && !param.name.empty()) param.shared_by = {{axis_.get(), 0}};
  return param;
}

Param TensorSplit::cut(Param whole, const std::vector<Slice>& of_tensor_ranks) const {
  std::vector<Slice> slices;
  for (int e = 0; e < expert_->size; ++e) {
    slices.insert(slices.end(), of_tensor_ranks.begin(), of_tensor_ranks.end());
  }
  return cut_param(std::move(whole), std::move(slices), parts_->rank, axis_->size);
}

Linear TensorSplit::rows(LinearParams params,
                         const std::vector<std::vector<Slice::Rows>>& of_ranks) const {
  const auto cut_rows = [&](Param whole) {
    const std::int64_t columns = whole.spec.shape.rank() == 1 ? 1 : whole.spec.shape.dim(1);
    std::vector<Slice> slices;
    for (const auto& rows : of_ranks) slices.push_back({rows, 0, columns});
    return cut(std::move(whole), slices);
  };
  Param bias = std::move(params.bias);
  if (!bias.name.empty()) bias = cut_rows(std::move(bias));
  return Linear(cut_rows(std::move(params.weight)), std::move(bias), device_);
}

Linear TensorSplit::qkv(LinearParams params) const {
  if (!is_split()) return Linear(std::move(params.weight), std::move(params.bias), device_);
  const std::int64_t query = whole_heads_.query_width();
  const std::int64_t kv = whole_heads_.kv_width();
  const int copies = kv_copies_->size;
  std::vector<std::vector<Slice::Rows>> of_ranks;
  for (int r = 0; r < axis_->size; ++r) {
    const Slice::Rows heads = share(query, r, axis_->size);
    const Slice::Rows pairs = share(kv, r / copies, axis_->size / copies);
    of_ranks.push_back(
        {heads, {query + pairs.begin, pairs.count}, {query + kv + pairs.begin, pairs.count}});
  }
  Param* shared[] = {&params.weight, &params.bias};
  for (Param* param : shared) {
    if (copies == 1 || param->name.empty()) continue;
    param->shared_by = {{kv_copies_.get(), heads_.query_width()}};
  }
  return rows(std::move(params), of_ranks);
}

// Each rank's share of the rows of each of `num_parts` equal parts of `rows`.
std::vector<std::vector<Slice::Rows>> TensorSplit::shares(std::int64_t rows,
                                                          std::int64_t num_parts) const {
  const std::int64_t width = rows / num_parts;
  std::vector<std::vector<Slice::Rows>> of_ranks;
  for (int r = 0; r < axis_->size; ++r) {
    const Slice::Rows mine = share(width, r, axis_->size);
    std::vector<Slice::Rows>& all = of_ranks.emplace_back();
    for (std::int64_t part = 0; part < num_parts; ++part) {
      all.push_back({part * width + mine.begin, mine.count});
    }
  }
  return of_ranks;
}

Linear TensorSplit::mlp_in(LinearParams params, int num_parts) const {
  if (!is_split()) return Linear(std::move(params.weight), std::move(params.bias), device_);
  const std::int64_t width = params.weight.spec.shape.dim(0);
  return rows(std::move(params), shares(width, num_parts));
}

// The same columns of all rows for each rank, of `width` columns.
std::vector<Slice> TensorSplit::column_shares(const Param& whole, std::int64_t width) const {
  std::vector<Slice> slices;
  for (int r = 0; r < axis_->size; ++r) {
    const Slice::Rows mine = share(width, r, axis_->size);
    slices.push_back({{{0, whole.spec.shape.dim(0)}}, mine.begin, mine.count});
  }
  return slices;
}

Param TensorSplit::cut_columns(Param whole, std::int64_t width) const {
  const std::vector<Slice> slices = column_shares(whole, width);
  return cut(std::move(whole), slices);
}

Linear TensorSplit::columns(LinearParams params, std::int64_t width, Param& bias) const {
  if (!is_split()) return Linear(std::move(params.weight), std::move(params.bias), device_);
  bias = all(std::move(params.bias));
  return Linear(cut_columns(std::move(params.weight), width), {}, device_);
}

Linear TensorSplit::heads_out(LinearParams params, Param& bias) const {
  return columns(std::move(params), whole_heads_.query_width(), bias);
}

Linear TensorSplit::mlp_out(LinearParams params, Param& bias) const {
  const std::int64_t width = params.weight.spec.shape.dim(1);
  return columns(std::move(params), width, bias);
}

std::unique_ptr<Layer> TensorSplit::branch(std::unique_ptr<Layer> inner, Param bias) const {
  if (!is_split()) return inner;
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<GatherRows>(axis_.get()));
  layers.push_back(std::move(inner));
  layers.push_back(std::make_unique<ScatterSum>(axis_.get()));
  if (!bias.name.empty()) layers.push_back(std::make_unique<AddBias>(std::move(bias)));
  return std::make_unique<Sequential>(std::move(layers));
}

Param TensorSplit::of_heads(Param param) const {
  if (!is_split() || param.name.empty()) return param;
  std::vector<Slice> slices;
  for (int r = 0; r < axis_->size; ++r) {
    slices.push_back({{share(whole_heads_.num_heads, r, axis_->size)}, 0, 1});
  }
  return cut(std::move(param), slices);
}

Param TensorSplit::experts_in(Param stacked) const {
  const Shape shape = stacked.spec.shape;
  const std::int64_t columns = shape.rank() == 1 ? 1 : shape.dim(1);
  // Each file tensor is one expert's gate or up.
  std::vector<Slice> slices;
  for (const auto& rows : shares(shape.dim(0), std::ssize(stacked.files))) {
    slices.push_back({rows, 0, columns});
  }
  return experts(std::move(stacked), slices);
}

Param TensorSplit::experts_out(Param stacked) const {
  if (stacked.spec.shape.rank() == 1) {
    const Slice whole = {{{0, stacked.spec.shape.dim(0)}}, 0, 1};
    if (expert_->size == 1) return all(std::move(stacked));
    const auto count = static_cast<std::size_t>(axis_->size);
    return all(experts(std::move(stacked), std::vector<Slice>(count, whole)));
  }
  const std::vector<Slice> slices = column_shares(stacked, stacked.spec.shape.dim(1));
  return experts(std::move(stacked), slices);
}

Param TensorSplit::experts(Param stacked, const std::vector<Slice>& of_tensor_ranks) const {
  const int size = expert_->size;
  if (parts_->size == 1) return stacked;
  std::vector<Slice> slices;
  for (int e = 0; e < size; ++e) {
    const Slice::Rows own = share(stacked.spec.shape.dim(0), e, size);
    for (const Slice& of_all : of_tensor_ranks) slices.push_back(within(of_all, own));
  }
  Param part = cut_param(std::move(stacked), std::move(slices), parts_->rank, axis_->size);
  part.share_of_tokens *= size;  // those of all ranks
  return part;
}

std::unique_ptr<TokenDispatch> TensorSplit::token_dispatch() const {
  if (expert_->size == 1) return nullptr;
  return std::make_unique<ExpertParallelDispatch>(expert_.get());
}

TensorEnds TensorSplit::ends(Param table, Param positions, Param weight, double softcap) const {
  const bool tied = weight.name.empty();
  TensorEnds ends;
  if (!is_split()) {
    const std::int64_t total = table.spec.shape.dim(0);
    auto embedding = std::make_unique<Embedding>(std::move(table), std::move(positions));
    if (softcap > 0) {
      // The fused head has no place for a cap between the product and the loss.
      const ops::VocabularyPart whole = {0, total, total};
      ends.head = tied ? std::make_unique<VocabularyCrossEntropy>(axis_.get(), whole, softcap,
                                                                  &embedding->table(), device_)
                       : std::make_unique<VocabularyCrossEntropy>(axis_.get(), whole, softcap,
                                                                  std::move(weight), device_);
      ends.embedding = std::move(embedding);
      return ends;
    }
    auto head = tied ? std::make_unique<LinearCrossEntropy>(&embedding->table(), device_)
                     : std::make_unique<LinearCrossEntropy>(std::move(weight), device_);
    ends.plain_head = head.get();
    ends.embedding = std::move(embedding);
    ends.head = std::move(head);
    return ends;
  }
  const std::int64_t total = table.spec.shape.dim(0);
  const auto cut_rows = [&](Param whole) {
    std::vector<Slice> slices;
    for (int r = 0; r < axis_->size; ++r) {
      slices.push_back({{share(total, r, axis_->size)}, 0, whole.spec.shape.dim(1)});
    }
    return cut(std::move(whole), slices);
  };
  const Slice::Rows mine = share(total, axis_->rank, axis_->size);
  const ops::VocabularyPart part = {mine.begin, mine.count, total};
  auto embedding = std::make_unique<VocabularyEmbedding>(
      axis_.get(), part, cut_rows(std::move(table)), all(std::move(positions)));
  ends.head = tied ? std::make_unique<VocabularyCrossEntropy>(axis_.get(), part, softcap,
                                                              &embedding->table(), device_)
                   : std::make_unique<VocabularyCrossEntropy>(axis_.get(), part, softcap,
                                                              cut_rows(std::move(weight)), device_);
  ends.embedding = std::move(embedding);
  return ends;
}

void TensorSplit::hand_over(Model& model) {
  model.tensor = std::move(axis_);
  model.kv_copies = std::move(kv_copies_);
  model.context = std::move(context_);
  model.expert = std::move(expert_);
  model.parts = std::move(parts_);
  if (model.expert->size == 1) return;
  AlikeOnAll mark(*model.expert, model.tensor->size);
  model.visit(mark);
}

}  // namespace atl::nn
