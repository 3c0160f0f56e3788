#include "atoll/serve/batch/step_model.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/linears.h"
#include "atoll/nn/models/adapted.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/schedule/stage_cut.h"
#include "atoll/tensor/host_access.h"

namespace atl::serve {

namespace {

// Steps of other sizes are filled up to the next one.
constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

// Multiples of the number of ranks that share rows.
std::vector<std::int64_t> sizes_up_to(std::int64_t max_rows, const ModelRanks* ranks) {
  const std::int64_t shared = ranks == nullptr ? 1 : ranks->layout().tensor;
  std::vector<std::int64_t> sizes;
  const auto add = [&](std::int64_t size) {
    const std::int64_t filled = (size + shared - 1) / shared * shared;
    if (sizes.empty() || filled > sizes.back()) sizes.push_back(filled);
  };
  for (const std::int64_t size : kSizes) {
    if (size < max_rows) add(size);
  }
  add(max_rows);
  return sizes;
}

// Stands where another process has the layers before: its output are the rows that lie at `rows`.
class HiddenInput final : public nn::Layer {
 public:
  HiddenInput(float* rows, std::int64_t width) : rows_(rows), width_(width) {}

  nn::Footprint plan(Spec x) const override {
    nn::Footprint footprint;
    footprint.y = {Dtype::kF32, {x.shape.dim(0), x.shape.dim(1), width_}};
    return footprint;
  }
  void forward(Run& /*run*/, const nn::Pass& pass) override {
    copy_now(Tensor(rows_, pass.y.spec()), pass.y);
  }
  void backward_input(Run& /*run*/, const nn::Pass& /*pass*/) override {}

