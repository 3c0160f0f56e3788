#include "atoll/data/parquet/schema.h"

#include <fmt/format.h>

#include <stdexcept>

namespace atl::data {

namespace {

using Kind = ParquetNode::Kind;

constexpr std::int32_t kOptional = 1;
constexpr std::int32_t kRepeated = 2;

// Where an element of the schema is.
struct Place {
  int definition = 0;
  int repetition = 0;
  int depth = 0;
  std::string path;
};

class Builder {
 public:
  explicit Builder(const std::vector<ParquetElement>& elements) : elements_(elements) {}

  ParquetSchema build() {
    if (elements_.empty()) throw std::runtime_error("it has no schema");
    const std::int32_t count = elements_[0].num_children;
    at_ = 1;
    for (std::int32_t i = 0; i < count; ++i) schema_.fields.push_back(field({}));
    if (at_ != elements_.size()) throw std::runtime_error("its schema has columns too many");
    return std::move(schema_);
  }

 private:
  const ParquetElement& peek() const {
    if (at_ >= elements_.size()) throw std::runtime_error("its schema ends too soon");
    return elements_[at_];
  }

  // The next element with all below it, as what its repetition makes of it.
  ParquetNode field(const Place& above) {
    const ParquetElement& element = peek();
    if (element.repetition != kRepeated) return value(above);
    // A list without a group of its own, as Protocol Buffers have it.
    ParquetNode list{Kind::kList, element.name, above.definition};
    list.element_definition = above.definition + 1;
    list.element_repetition = above.repetition + 1;
    list.first_column = schema_.columns.size();
    list.children.push_back(value(above));
    list.num_columns = schema_.columns.size() - list.first_column;
    return list;
  }

  // The next element; of a repeated one, one of its repetitions.
  ParquetNode value(const Place& above) {
    constexpr int kDeepest = 32;
    const ParquetElement& element = peek();
    ++at_;
    Place here = above;
    if (++here.depth > kDeepest) throw std::runtime_error("its schema nests more than 32 deep");
    constexpr std::size_t kMostPathBytes = std::size_t{64} << 20;
    path_bytes_ += above.path.size() + element.name.size() + 1;
    if (path_bytes_ > kMostPathBytes)
      throw std::runtime_error("the names of its columns are too long");
    here.path = above.path.empty() ? element.name : above.path + "." + element.name;
    if (element.repetition == kOptional) ++here.definition;
    if (element.repetition == kRepeated) {
      ++here.definition;
      ++here.repetition;
    }
    ParquetNode node{Kind::kValue, element.name, here.definition};
    node.first_column = schema_.columns.size();
    if (element.num_children <= 0) {
      schema_.columns.push_back({element, here.path, here.definition, here.repetition});
    } else {
      group(element, here, node);
    }
    node.num_columns = schema_.columns.size() - node.first_column;
    if (node.num_columns == 0) {
      throw std::runtime_error(fmt::format("the group {} has no columns", here.path));
    }
    return node;
  }

  void group(const ParquetElement& element, const Place& here, ParquetNode& node) {
    const bool is_wrapper = element.num_children == 1 && peek().repetition == kRepeated;
    if (is_wrapper && element.meaning == ParquetMeaning::kList) return list(element, here, node);
    if (is_wrapper && element.meaning == ParquetMeaning::kMap && peek().num_children == 2) {
      node.kind = Kind::kMap;
      begin_elements(here, node);
      ParquetNode entry = value(here);
      node.children = std::move(entry.children);
      return;
    }
    node.kind = Kind::kStruct;
    for (std::int32_t i = 0; i < element.num_children; ++i) node.children.push_back(field(here));
  }

  static void begin_elements(const Place& here, ParquetNode& node) {
    node.element_definition = here.definition + 1;
    node.element_repetition = here.repetition + 1;
  }

  void list(const ParquetElement& element, const Place& here, ParquetNode& node) {
    node.kind = Kind::kList;
    begin_elements(here, node);
    const ParquetElement& repeated = peek();
    const bool is_element = repeated.num_children != 1 || repeated.name == "array" ||
                            repeated.name == element.name + "_tuple";
    ParquetNode each = value(here);
    if (!is_element && each.kind == Kind::kStruct) {
      ParquetNode only = std::move(each.children.front());
      each = std::move(only);
    }
    node.children.push_back(std::move(each));
  }

  const std::vector<ParquetElement>& elements_;
  std::size_t at_ = 0;
  std::size_t path_bytes_ = 0;
  ParquetSchema schema_;
};

}  // namespace

ParquetSchema make_parquet_schema(const std::vector<ParquetElement>& elements) {
  return Builder(elements).build();
}

}  // namespace atl::data
