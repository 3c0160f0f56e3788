#pragma once

// A server of the hub's protocol and an empty cache, for one test.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/hub/snapshot.h"
#include "hub_server.h"

namespace atl::hub {

class HubFixture : public ::testing::Test {
 protected:
  HubFixture() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-hub-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    settings_ = {.endpoint = server_.endpoint(),
                 .cache = root_ / "hub",
                 .retry = {.first_wait = std::chrono::milliseconds(1),
                           .longest_wait = std::chrono::milliseconds(2)}};
  }
  ~HubFixture() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  static std::vector<RepoFile> all(const std::vector<RepoFile>& files, const ReadRepoFile&) {
    return files;
  }
  Snapshot get(const std::string& revision = "main") const {
    return get_snapshot(settings_, {.id = "org/name", .revision = revision}, all);
  }
  std::string error_of_get(ErrorKind kind) const {
    try {
      get();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  std::filesystem::path repo() const { return settings_.cache / "models--org--name"; }
  std::filesystem::path file(const std::string& path) const {
    return repo() / "snapshots" / std::string(40, 'c') / path;
  }
  /// What was got is gone; lists and revisions stay.
  void forget_files() const {
    std::filesystem::remove_all(repo() / "blobs");
    std::filesystem::remove_all(repo() / "snapshots");
  }
  void empty_cache() const { std::filesystem::remove_all(settings_.cache); }

  HubServer server_;
  std::filesystem::path root_;
  HubSettings settings_;
};

inline constexpr const char* kRepo = "models/org/name";

}  // namespace atl::hub
