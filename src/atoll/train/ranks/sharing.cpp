#include "atoll/train/ranks/sharing.h"

#include <algorithm>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/optim/optimizer.h"
#include "atoll/train/config/compress.h"

namespace atl::train {

namespace {

// "4 ranks"; "4 data-parallel ranks" where there are others.
std::string counted_ranks(const TrainConfig& config, int num_ranks) {
  const train::ParallelSettings& parallel = config.parallel;
  const bool has_others = parallel.tp * parallel.pp * parallel.cp * parallel.ep > 1;
  return counted(num_ranks, has_others ? "data-parallel rank" : "rank");
}

Error too_few_micro_batches(const TrainConfig& config, int num_ranks) {
  const LoopSettings& train = config.train;
  std::string remedy;
  if (train.batch_size >= num_ranks) {  // the same batch, in smaller passes
    std::int64_t fitting = train.batch_size / num_ranks;
    while (train.batch_size % fitting != 0) --fitting;
    remedy = fmt::format("--train.micro_batch={} or ", fitting);
  }
  return user_error(
      "train.batch_size = {} makes {} of train.micro_batch = {}, and each of {} needs one; give "
      "{}--train.batch_size={}",
      train.batch_size, counted(train.batch_size / train.micro_batch, "micro-batch"),
      train.micro_batch, counted_ranks(config, num_ranks), remedy, num_ranks * train.micro_batch);
}

// Ranks that share experts work on each other's tokens: they take as many passes.
void check_even_for_experts(const TrainConfig& config, std::int64_t micro_batches) {
  const std::int64_t e = config.parallel.ep;
  const std::int64_t over = micro_batches % e;
  if (over == 0) return;
  const std::int64_t nearest = micro_batches + (2 * over < e ? -over : e - over);
  throw user_error(
      "train.batch_size = {} makes {} of train.micro_batch = {}, which groups of parallel.ep = {} "
      "ranks cannot share evenly; the nearest that works is --train.batch_size={}",
      config.train.batch_size, counted(micro_batches, "micro-batch"), config.train.micro_batch, e,
      nearest * config.train.micro_batch);
}

}  // namespace

parallel::DataParallelOptions data_parallel_options(const TrainConfig& config, int data_ranks,
                                                    int rank) {
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (!config.train.exact && micro_batches < data_ranks) {
    throw too_few_micro_batches(config, data_ranks);
  }
  check_even_for_experts(config, micro_batches);
  const auto experts = static_cast<int>(config.parallel.ep);
  const int num_ranks = data_ranks / experts;
  const auto shard = config.dp.shard == 0 ? num_ranks : static_cast<int>(config.dp.shard);
  if (num_ranks % shard != 0) {
    throw user_error("{} cannot be cut into groups of dp.shard = {}; choose a divisor",
                     counted_ranks(config, num_ranks), shard);
  }
  if (shard < num_ranks && config.dp.zero == 0) {
    throw user_error(
        "dp.shard = {} says how many ranks share a copy, and dp.zero = 0 shares "
        "nothing; set dp.zero to 1, 2 or 3, or leave dp.shard out",
        shard);
  }
  if (shard < num_ranks && config.train.exact) {
    throw user_error(
        "train.exact sums gradients over all ranks in one order, which several copies "
        "(dp.shard = {} of {} ranks) do not; leave dp.shard out",
        shard, num_ranks);
  }
  if (shard < num_ranks && config.launch.replicate) {
    throw user_error(
        "launch.replicate copies the shares of ranks that share one copy, and dp.shard "
        "= {} of {} ranks makes several; leave one of them out",
        shard, num_ranks);
  }
  parallel::DataParallelOptions options;
  options.zero = static_cast<parallel::Zero>(config.dp.zero);
  options.num_ranks = shard;
  options.rank = rank / experts % shard;
  options.replicas = num_ranks / shard;
  options.exact = config.train.exact;
  options.rounds = (micro_batches + data_ranks - 1) / data_ranks;
  if (config.dp.balance)
    options.rounds = std::max<std::int64_t>(options.rounds, micro_batches - num_ranks + 1);
  options.bucket_bytes = static_cast<std::int64_t>(config.dp.bucket_mib * 0x1p20);
  options.whole_matrices = optim::find_optimizer(config.optim.kind).whole_matrices;
  return options;
}

int data_parallel_ranks(const TrainConfig& config, int num_ranks) {
  const auto tensor = static_cast<int>(config.parallel.tp);
  if (num_ranks % tensor != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.tp = {}; give a multiple of {} with -n, or "
        "another "
        "parallel.tp (1: each rank has whole products)",
        counted(num_ranks, "rank"), tensor, tensor);
  }
  const auto stages = static_cast<int>(config.parallel.pp);
  if (num_ranks / tensor % stages != 0) {
    throw user_error(
        "{} cannot be cut into pipelines of parallel.pp = {}; start a multiple of {}, or choose a "
        "divisor of {}",
        counted(num_ranks, "rank"), stages, stages * tensor, num_ranks / tensor);
  }
  const auto context = static_cast<int>(config.parallel.cp);
  if (num_ranks / tensor / stages % context != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.cp = {}; start a multiple of {}, or choose a "
        "divisor "
        "of {}",
        counted(num_ranks, "rank"), context, context * stages * tensor,
        num_ranks / tensor / stages);
  }
  const auto experts = static_cast<int>(config.parallel.ep);
  const int data_ranks = num_ranks / tensor / stages / context;
  if (data_ranks % experts != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.ep = {}; start a multiple of {}, or choose a "
        "divisor of {}",
        counted(num_ranks, "rank"), experts, experts * context * stages * tensor, data_ranks);
  }
  return data_ranks;
}

