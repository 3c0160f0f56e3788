#include "atoll/train/step/state.h"

#include <algorithm>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/nn/fp8.h"
#include "atoll/nn/models/adapted.h"
#include "atoll/optim/offloaded_optimizer.h"
#include "atoll/parallel/compress/onebit_adam.h"
#include "atoll/parallel/compress/zero_one_adam.h"
#include "atoll/parallel/state/whole_flat.h"
#include "atoll/parallel/store/store_offload.h"
#include "atoll/parallel/store/store_single.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/tensor/host_access.h"
#include "atoll/train/step/step_exchange.h"

namespace atl::train {

namespace {

std::unique_ptr<nn::Model> build(const StateOptions& options) {
  auto model = options.lora ? nn::build_adapted_model(options.model, options.build, *options.lora)
                            : nn::build_model(options.model, options.build);
  if (options.keep_stored) options.keep_stored(*model);
  if (options.fp8) nn::use_fp8(*model, *options.fp8);
  if (options.preference) {
    nn::use_preferences(*model, *options.preference,
                        options.preference_source ? options.preference_source
                                                  : std::make_shared<nn::PreferenceSource>());
  }
  if (options.change_model) options.change_model(*model);
  return model;
}

// After this the model has the stages of this rank.
std::unique_ptr<parallel::PipelinePart> cut(nn::Model& model, const StateOptions& options) {
  if (options.pipeline.num_ranks == 1) return nullptr;
  return std::make_unique<parallel::PipelinePart>(model, options.pipeline, options.context);
}

parallel::Runner make_runner(nn::Model& model, parallel::ParamStore& store,
                             const StateOptions& options, const parallel::PipelinePart* pipeline) {
  const auto use = options.training ? parallel::Use::kTrain : parallel::Use::kEvaluate;
  const std::int64_t length = options.context / options.build.context_size;
  if (pipeline == nullptr) return {model, store, use, options.micro_batch, length};
  if (!options.training) {
    return {model,  store,
            use,    options.micro_batch,
            length, parallel::forward_schedule(pipeline->pipeline(), options.pipeline.rank)};
  }
  return {model, store, use, options.micro_batch, length, pipeline->schedule()};
}

std::unique_ptr<parallel::ParamStore> make_store(nn::Model& model, const StateOptions& options) {
  const parallel::DataParallelOptions& shared = options.data_parallel;
  const bool in_file = options.training && options.offload.params;
  if (in_file && shared.is_plain()) return std::make_unique<parallel::OffloadStore>(model);
  if (in_file) {
    parallel::DataParallelOptions with_file = shared;
    with_file.in_file = true;
    return std::make_unique<parallel::DataParallelStore>(model, true, with_file);
  }
  if (shared.is_plain()) return std::make_unique<parallel::SingleStore>(model, options.training);
  return std::make_unique<parallel::DataParallelStore>(model, options.training, shared);
}

std::unique_ptr<parallel::OneBitOptimizer> make_onebit(const StateOptions& options,
                                                       const parallel::ParamStore& store) {
  const parallel::DataParallelOptions& shared = options.data_parallel;
  const parallel::CompressionOptions& how = shared.compression;
  if (how.gradients == parallel::Compression::kOneBitAdam) {
    return std::make_unique<parallel::OneBitAdam>(options.optimizer, store.layout(), store.ranges(),
                                                  shared.rank, how.warmup);
  }
  return std::make_unique<parallel::ZeroOneAdam>(options.optimizer, store.layout(), shared.rank,
                                                 parallel::ZeroOneSchedule{
                                                     .warmup = how.warmup,
                                                     .max_local = how.local_steps,
                                                     .last_step = how.last_step,
                                                 });
}

}  // namespace

TrainState::TrainState(const StateOptions& options)
    : options_(options),
      model_(build(options)),
      pipeline_(cut(*model_, options)),
      store_(make_store(*model_, options)),
      runner_(make_runner(*model_, *store_, options, pipeline_.get())) {
  if (pipeline_) pipeline_->attach(*store_);
  store_->request(plan_, runner_.schedule());
  runner_.request(plan_);
  MemoryPlan file;
  if (options.training && options.offload.params) {
    store_in_file_ = dynamic_cast<parallel::InFile*>(store_.get());
    store_in_file_->request_file(file);
  }
  if (options.training) {
    make_optimizer(file);
    optimizer_->request(plan_);
    std::size_t scratch_bytes = optimizer_->scratch_bytes();
    const parallel::DataParallelOptions& shared = options.data_parallel;
    if (options.replicate && shared.zero != parallel::Zero::kNone && shared.num_ranks > 1) {
      replica_ = std::make_unique<parallel::Replica>(*store_, shared, options.optimizer);
      replica_->request(plan_);
      scratch_bytes = std::max(scratch_bytes, replica_->scratch_bytes());
    }
    // The update comes after the last pass: its scratch shares the memory of activations.
    const std::int64_t tick = MemoryPlan::kForever - 1;
    optimizer_scratch_request_ =
        plan_.request("optimizer scratch", "scratch", scratch_bytes, tick, tick);
  }
  plan_.place();
  file_plan_ = in_whole_pages(file);
}

TrainState::~TrainState() = default;

void TrainState::make_optimizer(MemoryPlan& file) {
  const OffloadChoice& offload = options_.offload;
  const parallel::DataParallelOptions& shared = options_.data_parallel;
  if (shared.compression.sends_signs()) {
    auto onebit = make_onebit(options_, *store_);
    onebit_ = onebit.get();
    optimizer_ = std::move(onebit);
    return;
  }
  if (!offload.optimizer) {
    ATOLL_CHECK(!offload.params, "parameters in a file need the optimizer's state there");
    const std::span<const optim::ParamRange> ranges = store_->ranges();
    const bool draws = options_.optimizer.masters == optim::Masters::kStochastic;
    optimizer_ = optim::make_optimizer(
        options_.optimizer, store_->flat(),
        draws && !has_whole_model()
            ? parallel::drawn_by_whole(parallel::runs_in_whole(store_->layout(), whole_layout(),
                                                               [](const auto&) { return true; }),
                                       ranges)
            : std::vector(ranges.begin(), ranges.end()));
    return;
  }
  auto offloaded = std::make_unique<optim::OffloadedOptimizer>(
      options_.optimizer, store_->flat(), store_->ranges(),
      optim::OffloadOptions{
          .piece_elements = offload.piece_elements,
          .values_in_file = offload.params,
          .grads_in_file = offload.params && store_in_file_->has_gradients_in_file()});
  offloaded->request_file(file);
  offloaded_optimizer_ = offloaded.get();
  optimizer_ = std::move(offloaded);
}

// Before memory: where the disk has no room, nothing is taken.
void TrainState::make_file() {
  if (offloaded_optimizer_ == nullptr) return;
  if (options_.offload.directory.empty()) {
    return offloaded_optimizer_->take_host_memory(*device_, file_plan_);
  }
  file_ = std::make_unique<FileArena>(*device_, options_.offload.directory, file_plan_);
  if (store_in_file_ != nullptr) store_in_file_->bind_file(*file_);
  offloaded_optimizer_->bind_file(*file_);
}

void TrainState::allocate(Device& device) {
  device_ = &device;
  make_file();
  arena_ = std::make_unique<Arena>(device, plan_);
  if (options_.build.context_size > 1) {
    context_share_.emplace(device, model_->options.sequence_part(), options_.micro_batch,
                           options_.context);
  }
  store_->bind(*arena_);
  runner_.bind(*arena_);
  if (!options_.training) return;
  if (runner_.has_losses()) host_losses(options_.data_parallel.rounds);
  optimizer_->bind(*arena_);
  if (replica_) replica_->bind(*arena_);
  const auto request = static_cast<std::size_t>(optimizer_scratch_request_);
  optimizer_scratch_ = {arena_->data(optimizer_scratch_request_),
                        plan_.placements()[request].bytes};
}

Tensor TrainState::host_losses(std::int64_t num_micro_batches) {
  const Tensor one = runner_.losses();
  const Spec spec = {one.dtype(), {num_micro_batches, one.dim(0), one.dim(1)}};
  if (losses_.bytes() < spec.bytes()) losses_ = Buffer(*device_, spec.bytes(), MemoryKind::kHost);
  return tensor_in(losses_, spec);
}

const parallel::FlatLayout& TrainState::whole_layout() {
  if (has_whole_model()) return store_->layout();
  if (!whole_layout_) {
    StateOptions whole = options_;
    whole.build.tensor_size = 1;
    whole.build.tensor_rank = 0;
    whole.build.context_size = 1;
    whole.build.context_rank = 0;
    whole.build.expert_size = 1;
    whole.build.expert_rank = 0;
    whole_model_ = build(whole);
    whole_layout_.emplace(*whole_model_, parallel::LayoutOptions{});
  }
  return *whole_layout_;
}

void TrainState::connect(comm::Group& group, comm::Group& shard, comm::Group* replicate) {
  group_ = &group;
  shard_group_ = &shard;
  replicate_group_ = replicate;
  exchange_.reset();
  store_->connect(shard, replicate);
  if (onebit_ != nullptr) onebit_->connect(shard);
}

StepExchange& TrainState::exchange() {
  if (!exchange_) exchange_ = make_step_exchange(*this);
  return *exchange_;
}

// Of gradients that are not summed yet, exactly one rank has each element, or all have a part of
// it.
void TrainState::add_residual_gradient(bool sums) {
  const parallel::DataParallelOptions& shared = options_.data_parallel;
  const bool all_have_it = shared.zero == parallel::Zero::kNone;
  const float part = sums || !all_have_it ? 1.0F : 1.0F / static_cast<float>(shared.num_ranks);
  residual_gradient_.add_to(*store_, part);
}

std::vector<optim::StateTensor> TrainState::pieces_to_save() {
  std::vector<optim::StateTensor> pieces = parallel::held_pieces(*store_, optimizer_.get());
  for (optim::StateTensor& piece : residual_gradient_.state()) pieces.push_back(std::move(piece));
  return pieces;
}

void TrainState::connect_tensor(comm::Group& all, comm::Group& tensor, comm::Group& kv_copies) {
  all_ = &all;
  if (tensor.size() == 1) return;
  tensor_group_ = &tensor;
  model_->tensor->group = &tensor;
  model_->kv_copies->group = &kv_copies;
}

void TrainState::connect_context(comm::Group& all, comm::Group& sharing, comm::Group& context) {
  all_ = &all;
  sharing_ = &sharing;
  context_group_ = &context;
  exchange_.reset();
  model_->context->group = &context;
}

void TrainState::connect_experts(comm::Group& all, comm::Group& sharing, comm::Group& experts) {
  all_ = &all;
  sharing_ = &sharing;
  model_->expert->group = &experts;
}

void TrainState::connect_parts(comm::Group& parts) {
  parts_group_ = &parts;
  model_->parts->group = &parts;
}

void TrainState::connect_pipeline(comm::Group& all, comm::Group& pipeline, comm::Group* ends) {
  all_ = &all;
  exchange_.reset();
  pipeline_->connect(pipeline, ends);
  runner_.connect(pipeline);
}

std::span<const Batch> TrainState::hold(std::int64_t num_micro_batches,
                                        const std::function<Batch()>& next) {
  const Spec largest = {Dtype::kI32, {options_.micro_batch, options_.context}};
  held_batches_.clear();
  for (std::int64_t i = 0; i < num_micro_batches; ++i) {
    Batch batch = own_part(next());
    std::size_t number = static_cast<std::size_t>(4 * i);
    for (Tensor* tensor :
         {&batch.tokens, &batch.targets, &batch.positions, &batch.sequence_positions}) {
      if (number == held_.size()) held_.emplace_back(*device_, largest.bytes(), MemoryKind::kHost);
      const Buffer& memory = held_[number++];
      if (!tensor->defined()) continue;
      const Tensor copy = tensor_in(memory, tensor->spec());
      copy_now(*tensor, copy);
      *tensor = copy;
    }
    held_batches_.push_back(batch);
  }
  return held_batches_;
}

namespace {

// Of the ranks of a group, those whose hashes are compared: the first of them, by place, whose hash
// is not that of the one at place % stride, after that one, as ranks of the world. Empty: all
// agree.
std::vector<int> first_that_differs(comm::Group& group, const Hash128& hash, int stride) {
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group.size()));
  const auto mine = 2 * static_cast<std::size_t>(group.rank());
  all[mine] = static_cast<std::int64_t>(hash.high);
  all[mine + 1] = static_cast<std::int64_t>(hash.low);
  group.all_gather({all.data(), {Dtype::kI64, {2 * group.size()}}},
                   group.even_parts(2 * group.size(), 2));
  for (int r = stride; r < group.size(); ++r) {
    const auto at = 2 * static_cast<std::size_t>(r);
    const auto first = 2 * static_cast<std::size_t>(r % stride);
    if (all[at] != all[first] || all[at + 1] != all[first + 1]) {
      return {group.members()[static_cast<std::size_t>(r % stride)],
              group.members()[static_cast<std::size_t>(r)]};
    }
  }
  return {};
}

