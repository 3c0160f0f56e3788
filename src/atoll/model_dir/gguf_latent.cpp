#include "atoll/model_dir/gguf_latent.h"

#include <string>

#include "atoll/base/error.h"

namespace atl::model_dir {

namespace {

// "blk.3.attn_kv_b.weight" with another word before "_b".
std::string named(const std::string& key_value, const char* which) {
  constexpr std::string_view kFrom = "attn_kv_b";
  std::string name = key_value;
  return name.replace(name.find(kFrom), kFrom.size(), which);
}

}  // namespace

std::vector<ckpt::FloatRows> split_key_value(const ckpt::FloatRows& key_value,
                                             const nn::LatentShape& shape) {
  const std::int64_t rows = shape.content_dim + shape.value_dim;
  const std::int64_t heads = key_value.shape.front() / rows;
  if (key_value.shape.size() != 2 || heads * rows != key_value.shape[0] || heads == 0 ||
      key_value.width() != shape.kv_rank || shape.content_dim == 0) {
    throw user_error(
        "{} has {} rows of {}, and the model needs {} of {} for each head; \"qk_nope_head_dim\" of "
        "0 has no place in GGUF: export as hf",
        key_value.name, key_value.shape.front(), key_value.width(), rows, shape.kv_rank);
  }
  std::vector<ckpt::FloatRows> keys;
  std::vector<ckpt::FloatRows> values;
  for (std::int64_t head = 0; head < heads; ++head) {
    keys.push_back(
        ckpt::transpose_rows(ckpt::rows_between(key_value, head * rows, shape.content_dim)));
    values.push_back(
        ckpt::rows_between(key_value, head * rows + shape.content_dim, shape.value_dim));
  }
  std::vector<ckpt::FloatRows> both = {ckpt::stack_matrices(std::move(keys)),
                                       ckpt::stack_matrices(std::move(values))};
  both[0].name = named(key_value.name, "attn_k_b");
  both[1].name = named(key_value.name, "attn_v_b");
  return both;
}

ckpt::FloatRows join_key_value(const ckpt::FloatRows& keys, const ckpt::FloatRows& values) {
  const bool fits = keys.shape.size() == 3 && values.shape.size() == 3 &&
                    keys.shape[0] == values.shape[0] && keys.shape[1] == values.shape[2];
  if (!fits) {
    throw damaged_error("tensors \"{}\" and \"{}\" are not the keys and values of the same heads",
                        keys.name, values.name);
  }
  std::vector<ckpt::FloatRows> parts;
  for (std::int64_t head = 0; head < keys.shape[0]; ++head) {
    parts.push_back(ckpt::transpose_rows(ckpt::matrix_of_stack(keys, head)));
    parts.push_back(ckpt::matrix_of_stack(values, head));
  }
  return ckpt::join_rows(std::move(parts));
}

}  // namespace atl::model_dir