RankPlace place_of(const TrainConfig& config, int rank) {
  RankPlace place;
  const auto take = [&](std::int64_t size) {
    const auto at = static_cast<int>(rank % size);
    rank /= static_cast<int>(size);
    return at;
  };
  place.tensor = take(config.parallel.tp);
  place.expert = take(config.parallel.ep);
  place.stage = take(config.parallel.pp);
  place.context = take(config.parallel.cp);
  place.sharing = rank;
  return place;
}

parallel::DataParallelOptions sharing_options(const TrainConfig& config, int num_ranks, int rank) {
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  const auto context = static_cast<int>(config.parallel.cp);
  const auto experts = static_cast<int>(config.parallel.ep);
  const RankPlace place = place_of(config, rank);
  parallel::DataParallelOptions options =
      data_parallel_options(config, data_ranks, place.sharing * experts + place.expert);
  // Each adds a part of every gradient, as a data-parallel rank does.
  options.num_ranks *= context;
  options.rank = options.rank * context + place.context;
  if (config.parallel.pp > 1) options.rounds = 1;  // of all micro-batches
  options.compression = compression_options(config, options.num_ranks * options.replicas);
  return options;
}

parallel::PipelineOptions pipeline_options(const TrainConfig& config, int data_ranks, int place) {
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (micro_batches % data_ranks != 0) {
    throw user_error(
        "train.batch_size = {} makes {} of train.micro_batch = {}, which {} pipelines cannot share "
        "evenly; with parallel.pp = {}, make it a multiple of {}",
        config.train.batch_size, counted(micro_batches, "micro-batch"), config.train.micro_batch,
        data_ranks, config.parallel.pp, data_ranks * config.train.micro_batch);
  }
  return {.num_ranks = static_cast<int>(config.parallel.pp),
          .rank = place,
          .schedule = config.parallel.schedule,
          .chunks = static_cast<int>(config.parallel.chunks),
          .micro_batches = micro_batches / data_ranks};
}

void check_ranks(const TrainConfig& config, int num_ranks) {
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  data_parallel_options(config, data_ranks, 0);
  if (config.parallel.pp > 1) pipeline_options(config, data_ranks, 0);
}

}  // namespace atl::train
