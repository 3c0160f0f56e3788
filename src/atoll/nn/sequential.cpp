#include "atoll/nn/sequential.h"

#include <algorithm>
#include <utility>

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

// More specs than training, evaluation and generation ask for together; beyond it, forget.
constexpr std::size_t kMaxLayouts = 16;

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Sequential::Sequential(std::vector<std::unique_ptr<Layer>> layers, bool keep_all)
    : layers_(std::move(layers)), keep_all_(keep_all) {
  ATOLL_CHECK(!layers_.empty());
}

Sequential::Layout Sequential::make_layout(Spec x) const {
  Layout layout;
  layout.x = x;
  layout.slots.resize(layers_.size());
  Spec in = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layout.slots[i].footprint = layers_[i]->plan(in);
    in = layout.slots[i].footprint.y;
  }
  Footprint& whole = layout.footprint;
  std::size_t inner_scratch = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Slot& slot = layout.slots[i];
    slot.kept_begin = whole.kept.size();
    slot.owed_begin = whole.owed.size();
    append(whole.kept, slot.footprint.kept);
    append(whole.owed, slot.footprint.owed);
    whole.gradients_in_forward |= slot.footprint.gradients_in_forward;
    inner_scratch = std::max(inner_scratch, slot.footprint.scratch_bytes);
    if (i == last()) break;
    const Spec& y = slot.footprint.y;
    const bool edge_needed =
        slot.footprint.need_y != 0 || layout.slots[i + 1].footprint.need_x != 0;
    if (edge_needed && can_make_again(layout, i)) {
      slot.y_owed = static_cast<int>(whole.owed.size());
      whole.owed.push_back(y);
      layout.edge_bytes = std::max(layout.edge_bytes, align_up(y.bytes()));
    } else if (edge_needed) {
      slot.y_kept = static_cast<int>(whole.kept.size());
      whole.kept.push_back(y);
    } else {
      layout.edge_bytes = std::max(layout.edge_bytes, align_up(y.bytes()));
    }
    if ((slot.footprint.need_dy & kForWeight) != 0) {
      slot.dy_owed = static_cast<int>(whole.owed.size());
      whole.owed.push_back(y);
    } else {
      layout.edge_bytes = std::max(layout.edge_bytes, align_up(y.bytes()));
    }
  }
  whole.y = in;
  whole.need_x = layout.slots.front().footprint.need_x;
  whole.need_y = layout.slots.back().footprint.need_y;
  whole.adds_residual = layout.slots.back().footprint.adds_residual;
  whole.adds_dresidual = layout.slots.front().footprint.adds_dresidual;
  whole.need_dy = layout.slots.back().footprint.need_dy;
  whole.scratch_bytes = 2 * layout.edge_bytes + inner_scratch;
  return layout;
}

// Is the edge after layer i there for the backward pass at no more than its layer's forward? Its x
// must be there then, and not itself be made again.
bool Sequential::can_make_again(const Layout& layout, std::size_t i) const {
  const Footprint& footprint = layout.slots[i].footprint;
  return !keep_all_ && footprint.y_again && footprint.need_y == 0 &&
         (footprint.need_x & kForInput) != 0 &&
         (i == 0 || layout.slots[i - 1].y_owed == kInScratch);
}

const Sequential::Layout& Sequential::layout(Spec x) const {
  for (const auto& known : layouts_) {
    if (known->x == x) return *known;
  }
  if (layouts_.size() == kMaxLayouts) layouts_.erase(layouts_.begin());
  layouts_.push_back(std::make_unique<Layout>(make_layout(x)));
  return *layouts_.back();
}

Footprint Sequential::plan(Spec x) const {
  return layout(x).footprint;
}

Tensor Sequential::edge(const Layout& layout, const Run& run, const Pass& pass, std::size_t i,
                        bool backward) const {
  const Slot& slot = layout.slots[i];
  if (i == last()) return pass.y;
  if (slot.y_kept != kInScratch) return pass.kept[static_cast<std::size_t>(slot.y_kept)];
  if (slot.y_owed != kInScratch && backward) {
    return pass.owed[static_cast<std::size_t>(slot.y_owed)];
  }
  return {run.scratch.data() + (i % 2) * layout.edge_bytes, slot.footprint.y,
          &run.stream->device()};
}

Tensor Sequential::edge_gradient(const Layout& layout, const Run& run, const Pass& pass,
                                 std::size_t i) const {
  const Slot& slot = layout.slots[i];
  if (i == last()) return pass.dy;
  if (slot.dy_owed != kInScratch) return pass.owed[static_cast<std::size_t>(slot.dy_owed)];
  return {run.scratch.data() + (i % 2) * layout.edge_bytes, slot.footprint.y,
          &run.stream->device()};
}

