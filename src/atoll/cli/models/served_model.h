#pragma once

#include <string>

#include "atoll/model_dir/model_path.h"
#include "atoll/serve/api/serving.h"

namespace atl::cli {

/// What a command line says of a model that answers requests.
struct ServedModelWords {
  std::string model;          ///< as it was given
  std::string name;           ///< what clients call it; empty: the last part of `model`
  std::string chat_template;  ///< empty: the model's own
  std::string weights;        ///< how they are kept: "f32"
};

/// What answers need beside the generator, which must outlive it: tokenizer, template, ends, forms.
/// A model without a chat template gets a warning. Throws Error(kUser) for a template that was
/// named and is not there.
serve::api::ServedModel served_model(const ServedModelWords& words,
                                     const model_dir::ModelPath& path, serve::Generator& generator);

}  // namespace atl::cli
