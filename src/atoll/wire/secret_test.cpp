#include "atoll/wire/secret.h"

#include <sys/stat.h>

#include <fstream>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/testing.h"
#include "atoll/wire/testing/relay.h"

namespace atl::wire {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Secret, IsMadeOnceForItsOwnerAlone) {
  const test::Directory directory;
  const fs::path path = directory / "secret";
  Secret::make(path);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  const std::string text = read_file(path);
  EXPECT_EQ(text.size(), 65U);
  Secret::make(path);
  EXPECT_EQ(read_file(path), text) << "others have it already";
  Secret::make(directory / "another");
  EXPECT_NE(read_file(directory / "another"), text);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2);
}

TEST(Secret, OneThatOthersMayReadOrThatIsNoneIsRefused) {
  const test::Directory directory;
  const fs::path path = directory / "secret";
  EXPECT_THAT(message_of([&] { Secret secret(path); }), HasSubstr("there is no secret"));
  Secret::make(path);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(message_of([&] { Secret secret(path); }), HasSubstr("mode 640"));
  std::ofstream(path) << "swordfish\n";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { Secret secret(path); }), HasSubstr("holds no secret"));
  EXPECT_THAT(message_of([&] { Secret secret(path); }), HasSubstr("if it is that one, delete it"))
      << "it may be any file, named by mistake";
}

TEST(Secret, AProofIsForOneSideOnePortAndOneNonce) {
  const test::Directory directory;
  for (const char* name : {"a", "b"}) Secret::make(directory / name);
  const Secret secret(directory / "a");
  const std::string proof = secret.proof("client", 7411, "n");
  EXPECT_EQ(proof, Secret(directory / "a").proof("client", 7411, "n"));
  EXPECT_NE(proof, secret.proof("server", 7411, "n"));
  EXPECT_NE(proof, secret.proof("client", 7412, "n"));
  EXPECT_NE(proof, secret.proof("client", 7411, "m"));
  EXPECT_NE(proof, Secret(directory / "b").proof("client", 7411, "n"));
}

TEST(Secret, IsNotForThoseThatHaveCertificates) {
  const test::Directory directory;
  Secret::make(directory / "secret");
  EXPECT_THAT(message_of([&] { secret_beside(directory / "secret", directory / "identity"); }),
              HasSubstr("remove one of them"));
}

// A server with a secret that has one blob, and who may call it.
class SecretServer : public ::testing::Test {
 protected:
  SecretServer() {
    for (const char* name : {"ours", "another"}) Secret::make(directory_ / name);
    server_ =
        std::make_unique<Server>(ServerOptions{.secret = directory_ / "ours"}, &echo_, &blobs_);
    echo_.server = server_.get();
    blobs_.publish({.key = "blob",
                    .bytes = 1,
                    .reader = [](std::uint64_t, std::span<std::byte> out) { out[0] = {}; },
                    .is_complete = true});
    blobs_.allow_put({.key = "wish", .bytes = 1, .writer = [this](auto...) { ++num_put_; }});
  }
  ~SecretServer() override { server_.reset(); }

  SessionOptions session(const std::string& address, const std::string& secret) const {
    SessionOptions options = test::session_options(address, {});
    if (!secret.empty()) options.secret = directory_ / secret;
    return options;
  }
  BlobClientOptions remote(const std::string& address, const std::string& secret) const {
    BlobClientOptions options = {.address = address};
    if (!secret.empty()) options.secret = directory_ / secret;
    return options;
  }
  static TransferResult fetch(const BlobClientOptions& options) {
    std::vector<bool> done;
    return BlobClient(options).fetch({.key = "blob", .bytes = 1}, done, [](auto...) {});
  }
  static TransferResult put(const BlobClientOptions& options) {
    std::vector<bool> done;
    return BlobClient(options).put({.key = "wish", .bytes = 1}, done, [](auto...) {});
  }
  void expect_stranger(const std::string& address, const std::string& secret,
                       const std::string& words) {
    test::TestClient client(session(address, secret));
    ASSERT_TRUE(client.finals.wait(1)) << "it is told for good";
    EXPECT_THAT(client.finals.all()[0], HasSubstr(words));
    for (const TransferResult& result :
         {fetch(remote(address, secret)), put(remote(address, secret))}) {
      EXPECT_EQ(result.end, TransferEnd::kRefused);
      EXPECT_THAT(result.why, HasSubstr(words));
    }
    EXPECT_THAT(echo_.opens.all(), IsEmpty());
    EXPECT_EQ(num_put_, 0);
  }

  test::Directory directory_;
  test::Echo echo_;
  BlobStore blobs_;
  std::atomic<int> num_put_ = 0;
  std::unique_ptr<Server> server_;
};

TEST_F(SecretServer, LetsInWhoKnowsIt) {
  const std::string address = server_->address();
  test::TestClient client(session(address, "ours"));
  ASSERT_TRUE(client.connects.wait(1));
  EXPECT_TRUE(client.session.send("hello"));
  ASSERT_TRUE(client.frames.wait(1));
  EXPECT_THAT(client.frames.all(), ElementsAre("hello"));
  EXPECT_EQ(fetch(remote(address, "ours")).end, TransferEnd::kDone);
  EXPECT_EQ(put(remote(address, "ours")).end, TransferEnd::kDone);
  EXPECT_EQ(num_put_, 1);
}

TEST_F(SecretServer, RefusesWhoShowsNone) {
  expect_stranger(server_->address(), "",
                  "none was shown: give the file " + (directory_ / "ours").string());
}

TEST_F(SecretServer, RefusesWhoShowsAnother) {
  expect_stranger(server_->address(), "another", "is not that of this run");
  expect_stranger(server_->address(), "another",
                  "give the file " + (directory_ / "ours").string() + " (island.secret, ");
}

// As one would see it who has taken over another port of the run, and passes on what comes there.
TEST_F(SecretServer, RefusesWhatWasShownToAnotherPort) {
  test::Relay relay(server_->address(), {});
  expect_stranger(relay.address(), "ours", "or not for port");
}

// Who took over the port of a process that died hears nothing.
TEST_F(SecretServer, ItsClientsTalkToNobodyElse) {
  test::Echo other_echo;
  for (const bool knows_another : {false, true}) {
    ServerOptions options;
    if (knows_another) options.secret = directory_ / "another";
    BlobStore blobs;
    blobs.publish({.key = "blob",
                   .bytes = 1,
                   .reader = [](std::uint64_t, std::span<std::byte> out) { out[0] = {}; },
                   .is_complete = true});
    Server other(options, &other_echo, &blobs);
    test::TestClient client(session(other.address(), "ours"));
    ASSERT_TRUE(client.finals.wait(1));
    EXPECT_THAT(client.finals.all()[0],
                HasSubstr(knows_another ? "is not that of this run" : "does not know the secret"));
    EXPECT_EQ(fetch(remote(other.address(), "ours")).end, TransferEnd::kRefused);
  }
  EXPECT_THAT(other_echo.frames.all(), IsEmpty());
}

}  // namespace
}  // namespace atl::wire