// What this rank holds that others of `axis` hold too.
Hash128 hash_of_shared(TrainState& state, const nn::Axis& axis) {
  Hasher hasher;
  for (const nn::Param* param : state.store().trained()) {
    for (const nn::Sharing& sharing : param->shared_by) {
      if (sharing.axis != &axis) continue;
      const HostRead read(param->value.rows(sharing.row, param->value.dim(0)));
      hasher.update(read.bytes().data(), read.bytes().size());
    }
  }
  return hasher.digest();
}

}  // namespace

std::vector<int> replicas_that_differ(TrainState& state) {
  comm::Group* all = state.all_ranks();
  if (all == nullptr || all->size() == 1) return {};
  const parallel::DataParallelOptions& shared = state.options().data_parallel;
  const bool is_gathered = shared.zero == parallel::Zero::kParameters;
  state.store().settle();
  std::vector<int> differing;
  if (comm::Group& sharing = *state.sharing_group(); sharing.size() > 1) {
    const Tensor computed_with = state.store().computed_with();
    const HostRead values(computed_with.defined() ? computed_with : state.store().values());
    // With ZeRO 3 only the same part of another copy is a replica.
    differing =
        first_that_differs(sharing, hash_bytes(values.bytes().data(), values.bytes().size()),
                           is_gathered ? shared.num_ranks : 1);
  }
  const bool has_part = state.parts_group() != nullptr;
  if (!has_part && state.pipeline() == nullptr && state.context_group() == nullptr) {
    return differing;
  }
  // What several of the ranks that have parts hold; with ZeRO 3 nobody has it whole between steps.
  const nn::Model& model = state.model();
  for (const nn::Axis* axis : {model.tensor.get(), model.kv_copies.get(), model.expert.get()}) {
    if (!has_part || is_gathered || axis->size == 1) continue;
    const std::vector<int> found =
        first_that_differs(*axis->group, hash_of_shared(state, *axis), 1);
    if (differing.empty()) differing = found;
  }
  // Only some groups have seen it: all ranks tell it.
  std::vector<std::int64_t> told(2 * static_cast<std::size_t>(all->size()), -1);
  const auto mine = 2 * static_cast<std::size_t>(all->rank());
  if (!differing.empty())
    std::copy(differing.begin(), differing.end(), told.begin() + static_cast<std::ptrdiff_t>(mine));
  all->all_gather({told.data(), {Dtype::kI64, {2 * all->size()}}},
                  all->even_parts(2 * all->size(), 2));
  for (std::size_t at = 0; at < told.size(); at += 2) {
    if (told[at] >= 0) return {static_cast<int>(told[at]), static_cast<int>(told[at + 1])};
  }
  return {};
}

std::string describe_memory(const MemoryPlan& plan) {
  std::vector<std::string> groups;
  for (const Placement& placement : plan.placements()) {
    if (std::find(groups.begin(), groups.end(), placement.group) == groups.end()) {
      groups.push_back(placement.group);
    }
  }
  const auto line = [](const std::string& name, std::size_t bytes) {
    return fmt::format("  {:<14} {:>12.2f} MiB\n", name, static_cast<double>(bytes) / (1 << 20));
  };
  std::string text;
  for (const std::string& group : groups) text += line(group, plan.peak_bytes(group));
  return text + line("total", plan.total_bytes());
}

}  // namespace atl::train
