#include "atoll/nn/models/packed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/mixture_of_experts.h"

namespace atl::nn {

namespace {

class Packer final : public ExpertVisitor {
 public:
  Packer(const Model& model, const FormatOfTensor& format_of, bool freezes)
      : format_of_(format_of), freezes_(freezes), takes_tables_(model.head != nullptr) {}

  // The weight of a Linear is the first parameter that comes after it. Token embeddings and heads
  // stay as they are too, where the head is one that takes them.
  void linear(Linear& /*linear*/) override { is_weight_ = true; }
  void experts(MixtureOfExperts& experts) override {
    stacks_ = {&experts.gate_up(), &experts.down()};
  }
  void param(Param& param) override {
    const bool is_table = takes_tables_ && param.is_embedding && !param.is_position;
    const bool is_stack = std::find(stacks_.begin(), stacks_.end(), &param) != stacks_.end();
    const bool may_be = std::exchange(is_weight_, false) || is_table || is_stack;
    if (may_be && (param.frozen || freezes_) && !param.is_packed()) pack(param);
  }

  std::int64_t elements = 0;

 private:
  void pack(Param& param) {
    ops::PackedMatrix packed = {.shape = param.spec.shape, .parts = {}, .bytes = {}};
    for (const FileTensor& tensor : param.files) {
      std::shared_ptr<const ops::PackedFormat> format = format_of_(tensor);
      if (format == nullptr) return;
      packed.append(tensor.rows, std::move(format));
    }
    param.packed = std::move(packed);
    param.frozen = true;
    elements += param.spec.shape.num_elements();
  }

  const FormatOfTensor& format_of_;
  bool freezes_;
  bool takes_tables_;  // a head that ranks of a pipeline or of a vocabulary share reads floats
  bool is_weight_ = false;
  std::vector<const Param*> stacks_;  // of the experts whose parameters come next
};

}  // namespace

std::int64_t pack_weights(Model& model, const FormatOfTensor& format_of, bool freezes) {
  const BuildOptions& options = model.options;
  if (options.device != DeviceKind::kCpu) {
    throw user_error(
        "weights that stay in the bits of their files are multiplied on a CPU alone so far; use "
        "--device=cpu, or model.held_as=wide, which widens them");
  }
  if (options.tensor_size > 1 || options.expert_size > 1) {
    throw user_error(
        "weights that stay in the bits of their files cannot be cut among ranks (parallel.{} = "
        "{}); share the work with data-parallel ranks, or use model.held_as=wide",
        options.tensor_size > 1 ? "tp" : "ep",
        options.tensor_size > 1 ? options.tensor_size : options.expert_size);
  }
  Packer packer(model, format_of, freezes);
  model.visit(packer);
  return packer.elements;
}

}  // namespace atl::nn
