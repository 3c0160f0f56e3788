// Islands beside processes of the same authority that have no business in the run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evil.h"
#include "islands_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Evil;
using e2e::Finished;
using e2e::Program;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// How islands exchange: through the coordinator ("") or from each other.
class Evils : public e2e::Islands, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Islands::SetUp();
    ASSERT_EQ(atoll({"certs", "init", path("authority")}).exit_code, 0);
    for (const char* name : {"coordinator", "lyon", "turin", "evil"}) {
      ASSERT_EQ(atoll({"certs", "issue", path("authority"), name, "--host", "127.0.0.1"}).exit_code,
                0);
    }
  }
  std::filesystem::path identity(const std::string& name) const {
    return root_.path / "authority/identities" / name;
  }
  std::vector<std::string> as(const std::string& name, const std::string& place, int steps) const {
    return joining(name, name, place,
                   {"--outer.islands=2", fmt::format("--train.steps={}", steps),
                    fmt::format("--island.listen={}", GetParam()),
                    "--island.identity=" + identity(name).string()});
  }
  /// Addresses of the islands that have joined.
  std::vector<std::string> addresses() const {
    const Finished shown = atoll({"runs", "show", path("ledger"), "--json"});
    if (!nlohmann::json::accept(shown.out)) return {};  // there is no ledger yet
    std::vector<std::string> found;
    const nlohmann::json run = nlohmann::json::parse(shown.out);
    for (const auto& island : run.at("islands")) {
      const std::string address = island.at("address");
      if (!address.empty()) found.push_back(address);
    }
    return found;
  }
  static std::size_t most_memory_mb(pid_t pid) {
    const std::string status = proc_file(pid, "status");
    const std::size_t at = status.find("VmHWM:");
    return at == status.npos ? 0 : std::stoul(status.substr(at + 6)) / 1024;
  }
};

TEST_P(Evils, ChangeNothing) {
  Program order({"coordinator", "--dir", path("ledger"), "--listen", kAnywhere, "--identity",
                 identity("coordinator").string()});
  const std::string place = address_of(order);
  Program lyon(as("lyon", place, 300));
  const bool is_star = std::string(GetParam()).empty();
  std::vector<std::string> listening;
  ASSERT_TRUE(soon([&] {
    listening = addresses();
    return is_star ? std::filesystem::exists(path("ledger/run.json")) : listening.size() == 1;
  })) << lyon.errors();
  // One that never joined, and one with the certificate of an island that another process is.
  Evil evil(place, identity("evil"), listening);
  Evil twin(place, identity("lyon"), listening);
  const auto have_tried = [&](int times) {
    const auto has = [&](const Evil& one) {
      return one.num_poisoned() >= times && one.num_forged() >= times &&
             (is_star || one.num_spied() >= times);
    };
    return has(evil) && has(twin);
  };
  ASSERT_TRUE(soon([&] { return have_tried(5); }));
  Program turin(as("turin", place, 300));
  ASSERT_TRUE(soon([&] { return values("lyon", "outer_step").size() >= 2; }));
  const std::size_t memory_mb = most_memory_mb(order.pid());
  for (Program* island : {&lyon, &turin}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, ::testing::Not(HasSubstr("turned out")));
  }
  evil.stop();
  twin.stop();
  EXPECT_THAT(evil.successes(), IsEmpty());
  EXPECT_THAT(twin.successes(), IsEmpty());
  EXPECT_LT(memory_mb, 600) << "of the coordinator";
  const std::vector<double> members = values("lyon", "outer_members");
  EXPECT_THAT(members, SizeIs(Ge(10U)));
  EXPECT_GE(std::count(members.begin(), members.end(), 2), 10) << order.errors();
  EXPECT_EQ(model("lyon"), model("turin"));
  EXPECT_EQ(order.wait().exit_code, 0);
  EXPECT_THAT(atoll({"runs", "show", path("ledger")}).out,
              AllOf(HasSubstr("; finished"), HasSubstr("audit       proved")));
}

class Revoked : public e2e::Islands {
 protected:
  void SetUp() override {
    Islands::SetUp();
    ASSERT_EQ(atoll({"certs", "init", path("authority")}).exit_code, 0);
    for (const char* name : {"coordinator", "bern"}) {
      ASSERT_EQ(atoll({"certs", "issue", path("authority"), name, "--host", "127.0.0.1"}).exit_code,
                0);
    }
    std::filesystem::copy(root_.path / "authority/identities/bern", path("bern-identity"));
    first_ = read_file(root_.path / "authority/revoked.pem");
    ASSERT_EQ(atoll({"certs", "revoke", path("authority"), "bern"}).exit_code, 0);
    second_ = read_file(root_.path / "authority/revoked.pem");
  }
  std::vector<std::string> coordinator() const {
    return {"coordinator",
            "--dir",
            path("ledger"),
            "--listen",
            kAnywhere,
            "--identity",
            (root_.path / "authority/identities/coordinator").string()};
  }
  /// Of all that have a list; "": nobody has one.
  void set_lists(const std::string& list) const {
    for (const char* place : {"authority", "authority/identities/coordinator", "bern-identity"}) {
      std::filesystem::remove(root_.path / place / "revoked.pem");
      if (!list.empty()) write_file(root_.path / place / "revoked.pem", list);
    }
  }
  void expect_refused(const std::vector<std::string>& words, const std::string& why) const {
    const Finished refused = atoll(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("error: "), HasSubstr(why)));
  }
  void expect_stays_out(const std::string& place) const {
    expect_refused(joining("bern", "bern", place, {"--island.identity=" + path("bern-identity")}),
                   "of bern was revoked");
  }

  std::string first_, second_;  // lists
};

TEST_F(Revoked, OneStaysOutWhateverBecomesOfTheList) {
  {
    Program order(coordinator());
    const std::string place = address_of(order);
    set_lists(first_);  // whoever was revoked has the list of before
    expect_stays_out(place);
    set_lists("");
    expect_refused(joining("bern", "bern", place, {"--island.identity=" + path("bern-identity")}),
                   "revoked.pem is missing");
    write_file(path("bern-identity/revoked.pem"), first_);
    expect_stays_out(place);
    std::filesystem::remove(path("bern-identity/revoked.pem"));
  }
  expect_refused(coordinator(), "revoked.pem is missing");
  set_lists(first_);
  expect_refused(coordinator(), "list 2 was known here before");
  set_lists(second_);
  Program order(coordinator());
  expect_stays_out(address_of(order));
}

INSTANTIATE_TEST_SUITE_P(Islands, Evils, ::testing::Values("", "127.0.0.1:0"),
                         [](const auto& info) {
                           return std::string(*info.param == '\0' ? "Star" : "Mesh");
                         });

}  // namespace
}  // namespace atl
