#include "atoll/launch/engines/pmi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PmiSocket : public ::testing::Test {
 protected:
  PmiSocket() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0); }
  ~PmiSocket() override {
    for (const int end : ends_) ::close(end);
  }

  // A launcher that gives these answers, one to each line.
  std::vector<std::string> served(const std::vector<std::string>& answers,
                                  const std::function<void()>& body) {
    std::vector<std::string> asked;
    std::thread launcher([&] {
      std::string text;
      for (const std::string& answer : answers) {
        while (text.find('\n') == text.npos) {
          char c = 0;
          if (::read(ends_[1], &c, 1) != 1) return;
          text += c;
        }
        asked.push_back(text.substr(0, text.size() - 1));
        text.clear();
        if (::write(ends_[1], answer.data(), answer.size()) < 0) return;
      }
    });
    body();
    ::shutdown(ends_[0], SHUT_RDWR);
    launcher.join();
    return asked;
  }

  std::string refused(const std::vector<std::string>& answers) {
    std::string why = "(not refused)";
    served(answers, [&] {
      try {
        share_by_pmi(ends_[0], /*is_first=*/true, "tcp://a:1", 60);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kPeer);
        why = error.what();
      }
    });
    return why;
  }

  std::array<int, 2> ends_ = {-1, -1};
};

const std::string kHello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const std::string kSpace = "cmd=my_kvsname kvsname=kvs_7_0\n";

TEST_F(PmiSocket, TheFirstRankPutsAndAllGet) {
  std::string first;
  EXPECT_THAT(
      served({kHello, kSpace, "cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n",
              "cmd=get_result rc=0 msg=success value=tcp://a:1\n", "cmd=finalize_ack\n"},
             [&] { first = share_by_pmi(ends_[0], true, "tcp://a:1", 60); }),
      ElementsAre("cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_my_kvsname",
                  "cmd=put kvsname=kvs_7_0 key=atoll-rendezvous value=tcp://a:1", "cmd=barrier_in",
                  "cmd=get kvsname=kvs_7_0 key=atoll-rendezvous", "cmd=finalize"));
  EXPECT_EQ(first, "tcp://a:1");
}

TEST_F(PmiSocket, OthersOnlyGet) {
  std::string other;
  served({kHello, kSpace, "cmd=barrier_out\n",
          "cmd=get_result rc=0 msg=success value=tcp://[::1]:7\n", "cmd=finalize_ack\n"},
         [&] { other = share_by_pmi(ends_[0], false, "", 60); });
  EXPECT_EQ(other, "tcp://[::1]:7");
}

TEST_F(PmiSocket, OtherAnswersAreNamed) {
  EXPECT_THAT(refused({"cmd=response_to_init rc=-1\n"}),
              StartsWith("the PMI of the launcher answers 'cmd=response_to_init rc=-1' to"));
}

TEST_F(PmiSocket, AnswersOfAnotherProtocolAreNamed) {
  EXPECT_THAT(refused({"00000040cmd=fullinit-response;\n"}), HasSubstr("fullinit-response"));
}

TEST_F(PmiSocket, AnAnswerWithoutASpaceOfKeysIsNamed) {
  EXPECT_THAT(refused({kHello, "cmd=my_kvsname\n"}), HasSubstr("names no key space"));
}

TEST_F(PmiSocket, ALauncherThatEndsIsNamed) {
  ::shutdown(ends_[1], SHUT_RDWR);
  EXPECT_THAT(refused({}), HasSubstr("is lost"));
}

TEST_F(PmiSocket, AnAnswerWithoutEndIsNotRead) {
  EXPECT_THAT(refused({std::string(100'000, 'x')}), HasSubstr("is lost"));
}

TEST_F(PmiSocket, OneThatNeverAnswersIsNotWaitedForLong) {
  try {
    share_by_pmi(ends_[0], true, "tcp://a:1", 0);
    FAIL() << "it was answered";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has not answered within 0 s"));
  }
}

TEST(Pmi, ItsSocketIsThatOfPmiFd) {
  ::setenv("PMI_FD", "seven", 1);
  EXPECT_THROW(share_by_pmi(true, "tcp://a:1", 1), Error);
  ::unsetenv("PMI_FD");
  EXPECT_THROW(share_by_pmi(true, "tcp://a:1", 1), Error);
}

}  // namespace
}  // namespace atl::launch
