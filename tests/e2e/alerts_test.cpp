// Alerts of real runs in which something goes wrong.

#include "alerts_fixture.h"

namespace atl {
namespace {

using e2e::Alerts;
using e2e::error_line;
using e2e::Finished;
using e2e::Receiver;
using metrics::Alert;
using metrics::AlertKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A learning rate with which the loss of the tiny model explodes.
const std::vector<std::string> kSteep = {"--optim.lr=30", "--optim.clip=0", "--train.steps=60",
                                         "--train.on_nonfinite=skip", "--log.every=1"};

TEST_F(Alerts, OfALossThatExplodesGoToTerminalFileAndWebhook) {
  const Receiver receiver;
  std::vector<std::string> more = kSteep;
  more.push_back("--alerts.webhook=" + receiver.url());
  const Finished finished = train("run", more);
  ASSERT_FALSE(alerts("run").empty()) << finished.err << finished.out;
  for (const Alert& alert : alerts("run")) {
    EXPECT_THAT(finished.err, HasSubstr("warning: " + to_line(alert) + "\n"));
    EXPECT_GT(alert.time_s, 1.6e9);
    EXPECT_FALSE(alert.command.empty());
    EXPECT_THAT(receiver.received(),
                HasSubstr(fmt::format("\"kind\":\"{}\"", name_of(alert.kind))));
  }
  EXPECT_THAT(receiver.received(),
              AllOf(HasSubstr("POST /hook HTTP/1.1"), HasSubstr("Content-Type: application/json"),
                    HasSubstr("\"run\":\"" + path("run") + "\""), HasSubstr("\"text\":\"")));
}

TEST_F(Alerts, AreSilentOfKindsThatAreOff) {
  std::vector<std::string> more = kSteep;
  more.emplace_back("--alerts.off=all");
  const Finished finished = train("run", more);
  EXPECT_THAT(alerts("run"), IsEmpty());
  EXPECT_THAT(finished.err, Not(HasSubstr("alert [")));
}

TEST_F(Alerts, AWebhookThatRefusesIsToldOnceAndWithoutItsKey) {
  const Receiver receiver(500);
  std::vector<std::string> more = kSteep;
  more.push_back("--alerts.webhook=" + receiver.url());
  const Finished finished = train("run", more);
  const std::string words = "an alert did not go to 127.0.0.1:";
  const std::size_t at = finished.err.find(words);
  ASSERT_NE(at, std::string::npos) << finished.err;
  EXPECT_EQ(finished.err.find(words, at + 1), std::string::npos) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("it answered 500"), Not(HasSubstr("user:key"))));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_.path / "run")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(read_file(entry.path()), Not(HasSubstr("user:key"))) << entry.path();
  }
  EXPECT_THAT(read_file(root_.path / "run/settings.toml"),
              HasSubstr("webhook = \"http://127.0.0.1:"));
}

TEST_F(Alerts, MistakesAreToldBeforeTheRun) {
  const auto refused = [&](const std::string& setting) {
    const Finished finished = train("run", {setting});
    EXPECT_EQ(finished.exit_code, 2) << setting;
    return error_line(finished);
  };
  EXPECT_THAT(refused("--alerts.off=spikes"),
              AllOf(HasSubstr("alerts.off"), HasSubstr("the kinds are nonfinite, spike")));
  EXPECT_THAT(refused("--alerts.webhook=example.com"), HasSubstr("http://"));
}

TEST_F(Alerts, OfARunThatIsWellAreNone) {
  const Finished finished = trained(
      "run", {"--train.steps=200", "--eval.every=50", "--checkpoint.every=50", "--log.every=1"});
  EXPECT_THAT(alerts("run"), IsEmpty()) << finished.err;
}

}  // namespace
}  // namespace atl
