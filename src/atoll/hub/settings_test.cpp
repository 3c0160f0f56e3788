#include "atoll/hub/settings.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

HubSettings read(const Variables& variables) {
  return read_settings([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(HubSettings, TheCacheIsWhereHuggingfaceHubHasIt) {
  EXPECT_EQ(read({{"HOME", "/h"}}).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(read({{"HOME", "/h"}, {"HF_HOME", "~/f"}}).cache, "/h/f/hub");
  EXPECT_EQ(read({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/o"}}).cache, "/o");
  EXPECT_EQ(read({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "$HF_HOME/${A}x/$B"}, {"A", "a"}}).cache,
            "/f/ax/$B");
}

TEST(HubSettings, TheTokenIsOfTheEnvironmentOrAFile) {
  std::string pattern = (fs::temp_directory_path() / "atoll-hub-XXXXXX").string();
  const fs::path root = ::mkdtemp(pattern.data());
  EXPECT_EQ(read({{"HF_HOME", root}}).token, "");
  write_file(root / "token", "hf_file\n");
  EXPECT_EQ(read({{"HF_HOME", root}}).token, "hf_file");
  EXPECT_EQ(read({{"HF_HOME", root}, {"HF_TOKEN", " hf_given\n"}}).token, "hf_given");
  EXPECT_EQ(read({{"HF_HOME", root}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
  write_file(root / "other", "hf_other");
  EXPECT_EQ(read({{"HF_HOME", root}, {"HF_TOKEN_PATH", root / "other"}}).token, "hf_other");
  fs::remove_all(root);
  const std::string refusal = error_of({{"HF_HOME", "/f"}, {"HF_TOKEN", "hf_a\r\nX: b"}});
  EXPECT_THAT(refusal, HasSubstr("HF_TOKEN holds no token"));
  EXPECT_THAT(refusal, Not(HasSubstr("hf_a"))) << "a token is a secret";
}

TEST(HubSettings, OthersAreTakenOrRefused) {
  const HubSettings settings = read({{"HF_HOME", "/f"},
                                     {"HF_ENDPOINT", "http://mirror:80/hub//"},
                                     {"HF_HUB_OFFLINE", "yes"},
                                     {"HF_HUB_DISABLE_SYMLINKS", "1"},
                                     {"CURL_CA_BUNDLE", "/ca.pem"},
                                     {"HF_HUB_ETAG_TIMEOUT", "3"},
                                     {"HF_HUB_DOWNLOAD_TIMEOUT", "77"}});
  EXPECT_EQ(settings.endpoint, "http://mirror:80/hub");
  EXPECT_TRUE(settings.is_offline);
  EXPECT_FALSE(settings.has_symlinks);
  EXPECT_EQ(settings.certificates, "/ca.pem");
  EXPECT_EQ(settings.connect_timeout_s, 3);
  EXPECT_EQ(settings.stall_timeout_s, 77);
  EXPECT_FALSE(read({{"HF_HOME", "/f"}, {"HF_HUB_OFFLINE", "0"}}).is_offline);
  EXPECT_TRUE(read({{"HF_HOME", "/f"}, {"TRANSFORMERS_OFFLINE", "1"}}).is_offline);
  EXPECT_THAT(error_of({{"HF_HOME", "/f"}, {"HF_ENDPOINT", "ftp://x"}}), HasSubstr("HF_ENDPOINT"));
  EXPECT_THAT(error_of({{"HF_HOME", "/f"}, {"HF_ENDPOINT", "https://"}}), HasSubstr("HF_ENDPOINT"));
  EXPECT_THAT(error_of({{"HF_HOME", "/f"}, {"HF_HUB_ETAG_TIMEOUT", "soon"}}),
              HasSubstr("number of seconds"));
}

}  // namespace
}  // namespace atl::hub
