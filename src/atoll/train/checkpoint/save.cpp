#include "atoll/train/checkpoint/save.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/ckpt/hf/stacked_experts.h"
#include "atoll/ckpt/hf/weights.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/comm/world.h"
#include "atoll/parallel/layout/gather_stages.h"
#include "atoll/parallel/layout/gather_text.h"
#include "atoll/tensor/file_arena.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// transformers asks for this entry before it loads a file.
const ckpt::Metadata kWeightsMetadata = {{"format", "pt"}};

comm::Group* unless_alone(comm::Group* group) {
  return group == nullptr || group->size() == 1 ? nullptr : group;
}

bool is_first_copy(const TrainState& state) {
  return state.replicate_group() == nullptr || state.replicate_group()->rank() == 0;
}

// The ranks that write files: none of a stage that trains nothing.
std::size_t num_writers(const std::vector<int>& takers) {
  return takers.empty() ? 0 : 1 + static_cast<std::size_t>(std::ranges::max(takers));
}

// The tensors of the files that hold the model's values, one a line: the file's number, the bytes
// of a parameter, beside its first tensor, and the tensor's name.
std::string contents_of(const parallel::FlatLayout& layout, const std::vector<int>& takers,
                        std::size_t first_file, const parallel::PipelinePart* pipeline) {
  std::string text;
  for (std::size_t i = 0; i < takers.size(); ++i) {
    if (pipeline != nullptr && !pipeline->counts(*layout.trained()[i])) continue;
    const nn::Param& param = nn::whole_param(*layout.trained()[i]);
    std::size_t bytes = param.spec.bytes();
    for (const nn::FileTensor& part : param.files) {
      const auto stacked = ckpt::stacked_expert(part.name);
      text += fmt::format("{} {} {}\n", first_file + static_cast<std::size_t>(takers[i]),
                          std::exchange(bytes, 0), stacked ? stacked->tensor : part.name);
    }
  }
  return text;
}

std::string index_of(const std::vector<std::string>& contents, std::size_t num_files) {
  std::map<std::string, std::string> file_of_tensor;
  std::uint64_t total = 0;
  for (const std::string& text : contents) {
    std::istringstream lines(text);
    std::size_t number = 0, bytes = 0;
    std::string name;
    while (lines >> number >> bytes && lines.get() == ' ' && std::getline(lines, name)) {
      file_of_tensor[name] = ckpt::shard_name("model", number, num_files);
      total += bytes;
    }
    ATOLL_CHECK(lines.eof(), "tensors \"{}\"", text);
  }
  return ckpt::weights_index_json(file_of_tensor, total);
}

// One line a file: bytes, hash, name.
std::string to_text(const std::vector<ckpt::ManifestFile>& files) {
  std::string text;
  for (const ckpt::ManifestFile& file : files) {
    text += fmt::format("{} {} {}\n", file.bytes, file.hash, file.name);
  }
  return text;
}

std::vector<ckpt::ManifestFile> from_text(const std::string& text) {
  std::vector<ckpt::ManifestFile> files;
  std::istringstream lines(text);
  ckpt::ManifestFile file;
  while (lines >> file.bytes >> file.hash && lines.get() == ' ' && std::getline(lines, file.name)) {
    files.push_back(file);
  }
  ATOLL_CHECK(lines.eof(), "files \"{}\"", text);
  return files;
}

}  // namespace

CheckpointSave::CheckpointSave(TrainState& state, const Options& options)
    : options_(options), group_(unless_alone(state.all_ranks())), pipeline_(state.pipeline()) {
  if (const comm::Group* parts = state.parts_group()) {
    parts_size_ = parts->size();
    parts_rank_ = parts->rank();
  }
  collect_and_begin({.layout = state.store().layout(),
                     .pieces = [&] { return state.pieces_to_save(); },
                     .sharing = group_ == nullptr ? nullptr : unless_alone(state.shard_group()),
                     .is_first_copy = is_first_copy(state),
                     .state = &state});
}

