#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "atoll/ops/int8/int8.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::serve {

/// How weights are kept for generation.
enum class Weights {
  kF32,
  kBf16,    ///< matrices as most published models have them; see RoundedStore
  kInt8,    ///< matrices rounded to 8 bits; see RoundedStore
  kStored,  ///< weights of linear layers in the bits of their files; see KeepStored
};
/// "f32", "bf16", "int8" or "stored"; throws Error(kUser) for another name.
Weights parse_weights(std::string_view name);

/// The parameters of a model that generates with bf16 or int8 weights: matrices that products read
/// are bf16 tensors, which is exact for a model that was stored so, or ops::Int8Matrix; the rest
/// (norms, biases, positions) stays f32. No matrix is ever held whole in f32 but the one that is
/// being written.
class RoundedStore final : public parallel::ParamStore {
 public:
  /// Sets as_bf16 or as_int8 in the model's parameters, before anything is planned with them; not
  /// for kF32. The device must outlive the store.
  RoundedStore(Device& device, nn::Model& model, Weights weights);

  void request(MemoryPlan& plan, const parallel::Schedule& schedule) override;
  void bind(const Arena& arena) override;
  void acquire(Run& /*run*/, const parallel::StagePass& /*pass*/, bool /*idle*/) override {}
  void release(Run& /*run*/, const parallel::StagePass& /*pass*/, bool /*idle*/) override {}
  void reduce(Run& /*run*/) override {}
  void publish(Run& /*run*/) override {}
  void settle() override {}

  /// Calls `fill` with one parameter at a time and rounds what it gives. Throws Error(kNumeric)
  /// naming the parameter when a weight that is to be int8 is not finite.
  void fill(const parallel::FillParam& fill) override;

 private:
  struct Requests {
    int value = -1;  // of a parameter that is not int8
    int int8 = -1;
    int scales = -1;
  };
  std::vector<Requests> requests_;  // one a parameter
  std::unique_ptr<Stream> stream_;
};

/// For kStored: chooses what stays in the bits of its file, as model_dir::keep_stored does.
using KeepStored = std::function<void(nn::Model& model)>;

/// Where a model that generates has its parameters, kept as `weights` says. As RoundedStore's
/// constructor. `keep`: for kStored, else unused. Throws Error(kUser) for kStored on a GPU.
std::unique_ptr<parallel::ParamStore> open_store(Device& device, nn::Model& model, Weights weights,
                                                 const KeepStored& keep = {});

/// Rounds the matrices of a store of f32 as a RoundedStore does (for kF32 and kStored it leaves
/// them), and keeps them as f32: what then
/// is computed is what generation with such weights computes, but for the order of sums. Throws as
/// RoundedStore::fill.
void round_in_place(Device& device, parallel::ParamStore& store, Weights weights);

}  // namespace atl::serve
