// Filters that cut a sequence into several: batch, slice, groupby.

#include <algorithm>

#include "atoll/text/jinja/builtins.h"
#include "atoll/text/jinja/filter_tables.h"
#include "atoll/text/jinja/runtime.h"
#include "atoll/text/jinja/text.h"

namespace atl::text::jinja {

namespace {

constexpr std::int64_t kMaxPieces = 100'000;  // as many as a range may have numbers

bool fills(const std::optional<Value>& fill) {
  return fill.has_value() && !fill->is_none();
}

// Lists of so many elements; the last is filled up.
Value batch(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t count = runtime.want_integer(*bound[0], "the length of a batch");
  if (count < 1 || count > kMaxPieces) {
    runtime.fail("a batch of {} elements; 1 to {} are allowed", count, kMaxPieces);
  }
  Values batches;
  Values batch;
  for (const Value& item : runtime.iterate(self)) {
    batch.push_back(item);
    if (static_cast<std::int64_t>(batch.size()) < count) continue;
    batches.push_back(runtime.list(std::move(batch)));
    batch.clear();
  }
  if (!batch.empty()) {
    if (fills(bound[1])) batch.resize(static_cast<std::size_t>(count), *bound[1]);
    batches.push_back(runtime.list(std::move(batch)));
  }
  return runtime.iterator("generator", std::move(batches));
}

// So many lists, the first of which have one element more where it does not come out even.
Value slice(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound = runtime.bind("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t count = runtime.want_integer(*bound[0], "the number of slices");
  if (count < 1 || count > kMaxPieces) {
    runtime.fail("{} slices; 1 to {} are allowed", count, kMaxPieces);
  }
  const Values items = runtime.iterate(self);
  const auto slices = static_cast<std::size_t>(count);
  const std::size_t longer = items.size() % slices;
  Values made;
  auto at = items.begin();
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t size = items.size() / slices + (i < longer ? 1 : 0);
    Values piece(at, at + static_cast<std::ptrdiff_t>(size));
    at += static_cast<std::ptrdiff_t>(size);
    if (fills(bound[1]) && i >= longer) piece.push_back(*bound[1]);
    made.push_back(runtime.list(std::move(piece)));
  }
  return runtime.iterator("generator", std::move(made));
}

Value group_of(Runtime& runtime, const Value& key, Values items) {
  const Value group = runtime.tuple({key, runtime.list(std::move(items))});
  Sequence named{.items = group.items(), .depth = group.sequence().depth, .is_group = true};
  return Value(Tuple{std::make_shared<const Sequence>(std::move(named))});
}

// Pairs of a key and the elements that have it, sorted by the key.
Value group_by(Runtime& runtime, const Value& self, Arguments& arguments) {
  const auto bound =
      runtime.bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const auto absent = bound[1].has_value() && !bound[1]->is_none() ? bound[1] : std::nullopt;
  const bool exact = bound[2].has_value() && truthy(*bound[2]);
  struct Keyed {
    Value key, sorted_by, item;
  };
  std::vector<Keyed> keyed;
  for (const Value& item : runtime.iterate(self)) {
    const Value key = value_at_path(runtime, item, *bound[0], absent);
    const Value sorted_by = exact || !key.is_string() ? key : runtime.text(lower(key.string()));
    keyed.push_back({key, sorted_by, item});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return runtime.less(a.sorted_by, b.sorted_by);
  });
  Values groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::size_t end = begin;
    Values items;
    while (end < keyed.size() && runtime.equal(keyed[begin].sorted_by, keyed[end].sorted_by)) {
      items.push_back(keyed[end++].item);
    }
    groups.push_back(group_of(runtime, keyed[begin].key, std::move(items)));
    begin = end;
  }
  return runtime.list(std::move(groups));
}

}  // namespace

const std::map<std::string_view, Builtin>& grouping_filters() {
  static const std::map<std::string_view, Builtin> kFilters = {
      {"batch", batch}, {"groupby", group_by}, {"slice", slice}};
  return kFilters;
}

}  // namespace atl::text::jinja