CheckpointSave::CheckpointSave(const parallel::FlatLayout& whole,
                               std::vector<optim::StateTensor> pieces, comm::Group& group,
                               const Options& options)
    : options_(options), group_(unless_alone(&group)), pipeline_(nullptr) {
  collect_and_begin(
      {.layout = whole, .pieces = [&] { return std::move(pieces); }, .sharing = group_});
}

void CheckpointSave::collect_and_begin(const Origin& origin) {
  collect(origin);
  if (!is_lead()) options_.texts.clear();
  if (whole_) plan_files(origin);
  if (!options_.extra.file.empty()) {
    files_.push_back({options_.extra.file, std::move(options_.extra.sources), {}});
  }
  if (options_.mode == Mode::kNow) return;
  try {
    thread_ = std::thread([this] { finish(); });
  } catch (...) {  // the system has no thread: told by commit(), which all ranks call
    failure_ = std::current_exception();
    finished_ = true;
  }
}

CheckpointSave::~CheckpointSave() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSave::agree(const std::function<void()>& action) {
  if (group_ == nullptr) return action();
  group_->world().agree(action);
}

void CheckpointSave::collect(const Origin& origin) {
  const parallel::FlatLayout& layout = origin.layout;
  comm::Group* writing = origin.sharing;
  if (origin.is_first_copy) {
    // Of the ranks that have parts, some data-parallel rank's, each is a writer.
    takers_ = parallel::share_out(layout, (writing == nullptr ? 1 : writing->size()) * parts_size_);
    whole_.emplace(layout, origin.pieces(), writing);
  }
  const bool one_file = !options_.adapter_file.empty();  // of values
  std::string directory;
  agree([&] {
    if (whole_) {
      whole_->allocate(
          [&](const std::string& name, std::size_t i) {
            return name.empty() && one_file ? 0 : takers_[i] / parts_size_;
          },
          options_.mode == Mode::kBeside);
    }
    if (!is_lead()) return;
    writer_.emplace(options_.root, options_.step);
    directory = writer_->temporary().filename().string();
  });
  directory = parallel::gather_text(group_, directory).front();
  agree([&] {
    if (whole_ || !options_.extra.file.empty()) part_.emplace(options_.root / directory);
  });
  if (!whole_) return;
  number_files(layout);
  whole_->collect();
  if (parts_size_ > 1) {
    std::map<const nn::Param*, int> taker;
    for (std::size_t i = 0; i < takers_.size(); ++i) {
      taker[layout.trained()[i]] = takers_[i] % parts_size_;
    }
    assembled_.emplace(whole_->tensors(), *origin.state->parts_group(),
                       [&](const parallel::WholeTensor& part) {
                         return part.name.empty() && one_file ? 0 : taker.at(part.param);
                       });
  }
  const bool has_values = parts_rank_ == 0 && (writing == nullptr || writing->rank() == 0);
  if (one_file && pipeline_ != nullptr && has_values) collect_adapter(*origin.state);
}

// One rank writes the file that PEFT wants, so that the others of its pipeline send it theirs.
void CheckpointSave::collect_adapter(TrainState& state) {
  std::map<std::string, Tensor> held;
  for (const parallel::WholeTensor& one : assembled_ ? assembled_->tensors() : whole_->tensors()) {
    if (one.name.empty()) held[nn::whole_param(*one.param).name] = one.tensor;
  }
  const std::span<nn::Param* const> mine = state.store().trained();
  const auto take = [&](const nn::Param& param, const Tensor& value) {
    adapter_memory_.emplace_back(new std::byte[value.bytes()]);
    const Tensor copy(adapter_memory_.back().get(), value.spec());
    copy_now(value, copy);
    adapter_.push_back({"", &param, copy});
  };
  parallel::gather_stages(
      state.whole_layout().trained(), mine, pipeline_->group(),
      {[&](std::size_t i) { return held.at(nn::whole_param(*mine[i]).name); }, take});
}

