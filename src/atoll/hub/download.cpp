#include "atoll/hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/hub/content_hash.h"
#include "atoll/hub/file_lock.h"
#include "atoll/hub/retry.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

// The content of one file on its way into the cache. Bytes are written where they belong: two
// processes that no lock keeps apart write the same.
class Incoming {
 public:
  Incoming(const RepoFile& file, fs::path path, DownloadCounts& counts)
      : file_(file), path_(std::move(path)), hash_(file), counts_(counts) {
    fd_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd_.open()) throw io_error("cannot write", path_, errno);
    take_what_is_there();
  }

  std::uint64_t size() const { return hash_.num_bytes(); }
  bool is_full() const { return size() == file_.size; }
  const fs::path& path() const { return path_; }

  // False: more bytes than the file has.
  bool take(std::string_view bytes) {
    if (bytes.size() > file_.size - size()) return false;
    std::string_view rest = bytes;
    std::uint64_t at = size();
    while (!rest.empty()) {
      const ssize_t count = ::pwrite(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw io_error("cannot write", path_, errno);
      rest.remove_prefix(static_cast<std::size_t>(count));
      at += static_cast<std::uint64_t>(count);
    }
    hash_.update(bytes);
    counts_.num_bytes += bytes.size();
    counts_.num_fetched += bytes.size();
    return true;
  }

  void begin_anew() {
    if (::ftruncate(fd_.get(), 0) != 0) throw io_error("cannot write", path_, errno);
    counts_.num_bytes -= size();
    hash_.reset();
  }

  // Whether the content is the file's.
  bool verifies() { return is_full() && hash_.digest() == file_.etag(); }

  // Gives it its name.
  void commit(const fs::path& to) {
    if (::fsync(fd_.get()) != 0) throw io_error("cannot write", path_, errno);
    if (::rename(path_.c_str(), to.c_str()) != 0) {
      // Without locks another process may have been faster.
      if (errno != ENOENT || ::access(to.c_str(), R_OK) != 0) {
        throw io_error("cannot write", to, errno);
      }
    }
    sync_directory(to.parent_path());
  }

 private:
  void take_what_is_there() {
    std::array<char, 1 << 16> buffer{};
    for (;;) {
      const ssize_t count =
          ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(hash_.num_bytes()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw io_error("cannot read", path_, errno);
      if (count == 0) break;
      hash_.update({buffer.data(), static_cast<std::size_t>(count)});
      counts_.num_bytes += static_cast<std::uint64_t>(count);
      if (hash_.num_bytes() > file_.size) return begin_anew();
    }
  }

  const RepoFile& file_;
  fs::path path_;
  Fd fd_;
  ContentHash hash_;
  DownloadCounts& counts_;
};

// "bytes 5-9/10": the first byte that an answer of 206 has; nothing for what is none.
std::optional<std::uint64_t> range_begin(const HttpResponse& response) {
  const std::string* range = response.field("content-range");
  if (range == nullptr || !range->starts_with("bytes ")) return std::nullopt;
  std::uint64_t begin = 0;
  const char* const first = range->data() + 6;
  const auto [end, error] = std::from_chars(first, range->data() + range->size(), begin);
  if (error != std::errc() || end == range->data() + range->size() || *end != '-') {
    return std::nullopt;
  }
  return begin;
}

// "W/\"abc\"" without what stands round it.
std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.starts_with('"')) etag.remove_prefix(1);
  if (etag.ends_with('"')) etag.remove_suffix(1);
  return std::string(etag);
}

// What a head says against the file; empty: nothing. Only the hub's own answers have these fields.
std::string objection(const HttpResponse& head, const std::string& commit, const RepoFile& file) {
  if (head.status >= 400) return "";  // what it says is an error's, which is told as such
  const std::string* at = head.field("x-repo-commit");
  if (at != nullptr && *at != commit) return "the server has another commit, " + *at;
  const std::string* etag = head.field("x-linked-etag");
  if (etag == nullptr && at != nullptr) etag = head.field("etag");
  if (etag != nullptr && plain_etag(*etag) != file.etag()) {
    return "the server has another content, " + plain_etag(*etag);
  }
  return "";
}

// One download of a content, with all its attempts.
class Download {
 public:
  Download(HttpClient& client, const HubSettings& settings, const RepoName& name,
           const std::string& commit, const RepoFile& file, DownloadCounts& counts)
      : client_(client),
        settings_(settings),
        name_(name),
        commit_(commit),
        file_(file),
        counts_(counts),
        what_(name.id + "/" + file.path),
        retries_(settings.retry, what_, &counts.stops) {}

  void fill(Incoming& incoming) {
    farthest_ = incoming.size();
    while (!incoming.is_full()) attempt(incoming);
  }

  const std::string& what() const { return what_; }