Pass Sequential::inner_pass(const Layout& layout, const Pass& pass, std::size_t i) const {
  const Slot& slot = layout.slots[i];
  return {.kept = pass.kept.subspan(slot.kept_begin, slot.footprint.kept.size()),
          .owed = pass.owed.empty()
                      ? pass.owed
                      : pass.owed.subspan(slot.owed_begin, slot.footprint.owed.size()),
          .batch = pass.batch,
          .cache = pass.cache};
}

Run Sequential::inner_run(const Layout& layout, const Run& run) const {
  Run inner = run;
  ATOLL_CHECK(layout.footprint.scratch_bytes <= run.scratch.size(), "{} of {} bytes",
              layout.footprint.scratch_bytes, run.scratch.size());
  inner.scratch = run.scratch.subspan(2 * layout.edge_bytes);
  return inner;
}

void Sequential::forward(Run& run, const Pass& pass) {
  const Layout& plan = layout(pass.x.spec());
  Run inner = inner_run(plan, run);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Pass call = inner_pass(plan, pass, i);
    call.x = i == 0 ? pass.x : edge(plan, run, pass, i - 1, /*backward=*/false);
    call.y = edge(plan, run, pass, i, /*backward=*/false);
    if (i == last()) call.residual = pass.residual;
    layers_[i]->forward(inner, call);
  }
}

void Sequential::make_edge_again(const Layout& layout, Run& inner, const Pass& pass,
                                 std::size_t i) {
  Pass call = inner_pass(layout, pass, i);
  call.x = i == 0 ? pass.x : edge(layout, inner, pass, i - 1, /*backward=*/true);
  call.y = edge(layout, inner, pass, i, /*backward=*/true);
  layers_[i]->forward(inner, call);
}

void Sequential::backward_input(Run& run, const Pass& pass) {
  const Layout& plan = layout(pass.x.spec());
  Run inner = inner_run(plan, run);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    if (i > 0 && plan.slots[i - 1].y_owed != kInScratch) {
      make_edge_again(plan, inner, pass, i - 1);
    }
    const unsigned need_x = plan.slots[i].footprint.need_x;
    Pass call = inner_pass(plan, pass, i);
    if (i == 0 || need_x != 0)
      call.x = i == 0 ? pass.x : edge(plan, run, pass, i - 1, /*backward=*/true);
    if (plan.slots[i].footprint.need_y != 0) call.y = edge(plan, run, pass, i, /*backward=*/true);
    if (!call.x.defined()) call.x = Tensor(nullptr, plan.slots[i - 1].footprint.y);
    call.dy = edge_gradient(plan, run, pass, i);
    call.dx = i == 0 ? pass.dx : edge_gradient(plan, run, pass, i - 1);
    if (i == 0) call.dresidual = pass.dresidual;
    layers_[i]->backward_input(inner, call);
  }
}

void Sequential::backward_weight(Run& run, const Pass& pass) {
  const Layout& plan = layout(pass.x.spec());
  Run inner = inner_run(plan, run);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Footprint& footprint = plan.slots[i].footprint;
    Pass call = inner_pass(plan, pass, i);
    const bool has_x = i == 0 || (footprint.need_x & kForWeight) != 0;
    if (has_x) call.x = i == 0 ? pass.x : edge(plan, run, pass, i - 1, /*backward=*/true);
    if (!has_x) call.x = Tensor(nullptr, plan.slots[i - 1].footprint.y);
    if ((footprint.need_y & kForWeight) != 0) call.y = edge(plan, run, pass, i, /*backward=*/true);
    if ((footprint.need_dy & kForWeight) != 0) call.dy = edge_gradient(plan, run, pass, i);
    layers_[i]->backward_weight(inner, call);
  }
}

void Sequential::visit(ParamVisitor& visitor) {
  for (const auto& layer : layers_) layer->visit(visitor);
}

Footprint Residual::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  ATOLL_CHECK(footprint.y == x && footprint.need_y == 0, "a residual of {} onto {}",
              footprint.y.to_string(), x.to_string());
  adds_residual_ = std::exchange(footprint.adds_residual, false);
  adds_dresidual_ = std::exchange(footprint.adds_dresidual, false);
  return footprint;
}

void Residual::forward(Run& run, const Pass& pass) {
  Pass call = pass;
  if (adds_residual_) call.residual = pass.x;
  inner_->forward(run, call);
  if (!adds_residual_) ops::add(run, pass.x, pass.y, pass.y);
}

void Residual::backward_input(Run& run, const Pass& pass) {
  Pass call = pass;
  if (adds_dresidual_) call.dresidual = pass.dy;
  inner_->backward_input(run, call);
  if (!adds_dresidual_) ops::add(run, pass.dy, pass.dx, pass.dx);
}

}  // namespace atl::nn