// The ranks of a pipeline have other parameters, and each of them files of its own.
void CheckpointSave::number_files(const parallel::FlatLayout& layout) {
  const std::size_t own = num_writers(takers_);
  num_files_ = own;
  if (pipeline_ != nullptr) {
    num_files_ = 0;
    const std::vector<std::string> counts =
        parallel::gather_text(&pipeline_->group(), std::to_string(own));
    for (std::size_t r = 0; r < counts.size(); ++r) {
      if (static_cast<int>(r) == pipeline_->options().rank) first_file_ = num_files_;
      num_files_ += std::stoul(counts[r]);
    }
  }
  const std::string contents = contents_of(layout, takers_, first_file_, pipeline_);
  contents_ = parallel::gather_text(pipeline_ == nullptr ? nullptr : &pipeline_->group(), contents);
}

void CheckpointSave::plan_files(const Origin& origin) {
  const int shard = origin.sharing == nullptr ? 0 : origin.sharing->rank();
  const int writer = shard * parts_size_ + parts_rank_;
  const bool writes = writer < static_cast<int>(num_writers(takers_));
  const std::size_t file = first_file_ + static_cast<std::size_t>(writer);
  const bool is_adapter = !options_.adapter_file.empty();
  File values = {ckpt::shard_name("model", file, num_files_), {}, kWeightsMetadata};
  if (is_adapter) values.name = options_.adapter_file;
  File optimizer = {ckpt::shard_name("optimizer", file, num_files_), {}, {}};
  const bool is_gathered = is_adapter && pipeline_ != nullptr;  // all values are in adapter_
  const auto tensors = assembled_ ? assembled_->tensors() : whole_->tensors();
  std::vector<parallel::WholeTensor> written = adapter_;
  for (const parallel::WholeTensor& whole : tensors) {
    if (pipeline_ != nullptr && !pipeline_->counts(*whole.param)) continue;
    if (!whole.name.empty() || !is_gathered) written.push_back(whole);
  }
  for (const parallel::WholeTensor& whole : written) {
    File& file = whole.name.empty() ? values : optimizer;
    const ckpt::ParamTensor held = {whole.param, whole.tensor};
    const std::string prefix = whole.name.empty() ? "" : whole.name + ".";
    for (ckpt::TensorSource& source : ckpt::file_sources(std::span(&held, 1), prefix)) {
      // State that lies in a file is in memory a tensor at a time.
      source.produce = [produce = std::move(source.produce),
                        tensor = whole.tensor](const ckpt::ByteSink& sink) {
        produce(sink);
        give_back(tensor);
      };
      file.sources.push_back(std::move(source));
    }
  }
  const bool is_first = pipeline_ == nullptr || pipeline_->options().rank == 0;
  if (is_adapter ? writer == 0 && is_first : writes) files_.push_back(std::move(values));
  if (writes) files_.push_back(std::move(optimizer));
  if (is_lead() && !is_adapter && num_files_ > 1) {
    options_.texts.emplace_back(ckpt::kWeightsIndexFile, index_of(contents_, num_files_));
  }
}

// What is read back here need not be read by one rank for all.
void CheckpointSave::write() {
  if (!part_) return;
  for (const auto& [name, content] : options_.texts) part_->add(name, content);
  for (const File& file : files_) part_->add_tensors(file.name, file.sources, file.metadata);
  part_->verify();
}

void CheckpointSave::finish() {
  try {
    write();
  } catch (...) {
    failure_ = std::current_exception();
  }
  finished_ = true;
}

fs::path CheckpointSave::commit() {
  agree([&] {
    if (options_.mode == Mode::kNow) write();
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  });
  const std::vector<std::string> written =
      parallel::gather_text(group_, part_ ? to_text(part_->files()) : "");
  agree([&] {
    if (!writer_) return;
    for (const std::string& text : written) {
      for (const ckpt::ManifestFile& file : from_text(text)) writer_->include(file);
    }
    writer_->commit();
  });
  return options_.root / ckpt::checkpoint_name(options_.step);
}

}  // namespace atl::train