 private:
  float* rows_;
  std::int64_t width_;
};

std::vector<float> input_of(const nn::ModelConfig& config, const StepLayers& layers,
                            std::int64_t rows) {
  if (layers.first == 0) return {};
  return std::vector<float>(static_cast<std::size_t>(rows * config.hidden_size));
}

// Stage 0 is the embedding, block i is stage i + 1.
std::unique_ptr<nn::Model> build(const nn::ModelConfig& config, const StepRoom& room,
                                 const StepLayers& layers, std::vector<float>& input,
                                 ModelRanks* ranks, const nn::LoraOptions* lora) {
  ATOLL_CHECK(room.max_positions >= 1 && room.max_positions <= config.max_positions, "{} of {}",
              room.max_positions, config.max_positions);
  ATOLL_CHECK(
      layers.first >= 0 && layers.count(config) >= 1 && layers.end_in(config) <= config.num_layers,
      "layers {} to {} of {}", layers.first, layers.end_in(config), config.num_layers);
  nn::BuildOptions options = {.max_positions = room.max_positions};
  if (ranks != nullptr) {
    ATOLL_CHECK(layers.count(config) == config.num_layers && ranks->layout().pipeline == 1 &&
                    ranks->layout().experts == 1,
                "ranks share the products of all layers");
    options.tensor_size = ranks->layout().tensor;
    options.tensor_rank = ranks->tensor_rank();
  }
  auto model = lora == nullptr ? nn::build_model(config, options)
                               : nn::build_adapted_model(config, options, *lora);
  if (ranks != nullptr) model->tensor->group = &ranks->tensor();
  if (layers.count(config) == config.num_layers) return model;
  std::vector<std::size_t> bounds = {0};
  if (layers.first > 0) bounds.push_back(static_cast<std::size_t>(layers.first) + 1);
  if (!layers.has_head(config)) bounds.push_back(static_cast<std::size_t>(layers.end) + 1);
  bounds.push_back(model->stages.size());
  const int parts = static_cast<int>(bounds.size()) - 1;
  parallel::keep_stages(*model, {parts, 1, bounds}, layers.first > 0 ? 1 : 0);
  if (layers.first > 0) {
    model->stages.insert(model->stages.begin(),
                         std::make_unique<HiddenInput>(input.data(), config.hidden_size));
    model->stage_names.insert(model->stage_names.begin(), "input");
  }
  return model;
}

std::unique_ptr<Device> only_cpu(std::unique_ptr<Device> device) {
  if (device->kind() == DeviceKind::kCpu) return device;
  throw user_error(
      "serving many requests at once runs on a CPU so far; leave out --device, or use `atoll "
      "generate` on a GPU");
}

}  // namespace

StepModel::StepModel(std::unique_ptr<Device> device, const nn::ModelConfig& config, Weights weights,
                     const StepRoom& room, const StepLayers& layers, const KeepStored& keep,
                     std::int64_t adapter_rank, ModelRanks* ranks, const nn::LoraOptions* lora)
    : device_(only_cpu(std::move(device))),
      stream_(device_->open_stream()),
      room_(room),
      layers_(layers),
      ranks_(ranks),
      sizes_(sizes_up_to(room.max_rows, ranks)),
      input_(input_of(config, layers, sizes_.back())),
      model_(build(config, room, layers, input_, ranks, lora)),
      store_(open_store(*device_, *model_, weights, keep)),
      head_(*model_) {
  make_adapter_room(adapter_rank);
  plan_memory();
  tokens_.resize(static_cast<std::size_t>(sizes_.back()));
  positions_.resize(static_cast<std::size_t>(sizes_.back()));
}

void StepModel::initialise(std::uint64_t seed) {
  Run run = {.stream = stream_.get()};
  store_->initialise(run, seed);
}

std::size_t StepModel::bytes_per_step() const {
  return bytes_read_per_token(*model_, *store_, layers_.first == 0, has_head());
}

std::size_t StepModel::block_bytes(const nn::ModelConfig& config, const StepLayers& layers) {
  return static_cast<std::size_t>(2 * layers.count(config) * kBlockSize * config.heads.kv_width()) *
         sizeof(float);
}

void StepModel::plan_memory() {
  const nn::ModelConfig& config = model_->config;
  const std::int64_t kv_width = nn::heads_of_rank(config.heads, tensor_size()).kv_width();
  const Spec cached = {Dtype::kF32, {1, room_.num_blocks * kBlockSize, kv_width}};
  const Spec all_rows = {Dtype::kF32, {sizes_.back(), config.hidden_size}};
  const Spec hidden = {Dtype::kF32, {kLogitRows, config.hidden_size}};
  const Spec logits = {Dtype::kF32, {kLogitRows, config.vocab_size}};
  std::size_t head_bytes = 0;
  for (std::int64_t rows = 1; has_head() && rows <= kLogitRows; ++rows) {
    head_bytes = std::max(head_bytes, head_.scratch_bytes(rows));
  }
  MemoryPlan plan;
  store_->request(plan, {});
  const std::size_t num_stages = model_->stages.size() - (has_head() ? 1 : 0);
  const parallel::Pipeline alone = {1, 1, {0, num_stages}};
  for (const std::int64_t rows : sizes_) {
    runners_.emplace_back(*model_, *store_, parallel::Use::kGenerate, 1, rows,
                          parallel::forward_schedule(alone, 0));
    runners_.back().request(plan);
  }
  std::vector<int> caches;
  for (std::int64_t i = 0; i < 2 * layers_.count(config); ++i) {
    caches.push_back(plan.request_forever("cache", "kv cache", cached.bytes()));
  }
  const int all_rows_request =
      plan.request_forever("all rows", "activations", tensor_size() > 1 ? all_rows.bytes() : 0);
  const int gathered_request =
      plan.request_forever("head input", "activations", has_head() ? hidden.bytes() : 0);
  const int logits_request =
      plan.request_forever("logits", "activations", has_head() ? logits.bytes() : 0);
  const int scratch_request = plan.request_forever("head", "scratch", head_bytes);
  plan.place();

  arena_ = std::make_unique<Arena>(*device_, plan);
  store_->bind(*arena_);
  for (parallel::Runner& runner : runners_) runner.bind(*arena_);
  cache_.keys.resize(static_cast<std::size_t>(layers_.first));
  cache_.values.resize(static_cast<std::size_t>(layers_.first));
  for (std::size_t i = 0; i < caches.size(); i += 2) {
    cache_.keys.push_back(arena_->tensor(caches[i], cached));
    cache_.values.push_back(arena_->tensor(caches[i + 1], cached));
  }
  cache_.block_size = kBlockSize;
  if (tensor_size() > 1) all_rows_ = arena_->tensor(all_rows_request, all_rows);
  if (!has_head()) return;
  gathered_ = arena_->tensor(gathered_request, hidden);
  logits_ = arena_->tensor(logits_request, logits);
  head_scratch_ = {arena_->data(scratch_request), head_bytes};
}

void StepModel::make_adapter_room(std::int64_t rank) {
  if (rank == 0) return;
  ATOLL_CHECK(ranks_ == nullptr, "adapters beside each other are of one rank");
  ATOLL_CHECK(layers_.count(model_->config) == model_->config.num_layers,
              "adapters of a part of the layers");
  served_.max_rank = rank;
  linears_ = nn::linears_of(*model_);
  for (nn::Linear* linear : linears_) linear->serve_adapters(&served_);
}

std::size_t StepModel::place_of(const StepAdapter& adapter, std::vector<bool>& used) {
  auto place =
      static_cast<std::size_t>(std::ranges::find(places_, adapter.number) - places_.begin());
  if (place == places_.size()) {
    // The first one that nothing of this step has; factors are views, so this copies none.
    place = static_cast<std::size_t>(std::ranges::find(used, false) - used.begin());
    if (place == places_.size()) {
      places_.push_back(0);
      used.push_back(false);
    }
    places_[place] = adapter.number;
    ATOLL_CHECK_EQ(adapter.linears.size(), linears_.size());
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      linears_[i]->serve_factors(place, adapter.linears[i]);
    }
  }
  used[place] = true;
  return place;
}

