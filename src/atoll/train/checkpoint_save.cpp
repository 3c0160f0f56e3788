#include "atoll/train/checkpoint_save.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/ckpt/hf/weights.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/comm/world.h"
#include "atoll/parallel/gather_text.h"

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
      text += fmt::format("{} {} {}\n", first_file + static_cast<std::size_t>(takers[i]),
                          std::exchange(bytes, 0), part.name);
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
  if (const comm::Group* tensor = state.tensor_group()) {
    tensor_size_ = tensor->size();
    tensor_rank_ = tensor->rank();
  }
  collect(state);
  if (whole_) plan_files(state);
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

void CheckpointSave::collect(TrainState& state) {
  const parallel::FlatLayout& layout = state.store().layout();
  if (is_first_copy(state)) {
    comm::Group* writing = group_ == nullptr ? nullptr : unless_alone(state.shard_group());
    // Of the ranks that share products, some data-parallel rank's, each is a writer.
    takers_ =
        parallel::share_out(layout, (writing == nullptr ? 1 : writing->size()) * tensor_size_);
    whole_.emplace(layout, parallel::held_pieces(state.store(), &state.optimizer()), writing);
  }
  std::string directory;
  agree([&] {
    if (whole_) {
      const bool one_file = !options_.adapter_file.empty();
      whole_->allocate(
          [&](const std::string& name, std::size_t i) {
            return name.empty() && one_file ? 0 : takers_[i] / tensor_size_;
          },
          options_.mode == Mode::kBeside);
    }
    if (!is_lead()) return;
    writer_.emplace(options_.root, options_.step);
    directory = writer_->temporary().filename().string();
  });
  directory = parallel::gather_text(group_, directory).front();
  agree([&] {
    if (whole_) part_.emplace(options_.root / directory);
  });
  if (!whole_) return;
  number_files(layout);
  whole_->collect();
  if (tensor_size_ == 1) return;
  std::map<const nn::Param*, int> taker;
  for (std::size_t i = 0; i < takers_.size(); ++i) {
    taker[layout.trained()[i]] = takers_[i] % tensor_size_;
  }
  assembled_.emplace(whole_->tensors(), *state.tensor_group(),
                     [&](const nn::Param& param) { return taker.at(&param); });
}

// The ranks of a pipeline have other parameters, and each of them files of its own.
void CheckpointSave::number_files(const parallel::FlatLayout& layout) {
  const auto own = 1 + static_cast<std::size_t>(std::ranges::max(takers_));
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

void CheckpointSave::plan_files(TrainState& state) {
  const int shard = group_ == nullptr ? 0 : state.shard_group()->rank();
  const int writer = shard * tensor_size_ + tensor_rank_;
  const bool writes = writer <= std::ranges::max(takers_);
  const std::size_t file = first_file_ + static_cast<std::size_t>(writer);
  const bool is_adapter = !options_.adapter_file.empty();
  File values = {ckpt::shard_name("model", file, num_files_), {}, kWeightsMetadata};
  if (is_adapter) values.name = options_.adapter_file;
  File optimizer = {ckpt::shard_name("optimizer", file, num_files_), {}, {}};
  const auto tensors = assembled_ ? assembled_->tensors() : whole_->tensors();
  for (const parallel::WholeTensor& whole : tensors) {
    if (pipeline_ != nullptr && !pipeline_->counts(*whole.param)) continue;
    File& file = whole.name.empty() ? values : optimizer;
    const ckpt::ParamTensor held = {whole.param, whole.tensor};
    const std::string prefix = whole.name.empty() ? "" : whole.name + ".";
    for (ckpt::TensorSource& source : ckpt::file_sources(std::span(&held, 1), prefix)) {
      file.sources.push_back(std::move(source));
    }
  }
  if (is_adapter ? writer == 0 : writes) files_.push_back(std::move(values));
  if (writes) files_.push_back(std::move(optimizer));
  if (is_lead() && !options_.extra.file.empty()) {
    files_.push_back({options_.extra.file, std::move(options_.extra.sources), {}});
  }
  if (!is_lead()) {
    options_.texts.clear();
  } else if (!is_adapter && num_files_ > 1) {
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
