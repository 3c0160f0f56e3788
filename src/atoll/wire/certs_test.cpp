#include "atoll/wire/certs.h"

#include <sys/stat.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/wire/identity.h"
#include "atoll/wire/revocations.h"
#include "atoll/wire/testing.h"

namespace atl::wire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::int64_t now() {
  return std::time(nullptr);
}

TEST(Certificates, AnIssuedIdentityLoads) {
  const test::Pki pki;
  const Certificate issued = issue(pki.authority(), "rome", {"rome.example.org", "10.0.0.7"}, 90);
  EXPECT_EQ(issued.name, "rome");
  EXPECT_THAT(issued.hosts, ElementsAre("rome", "rome.example.org", "10.0.0.7"));
  EXPECT_NEAR(static_cast<double>(issued.not_after - now()), 90 * 86400.0, 60);
  // A machine whose clock is a day slow takes it.
  EXPECT_LT(issued.not_before, now() - 86400);
  const Identity identity = load_identity(pki.identity("rome"));
  EXPECT_EQ(identity.name, "rome");
  EXPECT_EQ(identity.not_after, issued.not_after);
  for (const fs::path& key : {pki.identity("rome") / "key.pem", pki.authority() / "ca-key.pem"}) {
    struct stat status {};
    ASSERT_EQ(::stat(key.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u) << key;
  }
}

TEST(Certificates, AnAuthorityIsMadeOnce) {
  const test::Pki pki;
  EXPECT_THAT(error_of([&] { make_authority(pki.authority()); }), HasSubstr("is there already"));
  EXPECT_THAT(error_of([&] { issue(pki.authority(), "lyon", {}, 30); }),
              HasSubstr("has an identity already"));
  const test::Directory empty;
  EXPECT_THAT(error_of([&] { issue(empty.path(), "lyon", {}, 30); }),
              HasSubstr("atoll certs init"));
}

TEST(Certificates, NamesAndHostsThatMeanMoreAreRefused) {
  const test::Pki pki;
  for (const char* name : {"", "../lyon", ".", "-x", "a b", "a,DNS:b", "a\nb"}) {
    EXPECT_THAT(error_of([&] { issue(pki.authority(), name, {}, 30); }),
                HasSubstr("cannot be a name"))
        << name;
  }
  for (const char* host : {"", "a,DNS:b", "lyon:4711", "a b", "DNS:b"}) {
    EXPECT_THAT(error_of([&] { issue(pki.authority(), "rome", {host}, 30); }),
                HasSubstr("without a port"))
        << host;
  }
  for (const int days : {0, -1, 100'000}) {
    EXPECT_THAT(error_of([&] { issue(pki.authority(), "rome", {}, days); }), HasSubstr("days"));
  }
  EXPECT_FALSE(fs::exists(pki.identity("rome")));
}

TEST(Certificates, RevokingListsAllOfANameAndReachesTheOthers) {
  const test::Pki pki;
  fs::remove_all(pki.identity("lyon"));
  issue(pki.authority(), "lyon", {}, 30);  // a second one
  EXPECT_EQ(revoke(pki.authority(), "lyon"), 2);
  EXPECT_EQ(revoke(pki.authority(), "lyon"), 0);
  EXPECT_FALSE(fs::exists(pki.identity("lyon")));
  Revocations seen_by_oslo(load_identity(pki.identity("oslo")));
  int revoked = 0;
  for (const Certificate& certificate : list_certificates(pki.authority())) {
    EXPECT_EQ(certificate.is_revoked, certificate.name == "lyon");
    EXPECT_EQ(seen_by_oslo.contains(certificate.serial), certificate.is_revoked);
    revoked += certificate.is_revoked ? 1 : 0;
  }
  EXPECT_EQ(revoked, 2);
  EXPECT_THAT(error_of([&] { revoke(pki.authority(), "nobody"); }), HasSubstr("never issued"));
  issue(pki.authority(), "lyon", {}, 30);  // and it may come back
  EXPECT_EQ(load_identity(pki.identity("lyon")).name, "lyon");
}

TEST(Certificates, AForgedListOfRevokedIsRefused) {
  const test::Pki ours;
  const test::Pki theirs;
  fs::copy_file(theirs.authority() / "revoked.pem", ours.identity("oslo") / "revoked.pem",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { Revocations list(load_identity(ours.identity("oslo"))); }),
              HasSubstr("revoked.pem is not signed by ca.pem"));
}

TEST(Certificates, AnAuthoritysKeyThatOthersMayReadSignsNothing) {
  const test::Pki pki;
  const fs::path key = pki.authority() / "ca-key.pem";
  fs::permissions(key, fs::perms::group_read | fs::perms::others_read, fs::perm_options::add);
  const std::string refusal = key.string() +
                              " may be read or changed by others (mode 644); run: " + "chmod 600 " +
                              key.string();
  EXPECT_EQ(error_of([&] { issue(pki.authority(), "rome", {}, 90); }), refusal);
  EXPECT_EQ(error_of([&] { revoke(pki.authority(), "lyon"); }), refusal);
  EXPECT_FALSE(fs::exists(pki.authority() / "identities" / "rome"));
}

// A list that is gone would let in whoever was revoked.
TEST(Revocation, AMissingListIsRefusedEverywhere) {
  const test::Pki pki;
  for (const char* name : {"lyon", "server"}) {
    fs::remove(pki.identity(name) / "revoked.pem");
    EXPECT_THAT(error_of([&] { load_identity(pki.identity(name)); }),
                HasSubstr("revoked.pem is missing"));
  }
  EXPECT_THAT(error_of([&] { Server({.identity = pki.identity("server")}, nullptr, nullptr); }),
              HasSubstr("revoked.pem is missing"));
  fs::remove(pki.authority() / "revoked.pem");
  for (const std::string& problem : {error_of([&] { issue(pki.authority(), "rome", {}, 30); }),
                                     error_of([&] { revoke(pki.authority(), "oslo"); }),
                                     error_of([&] { list_certificates(pki.authority()); })}) {
    EXPECT_THAT(problem, HasSubstr("copy it back from an identity"));
  }
  fs::copy_file(pki.identity("oslo") / "revoked.pem", pki.authority() / "revoked.pem");
  EXPECT_EQ(revoke(pki.authority(), "lyon"), 1);
}

TEST(Revocation, AListOlderThanTheCertificateIsRefused) {
  const test::Pki pki;
  const std::string first = read_file(pki.authority() / "revoked.pem");
  revoke(pki.authority(), "lyon");
  issue(pki.authority(), "rome", {}, 30);
  EXPECT_EQ(load_identity(pki.identity("rome")).name, "rome");
  write_file(pki.identity("rome") / "revoked.pem", first);
  EXPECT_THAT(error_of([&] { load_identity(pki.identity("rome")); }),
              AllOf(HasSubstr("revoked.pem is list 1"), HasSubstr("when list 2 was there")));
  write_file(pki.authority() / "revoked.pem", first);
  EXPECT_THAT(error_of([&] { revoke(pki.authority(), "oslo"); }), HasSubstr("is list 1"));
}

TEST(Revocation, TheNewestListEverSeenIsKept) {
  const test::Pki pki;
  const test::Directory run;
  const fs::path list = pki.identity("oslo") / "revoked.pem";
  const std::string first = read_file(list);
  const auto start = [&] {
    const Revocations revocations(load_identity(pki.identity("oslo")), run / "revoked.pem");
  };
  start();
  revoke(pki.authority(), "lyon");
  const std::string second = read_file(list);
  start();
  write_file(list, first);
  EXPECT_THAT(error_of(start), AllOf(HasSubstr("is list 1"), HasSubstr("list 2 was known here")));
  write_file(list, second);
  EXPECT_EQ(error_of(start), "no error");
  // Those of another authority begin anew.
  const test::Pki other;
  write_file(run / "revoked.pem", read_file(other.authority() / "revoked.pem"));
  EXPECT_EQ(error_of(start), "no error");
  EXPECT_EQ(read_file(run / "revoked.pem"), second);
}

TEST(Revocation, ARunningProcessKeepsWhatItKnows) {
  const test::Pki pki;
  const std::string first = read_file(pki.authority() / "revoked.pem");
  revoke(pki.authority(), "lyon");
  Revocations revocations(load_identity(pki.identity("oslo")));
  std::string serial;
  for (const Certificate& certificate : list_certificates(pki.authority())) {
    if (certificate.is_revoked) serial = certificate.serial;
  }
  const fs::path list = pki.identity("oslo") / "revoked.pem";
  ASSERT_TRUE(revocations.contains(serial));
  ::testing::internal::CaptureStderr();
  std::string said;
  const auto says = [&](const std::string& words) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (said.find(words) == said.npos && std::chrono::steady_clock::now() < end) {
      EXPECT_TRUE(revocations.contains(serial));
      said += ::testing::internal::GetCapturedStderr();
      ::testing::internal::CaptureStderr();
    }
    return said.find(words) != said.npos;
  };
  fs::remove(list);
  EXPECT_TRUE(says("stays in force"));
  said.clear();
  write_file(list, first);
  EXPECT_TRUE(says("is list 1 of revoked certificates, and list 2 was there before"));
  ::testing::internal::GetCapturedStderr();
}