// Pieces of one adapter that stand beside each other go through its products together.
void StepModel::name_adapter_rows(std::span<const Piece> pieces) {
  served_.rows.clear();
  std::vector<bool> used(places_.size(), false);
  // Those that have a place keep it in this step.
  for (const Piece& piece : pieces) {
    if (piece.adapter == nullptr) continue;
    const auto at = std::ranges::find(places_, piece.adapter->number);
    if (at != places_.end()) used[static_cast<std::size_t>(at - places_.begin())] = true;
  }
  std::int64_t row = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t count = std::ssize(piece.tokens);
    if (piece.adapter != nullptr) {
      const std::size_t adapter = place_of(*piece.adapter, used);
      const bool goes_on = !served_.rows.empty() && served_.rows.back().adapter == adapter &&
                           served_.rows.back().begin + served_.rows.back().count == row;
      if (goes_on) {
        served_.rows.back().count += count;
      } else {
        served_.rows.push_back({row, count, adapter});
      }
    }
    row += count;
  }
}

void StepModel::take_input(std::int64_t rows, std::span<const float> input) {
  if (layers_.first == 0) return;
  ATOLL_CHECK_EQ(std::ssize(input), rows * model_->config.hidden_size);
  std::ranges::copy(input, input_.begin());
  std::fill(input_.begin() + std::ssize(input), input_.end(), 0.0F);
}

