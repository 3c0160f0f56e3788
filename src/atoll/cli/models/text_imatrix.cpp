#include "atoll/cli/models/text_imatrix.h"

#include <algorithm>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/names.h"
#include "atoll/data/tokenize.h"
#include "atoll/model_dir/model_room.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/family.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/step/input_squares.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

// As many as llama-imatrix takes; longer windows cost more attention and say the same of columns.
constexpr std::int64_t kWindow = 512;

// By the names of GGUF.
ckpt::Imatrix as_imatrix(const train::InputSquares& squares, const nn::GgufForm& form) {
  ckpt::Imatrix imatrix;
  for (const auto& [hf, means] : squares) {
    const auto name = ckpt::from_hf_name(form, hf);
    if (name) imatrix.columns[name->gguf] = means;
  }
  return imatrix;
}

}  // namespace

ckpt::Imatrix imatrix_of_text(const fs::path& model, const std::vector<std::string>& texts,
                              std::int64_t max_windows) {
  const Tokenizer tokenizer = model_dir::load_tokenizer(model);
  const nn::ModelConfig config = model_dir::read_model_config(model);
  const nn::Family& family = nn::find_family(config.family, model.string());
  const data::TokenVector tokens =
      data::tokenize_in_memory({.inputs = {texts.begin(), texts.end()},
                                .render_chat = train::chat_renderer("", model, tokenizer)},
                               tokenizer);
  const std::int64_t length = tokens.num_tokens();
  if (length < 2) {
    throw user_error("--imatrix-text: {} has {} tokens, and 2 are needed", texts.front(), length);
  }
  // The last token is only predicted.
  const std::int64_t window = std::min({kWindow, config.max_positions, length - 1});
  const std::int64_t windows = std::min(max_windows, (length - 1) / window);
  const auto device = open_device({});
  const auto stream = device->open_stream();
  train::StateOptions options;
  options.model = config;
  options.context = window;
  options.training = false;
  train::TrainState state(options);
  model_dir::check_weights(model, config, *device, sizeof(float), 1);
  model_dir::take_memory(model, config, [&] { state.allocate(*device); });
  model_dir::load_parameters(model, state.model(), state.store(), device->threads());
  log::info("importance: running the model over {} windows of {} tokens", windows, window);
  ckpt::Imatrix imatrix =
      as_imatrix(train::input_squares(state, *stream, tokens, windows * window), family.gguf);
  imatrix.name = fs::path(texts.front()).filename().string();
  imatrix.datasets = texts;
  imatrix.chunks = windows;
  return imatrix;
}

}  // namespace atl::cli