TEST(Identity, SaysWhatIsWrongWithIt) {
  const test::Pki pki;
  const test::Pki other;
  const fs::path lyon = pki.identity("lyon");
  const auto problem = [&] { return error_of([&] { load_identity(lyon); }); };
  const auto with = [&](const char* file, const fs::path& from) {
    const std::string before = read_file(lyon / file);
    write_file(lyon / file, read_file(from));
    fs::permissions(lyon / file, fs::perms::owner_read | fs::perms::owner_write);
    const std::string text = problem();
    write_file(lyon / file, before);
    fs::permissions(lyon / file, fs::perms::owner_read | fs::perms::owner_write);
    return text;
  };
  EXPECT_THAT(with("key.pem", pki.identity("oslo") / "key.pem"), HasSubstr("is not the key of"));
  EXPECT_THAT(with("ca.pem", other.authority() / "ca.pem"), HasSubstr("is not signed by ca.pem"));
  EXPECT_THAT(with("cert.pem", "/proc/version"), HasSubstr("no PEM certificate"));
  EXPECT_THAT(with("key.pem", "/proc/version"), HasSubstr("no PEM private key"));
  EXPECT_EQ(problem(), "no error");
  fs::permissions(lyon / "key.pem", fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(problem(), HasSubstr("chmod 600"));
  fs::remove(lyon / "key.pem");
  EXPECT_THAT(problem(), HasSubstr("it has no key.pem"));
}

TEST(Identity, MustBeValidByThisMachinesClock) {
  const test::Pki pki;
  issue_between(pki.authority(), "past", {}, now() - 7200, now() - 3600);
  issue_between(pki.authority(), "future", {}, now() + 3600, now() + 7200);
  EXPECT_THAT(error_of([&] { load_identity(pki.identity("past")); }),
              ::testing::AllOf(HasSubstr("it expired on 20"), HasSubstr("clock says 20")));
  EXPECT_THAT(error_of([&] { load_identity(pki.identity("future")); }),
              HasSubstr("it is not valid before 20"));
}

TEST(Loopback, IsWhatOthersCannotReach) {
  for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "", "no-such-host.invalid"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace atl::wire