Tensor StepModel::forward(std::span<const Piece> pieces, std::span<const float> input) {
  std::ranges::fill(tokens_, 0);
  std::ranges::fill(positions_, 0);
  cache_.sequences.clear();
  std::int64_t row = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t count = std::ssize(piece.tokens);
    ATOLL_CHECK(count > 0 && row + count <= room_.max_rows &&
                    piece.first_position + count <= room_.max_positions,
                "{} rows after {}, at position {}", count, row, piece.first_position);
    std::ranges::copy(piece.tokens, tokens_.begin() + row);
    for (std::int64_t i = 0; i < count; ++i) {
      positions_[static_cast<std::size_t>(row + i)] =
          static_cast<std::int32_t>(piece.first_position + i);
    }
    cache_.sequences.push_back({row, count, piece.first_position, piece.blocks});
    row += count;
  }
  take_input(row, input);
  name_adapter_rows(pieces);
  const auto size = std::ranges::lower_bound(sizes_, row);
  const Spec spec = {Dtype::kI32, {1, *size}};
  const Batch batch = {.tokens = Tensor(tokens_.data(), spec),
                       .positions = Tensor(positions_.data(), spec)};
  const Run run = {.stream = stream_.get(), .row_stable = true};
  const Tensor hidden =
      runners_[static_cast<std::size_t>(size - sizes_.begin())].generate(run, batch, cache_);
  return hidden.reshaped({hidden.dim(1), hidden.dim(2)});
}

void StepModel::give_logits(const Tensor& hidden, std::span<const Row> rows,
                            const TakeLogits& take) {
  const std::int64_t count = std::ssize(rows);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)].of_step;
    copy_now(hidden.rows(row, row + 1), gathered_.rows(i, i + 1));
  }
  Run run = {.stream = stream_.get(), .scratch = head_scratch_, .row_stable = true};
  const Tensor logits = logits_.rows(0, count);
  head_.compute(run, gathered_.rows(0, count), logits);
  const auto vocab_size = static_cast<std::size_t>(logits.dim(1));
  const HostRead read(logits);
  std::vector<RowLogits> given;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    given.push_back({rows[i].piece, rows[i].of_piece,
                     read.elements<float>().subspan(i * vocab_size, vocab_size)});
  }
  take(given);
}

std::vector<float> StepModel::pass_on(std::span<const Piece> pieces, std::span<const float> input) {
  ATOLL_CHECK(!has_head(), "behind the head nothing follows");
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) rows += std::ssize(piece.tokens);
  const HostRead read(forward(pieces, input).rows(0, rows));
  const std::span<const float> hidden = read.elements<float>();
  return {hidden.begin(), hidden.end()};
}

void StepModel::step(std::span<const Piece> pieces, const TakeLogits& take,
                     const TakeHidden& take_hidden, std::span<const float> input) {
  ATOLL_CHECK(has_head(), "these layers have no head");
  Tensor hidden = forward(pieces, input);
  const bool is_wanted = std::ranges::any_of(pieces, [](const Piece& piece) {
    return piece.wants_hidden || piece.wanted != Wanted::kNothing;
  });
  if (all_rows_.defined() && is_wanted) {
    Run run = {.stream = stream_.get(), .row_stable = true};
    const Tensor all = all_rows_.rows(0, hidden.dim(0) * tensor_size());
    nn::gather_rows(run, *model_->tensor, hidden, all);
    hidden = all;
  }
  std::vector<Row> rows;
  std::int64_t first = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const std::int64_t count = std::ssize(pieces[p].tokens);
    const std::int64_t skipped = pieces[p].wanted == Wanted::kNothing ? count
                                 : pieces[p].wanted == Wanted::kLast  ? count - 1
                                                                      : 0;
    for (std::int64_t i = skipped; i < count; ++i) rows.push_back({p, i, first + i});
    if (pieces[p].wants_hidden) {
      const HostRead read(hidden.rows(first, first + count));
      take_hidden(p, read.elements<float>());
    }
    first += count;
  }
  const std::span<const Row> all(rows);
  for (std::size_t at = 0; at < all.size(); at += kLogitRows) {
    give_logits(hidden, all.subspan(at, std::min<std::size_t>(kLogitRows, all.size() - at)), take);
  }
}

}  // namespace atl::serve