 private:
  // Comes back after an attempt that may be followed by another one.
  void attempt(Incoming& incoming) {
    const std::uint64_t from = incoming.size();
    std::string against;
    bool has_begun = false;
    const HttpOutcome outcome =
        client_.get({.url = file_url(settings_, name_, commit_, file_.path),
                     .from = from > 0 ? std::optional(from) : std::nullopt,
                     .on_head =
                         [&](const HttpResponse& head) {
                           against = objection(head, commit_, file_);
                           has_begun = against.empty() && begins(head, from, incoming, against);
                           return against.empty();
                         },
                     .on_body =
                         [&](std::string_view bytes) {
                           if (!has_begun || !incoming.take(bytes))
                             against = "more bytes came than it has";
                           return against.empty();
                         },
                     .stops = &counts_.stops});
    // Bytes that were there before are no progress.
    if (incoming.size() > farthest_) retries_.progressed();
    farthest_ = std::max(farthest_, incoming.size());
    if (counts_.stops) throw make_error(ErrorKind::kIo, "{}: another file failed", what_);
    const int status = outcome.response.status;
    std::string why = !against.empty() ? against : outcome.failure;
    if (why.empty() && status == 416) {
      // What is there is longer than what the server has.
      incoming.begin_anew();
      why = "the server has no such range";
    } else if (why.empty() && (status < 200 || status >= 300)) {
      if (!is_passing(status)) refuse_answer(outcome.response, settings_, name_);
      why = fmt::format("the hub answers {}", status);
    }
    if (incoming.is_full()) return;
    if (why.empty()) why = fmt::format("only {} of {} bytes came", incoming.size(), file_.size);
    const auto asked = status == 429 || status == 503
                           ? asked_wait(outcome.response, std::time(nullptr))
                           : std::nullopt;
    if (retries_.wait(why, asked)) return;
    throw make_error(ErrorKind::kIo,
                     "{}: {}; {} of {} bytes are in the cache, and the same command goes on there",
                     what_, why, incoming.size(), file_.size);
  }

  // Whether the body of an answer goes on where `incoming` ends, which begins anew for a server
  // that sends the whole.
  bool begins(const HttpResponse& head, std::uint64_t from, Incoming& incoming,
              std::string& against) {
    if (head.status == 206) {
      if (range_begin(head) == from) return true;
      against = "the server sends another range than was asked for";
      return false;
    }
    if (head.status >= 200 && head.status < 300 && incoming.size() > 0) incoming.begin_anew();
    return true;
  }

  HttpClient& client_;
  const HubSettings& settings_;
  const RepoName& name_;
  const std::string& commit_;
  const RepoFile& file_;
  DownloadCounts& counts_;
  std::string what_;
  Retries retries_;
  std::uint64_t farthest_ = 0;  // that incoming has been
};

fs::path incomplete_of(const RepoCache& cache, const RepoFile& file) {
  fs::path path = cache.blob(file);
  path += ".incomplete";
  return path;
}

bool is_whole(const fs::path& blob, const RepoFile& file) {
  std::error_code error;
  return fs::is_regular_file(blob, error) && fs::file_size(blob, error) == file.size && !error;
}

}  // namespace

std::uint64_t bytes_there(const RepoCache& cache, const RepoFile& file) {
  if (is_whole(cache.blob(file), file)) return file.size;
  std::error_code error;
  const std::uint64_t size = fs::file_size(incomplete_of(cache, file), error);
  return error ? 0 : std::min(size, file.size);
}

void download_file(HttpClient& client, const HubSettings& settings, const RepoName& name,
                   const std::string& commit, const RepoFile& file, DownloadCounts& counts) {
  const RepoCache cache(settings, name);
  const fs::path blob = cache.blob(file);
  Download download(client, settings, name, commit, file, counts);
  const FileLock lock(cache.lock(file), [&] {
    log::info("{}: another process gets it; waiting for that", download.what());
  });
  if (cache.has(commit, file)) {  // whoever had the lock before got it
    counts.num_bytes += file.size;
    ++counts.num_files;
    return;
  }
  bool is_new = false;
  if (is_whole(blob, file)) {
    counts.num_bytes += file.size;
  } else {
    fs::path path = incomplete_of(cache, file);
    // Where nobody can be kept out each process has a file of its own.
    if (!lock.holds()) {
      path = blob;
      path += fmt::format(".{:08x}.incomplete", static_cast<unsigned>(::getpid()));
    }
    // What an earlier program left there may be another content: once more from the beginning.
    for (int attempts = 1; !is_new; ++attempts) {
      Incoming incoming(file, path, counts);
      const bool was_begun = incoming.size() > 0;
      download.fill(incoming);
      if (incoming.verifies()) {
        incoming.commit(blob);
        is_new = true;
        break;
      }
      incoming.begin_anew();
      ::unlink(path.c_str());
      constexpr int kMostAttempts = 2;
      if (attempts < kMostAttempts) {
        log::warning("{}: its hash is not {}{}; it is got once more", download.what(), file.etag(),
                     was_begun ? ", as an earlier download left it" : "");
        continue;
      }
      throw damaged_error(
          "{}: what the server sends has another hash than {}; try again later, or from another "
          "HF_ENDPOINT",
          download.what(), file.etag());
    }
  }
  cache.link(commit, file, is_new);
  ++counts.num_files;
}

}  // namespace atl::hub
