#include "atoll/serve/api/adapters/adapter_routes.h"

#include <algorithm>
#include <future>

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLoad = "/v1/load_lora_adapter";
constexpr const char* kUnload = "/v1/unload_lora_adapter";

// Has the adapters that are loaded, and says which.
class AdaptedGenerator : public ScriptedGenerator, public AdapterLoader {
 public:
  using ScriptedGenerator::ScriptedGenerator;

  void load(const std::string& name, const std::string& path) override {
    if (path == "slow") {
      is_reading.set_value();
      may_go_on.get_future().wait();
    }
    if (path == "nothing") throw user_error("there is no adapter nothing");
    if (path == "damaged") throw damaged_error("its checksum is wrong");
    if (path == "large") throw make_error(ErrorKind::kResource, "there is room for 2 adapters");
    if (path == "failing") throw make_error(ErrorKind::kIo, "the disk fails");
    const std::lock_guard lock(names_mutex_);
    if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
  }
  bool unload(const std::string& name) override {
    const std::lock_guard lock(names_mutex_);
    return std::erase(names_, name) > 0;
  }
  std::vector<std::string> adapters() const override {
    const std::lock_guard lock(names_mutex_);
    return names_;
  }
  std::string version(const std::string& adapter) const override { return "v-" + adapter; }

  std::promise<void> is_reading, may_go_on;

 private:
  mutable std::mutex names_mutex_;
  std::vector<std::string> names_;
};

class AdapterRoutes : public ServiceTest {
 protected:
  void begin(bool loads = true) {
    ServedModel served = model();
    served.generator = &adapted_;
    served.fingerprint = "atoll";
    if (loads) served.adapter_loader = &adapted_;
    service_ = std::make_unique<Service>(options_);
    service_->serve(std::move(served));
  }
  void TearDown() override { service_.reset(); }

  void expect_refused(const char* path, const ordered_json& body, int status,
                      const ordered_json& param, const std::string& part) {
    const HttpAnswer answer = post(path, body);
    EXPECT_EQ(answer.status, status) << body << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], param) << body;
    EXPECT_THAT(answer.json()["error"]["message"].get<std::string>(), HasSubstr(part)) << body;
  }

  AdaptedGenerator adapted_{[this](const GenerationRequest&) { return tokens(says_); }};
};

TEST_F(AdapterRoutes, OneIsLoadedAskedForAndUnloaded) {
  begin();
  EXPECT_EQ(complete({{"model", "dates"}}).status, 404);
  const HttpAnswer loaded = post(kLoad, {{"lora_name", "dates"}, {"lora_path", "a/b"}});
  ASSERT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.json()["id"], "dates");
  EXPECT_EQ(loaded.json()["version"], "v-dates");
  EXPECT_EQ(ask("GET /v1/models").json()["data"][1]["id"], "dates");
  EXPECT_EQ(ask("GET /v1/models/dates").status, 200);
  adapted_.take_requests();
  const HttpAnswer answer = complete({{"model", "dates"}, {"n", 2}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["system_fingerprint"], "atoll-v-dates");
  EXPECT_EQ(complete({{"model", "tiny"}}).json()["system_fingerprint"], "atoll-v-");
  std::vector<std::string> asked;
  for (const GenerationRequest& seen : adapted_.take_requests()) asked.push_back(seen.adapter);
  EXPECT_THAT(asked, ElementsAre("dates", "dates", ""));
  expect_refused(kLoad, {{"lora_name", "dates"}, {"lora_path", "a/b"}}, 400, "lora_name",
                 "load_inplace");
  EXPECT_EQ(
      post(kLoad, {{"lora_name", "dates"}, {"lora_path", "a"}, {"load_inplace", true}}).status,
      200);
  const HttpAnswer unloaded = post(kUnload, {{"lora_name", "dates"}});
  ASSERT_EQ(unloaded.status, 200) << unloaded.body;
  EXPECT_EQ(unloaded.json()["deleted"], true);
  expect_refused(kUnload, {{"lora_name", "dates"}}, 404, "lora_name", "there is no adapter dates");
  EXPECT_EQ(complete({{"model", "dates"}}).status, 404);
}

TEST_F(AdapterRoutes, WrongRequestsNameTheField) {
  begin();
  const auto load = [](const std::string& name, const std::string& path) {
    return ordered_json{{"lora_name", name}, {"lora_path", path}};
  };
  expect_refused(kLoad, {{"lora_path", "a"}}, 400, "lora_name", "missing");
  expect_refused(kLoad, {{"lora_name", "a"}}, 400, "lora_path", "missing");
  expect_refused(kLoad, {{"lora_name", 3}, {"lora_path", "a"}}, 400, "lora_name", "a string");
  expect_refused(kLoad, {{"lora_name", "a"}, {"lora_path", "b"}, {"rank", 3}}, 400, "rank",
                 "no field");
  for (const char* name : {"", "a b", "a\nb", "\xc3\xa4"}) {
    expect_refused(kLoad, load(name, "a"), 400, "lora_name", "letters");
  }
  expect_refused(kLoad, load(std::string(201, 'a'), "a"), 400, "lora_name", "letters");
  expect_refused(kLoad, load("tiny", "a"), 400, "lora_name", "the model itself");
  expect_refused(kLoad, load("x", "nothing"), 400, "lora_path", "no adapter nothing");
  expect_refused(kLoad, load("x", "damaged"), 400, "lora_path", "checksum");
  expect_refused(kLoad, load("x", "large"), 409, nullptr, "room for 2");
  expect_refused(kLoad, load("x", "failing"), 500, nullptr, "disk");
  expect_refused(kUnload, {{"lora_name", "x"}, {"lora_int_id", 1}}, 400, "lora_int_id", "no field");
  EXPECT_EQ(ask("GET " + std::string(kLoad)).status, 405);
}

TEST_F(AdapterRoutes, AreRefusedWhereNoneAreLoaded) {
  begin(/*loads=*/false);
  expect_refused(kLoad, {{"lora_name", "a"}, {"lora_path", "b"}}, 403, nullptr, "--adapter-dir");
  expect_refused(kUnload, {{"lora_name", "a"}}, 403, nullptr, "--adapter-dir");
}

TEST_F(AdapterRoutes, NeedAKeyLikeTheOthers) {
  options_.keys = KeyList::parse("0123456789abcdef\n", "keys");
  begin();
  EXPECT_EQ(post(kLoad, {{"lora_name", "a"}, {"lora_path", "b"}}).status, 401);
  EXPECT_EQ(post(kLoad, {{"lora_name", "a"}, {"lora_path", "b"}},
                 "Authorization: Bearer 0123456789abcdef\r\n")
                .status,
            200);
}

TEST_F(AdapterRoutes, ReadingOneHoldsUpNobody) {
  begin();
  auto slow = std::async(std::launch::async, [&] {
    return post(kLoad, {{"lora_name", "a"}, {"lora_path", "slow"}}).status;
  });
  adapted_.is_reading.get_future().wait();
  EXPECT_EQ(complete().status, 200);
  adapted_.may_go_on.set_value();
  EXPECT_EQ(slow.get(), 200);
}

}  // namespace
}  // namespace atl::serve::api
