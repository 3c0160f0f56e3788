#include "atoll/serve/page_assets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace atl::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What stands between each `before` and the next quotation mark.
std::set<std::string> names_after(std::string_view text, std::string_view before) {
  std::set<std::string> names;
  for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at)) {
    at += before.size();
    names.insert(std::string(text.substr(at, text.find('"', at) - at)));
  }
  return names;
}

TEST(ChatPage, WhatItsFilesNameIsThere) {
  const http::Asset* index = http::find_asset(page_assets(), "/");
  ASSERT_NE(index, nullptr);
  EXPECT_NE(http::find_asset(page_assets(), "/favicon.ico"), nullptr);
  std::set<std::string> named = names_after(index->text, "src=\"");
  // "#compose" is a place in the page.
  named.merge(names_after(index->text, "href=\""));
  named.erase("#compose");
  for (const std::string& name : named) {
    EXPECT_NE(http::find_asset(page_assets(), "/" + name), nullptr) << name;
  }
  for (const http::Asset& asset : page_assets()) {
    for (const std::string& name : names_after(asset.text, "from \"./")) {
      // A module that the index does not name is asked for one round trip later.
      EXPECT_TRUE(named.contains(name)) << asset.path << " names " << name;
    }
  }
}

TEST(ChatPage, HoldsToItsPolicy) {
  for (const http::Asset& asset : page_assets()) {
    const std::string text(asset.text);
    for (const char* word : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                             "eval(", "Function(", "<style", " style=", "javascript:"}) {
      EXPECT_THAT(text, Not(HasSubstr(word))) << asset.path;
    }
    if (asset.path == "/icon.svg") continue;  // the name of SVG's elements is no address
    EXPECT_THAT(text, Not(HasSubstr("http://"))) << asset.path;
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << asset.path;
  }
}

}  // namespace
}  // namespace atl::serve
