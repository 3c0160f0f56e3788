#include "atoll/island/outer/fragments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "atoll/base/error.h"

namespace atl::island {
namespace {

// A model of `layers` layers of two parameters, with padding between parameters.
std::vector<FlatParam> model(int layers) {
  std::vector<FlatParam> params;
  std::int64_t offset = 0;
  const auto add = [&](const std::string& name, std::int64_t elements, int layer) {
    params.push_back({name, offset, elements, layer});
    offset += (elements + 15) / 16 * 16;
  };
  add("embedding", 1000, -1);
  for (int layer = 0; layer < layers; ++layer) {
    add("matrix", 320, layer);
    add("gain", 7, layer);
  }
  add("norm", 7, -1);
  add("head", 500, -1);
  return params;
}

std::int64_t flat_size(const std::vector<FlatParam>& params) {
  return params.back().offset + params.back().elements + 9;
}

TEST(Fragments, HaveEveryElementOnceAndNoPadding) {
  for (const int layers : {1, 3, 8, 12}) {
    const std::vector<FlatParam> params = model(layers);
    for (int count = 1; count <= layers; ++count) {
      std::vector<int> seen(static_cast<std::size_t>(flat_size(params)), 0);
      for (const Fragment& fragment : make_fragments(params, count)) {
        std::int64_t end = -1;
        for (const parallel::ElementRange& range : fragment.ranges) {
          EXPECT_GT(range.begin, end);  // touching ranges are one
          EXPECT_GT(range.end, range.begin);
          end = range.end;
          for (std::int64_t i = range.begin; i < range.end; ++i)
            ++seen[static_cast<std::size_t>(i)];
        }
      }
      std::vector<int> right(seen.size(), 0);
      for (const FlatParam& param : params) {
        for (std::int64_t i = 0; i < param.elements; ++i) {
          ++right[static_cast<std::size_t>(param.offset + i)];
        }
      }
      EXPECT_EQ(seen, right) << layers << " layers, " << count << " fragments";
    }
  }
}

TEST(Fragments, TakeLayersInStridesAndTheRestWhereLeastIs) {
  const std::vector<FlatParam> params = model(6);
  const std::vector<Fragment> fragments = make_fragments(params, 3);
  const auto is_in = [&](std::size_t fragment, const FlatParam& param) {
    for (const parallel::ElementRange& range : fragments[fragment].ranges) {
      if (range.begin <= param.offset && param.offset < range.end) return true;
    }
    return false;
  };
  for (const FlatParam& param : params) {
    if (param.layer < 0) continue;
    EXPECT_TRUE(is_in(static_cast<std::size_t>(param.layer) % 3, param)) << param.layer;
  }
  EXPECT_TRUE(is_in(0, params.front()));             // the embedding: all have 654 elements
  EXPECT_TRUE(is_in(1, params[params.size() - 2]));  // the norm: fragment 0 has 1,654 now
  EXPECT_TRUE(is_in(2, params.back()));              // the head: fragment 1 has 661
}

TEST(Fragments, PackAndUnpackAreInverse) {
  const std::vector<FlatParam> params = model(5);
  std::vector<float> flat(static_cast<std::size_t>(flat_size(params)));
  std::iota(flat.begin(), flat.end(), 1.0F);
  std::vector<float> back(flat.size(), 0.0F);
  for (const Fragment& fragment : make_fragments(params, 2)) {
    std::vector<float> packed(static_cast<std::size_t>(fragment.elements()));
    pack(fragment, flat, packed);
    unpack(fragment, packed, back);
  }
  for (const FlatParam& param : params) {
    for (std::int64_t i = param.offset; i < param.offset + param.elements; ++i) {
      EXPECT_EQ(back[static_cast<std::size_t>(i)], flat[static_cast<std::size_t>(i)]);
    }
  }
  // A float more, and nothing may be written behind the vector.
  std::vector<float> wrong(3);
  EXPECT_THROW(pack(make_fragments(params, 1)[0], flat, wrong), Error);
}

TEST(Fragments, MoreThanLayersAreRefused) {
  const std::vector<FlatParam> params = model(4);
  for (const int count : {-1, 0, 5}) {
    try {
      make_fragments(params, count);
      ADD_FAILURE() << count;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), testing::HasSubstr("from 1 to 4"));
    }
  }
  // Of five layers only the first and the last are trained.
  const std::vector<FlatParam> few = {{"a", 0, 8, 0}, {"b", 16, 8, 4}};
  EXPECT_EQ(make_fragments(few, 1).size(), 1U);
  try {
    make_fragments(few, 2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fragment 1 of 2 would have no trained"));
  }
}

}  // namespace
}  // namespace atl::island
