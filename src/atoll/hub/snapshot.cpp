#include "atoll/hub/snapshot.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/hub/cache.h"
#include "atoll/hub/download.h"
#include "atoll/hub/progress.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

// "a.txt, b.txt and 3 more".
std::string listed(const std::vector<RepoFile>& files) {
  constexpr std::size_t kShown = 4;
  std::string all;
  for (std::size_t i = 0; i < std::min(files.size(), kShown); ++i) {
    all += (i > 0 ? ", " : "") + files[i].path;
  }
  return files.size() > kShown ? fmt::format("{} and {} more", all, files.size() - kShown) : all;
}

class Getting {
 public:
  Getting(const HubSettings& settings, const RepoName& name)
      : settings_(settings), name_(name), cache_(settings, name) {}

  Snapshot get(const ChooseFiles& choose, const std::vector<std::string>& wanted) {
    Snapshot result;
    commit_ = find_commit();
    const std::vector<RepoFile> all = find_files();
    result.commit = commit_;
    result.directory = cache_.snapshot(commit_);
    result.files = choose(all, [this](const RepoFile& file) { return read(file); });
    fetch(result.files);
    cache_.write_ref(name_.revision, commit_);
    for (const std::string& path : wanted) {
      const auto is_it = [&](const RepoFile& file) { return file.path == path; };
      if (!has_list_ || std::any_of(all.begin(), all.end(), is_it)) continue;
      cache_.write_absent(commit_, path);
      result.absent.push_back(path);
    }
    result.fetched_bytes = fetched_bytes_;
    return result;
  }

 private:
  HttpClient& client() {
    if (!client_) client_ = std::make_unique<HttpClient>(settings_);
    return *client_;
  }

  std::string find_commit() {
    if (is_commit(name_.revision)) return name_.revision;
    if (!settings_.is_offline) return ask_commit(client(), settings_, name_);
    if (const auto commit = cache_.read_ref(name_.revision)) return *commit;
    throw user_error(
        "{} is not in {}, and HF_HUB_OFFLINE is set: get it with `atoll get {}` where there is a "
        "network",
        name_.text(), settings_.cache.string(), name_.text());
  }

  std::vector<RepoFile> find_files() {
    if (auto files = cache_.read_tree(commit_)) return *files;
    if (settings_.is_offline) {
      // A program that keeps no lists has put it there.
      has_list_ = false;
      return cache_.files_there(commit_);
    }
    std::vector<RepoFile> files = ask_files(client(), settings_, name_, commit_);
    cache_.write_tree(commit_, files);
    return files;
  }

  std::string read(const RepoFile& file) {
    fetch({file});
    return read_file(cache_.snapshot(commit_) / file.path);
  }

  void fetch(const std::vector<RepoFile>& chosen) {
    std::vector<RepoFile> missing;
    for (const RepoFile& file : chosen) {
      if (!cache_.has(commit_, file)) missing.push_back(file);
    }
    if (missing.empty()) return;
    if (settings_.is_offline) {
      throw user_error(
          "of {} the cache {} lacks {}, and HF_HUB_OFFLINE is set: get the rest with `atoll get "
          "{}` where there is a network",
          name_.text(), settings_.cache.string(), listed(missing), name_.text());
    }
    cache_.prepare();
    std::uint64_t bytes = 0;
    std::uint64_t to_come = 0;
    for (const RepoFile& file : missing) {
      bytes += file.size;
      to_come += file.size - bytes_there(cache_, file);
    }
    check_room(to_come);
    constexpr std::uint64_t kWorthALine = 1 << 20;
    if (to_come >= kWorthALine) {
      log::info("{} at {}: {}, {} to come, into {}", name_.text(), commit_.substr(0, 12),
                counted(static_cast<std::int64_t>(missing.size()), "file"), format_bytes(to_come),
                settings_.cache.string());
    }
    // The largest first: the last to end is then a small one.
    std::stable_sort(missing.begin(), missing.end(),
                     [](const RepoFile& a, const RepoFile& b) { return a.size > b.size; });
    download_all(missing, bytes);
  }

  void check_room(std::uint64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(cache_.root(), error);
    if (error || space.available >= bytes) return;
    throw user_error(
        "{} needs {} in {}, and the disk has {}; free some, or name another directory with "
        "HF_HUB_CACHE",
        name_.text(), format_bytes(bytes), settings_.cache.string(), format_bytes(space.available));
  }

  void download_all(const std::vector<RepoFile>& files, std::uint64_t bytes) {
    DownloadCounts counts;
    std::exception_ptr failure;
    {
      const ProgressLine progress(counts, name_.text(), bytes, files.size());
      std::atomic<std::size_t> next{0};
      std::mutex mutex;
      const auto work = [&](HttpClient& by) {
        for (std::size_t i = 0; (i = next.fetch_add(1)) < files.size() && !counts.stops;) {
          download_file(by, settings_, name_, commit_, files[i], counts);
        }
      };
      const auto work_safely = [&] {
        try {
          HttpClient own(settings_);
          work(own);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
          counts.stops = true;
        }
      };
      std::vector<std::thread> threads;
      const std::size_t count =
          std::min(files.size(), static_cast<std::size_t>(settings_.num_parallel));
      threads.reserve(count);
      try {
        for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work_safely);
      } catch (const std::system_error&) {
        if (threads.empty()) work_safely();  // fewer threads do the same
      }
      for (std::thread& thread : threads) thread.join();
    }
    fetched_bytes_ += counts.num_fetched;
    if (failure) std::rethrow_exception(failure);
  }

  const HubSettings& settings_;
  const RepoName& name_;
  RepoCache cache_;
  std::unique_ptr<HttpClient> client_;
  std::string commit_;
  bool has_list_ = true;
  std::uint64_t fetched_bytes_ = 0;
};

}  // namespace

Snapshot get_snapshot(const HubSettings& settings, const RepoName& name, const ChooseFiles& choose,
                      const std::vector<std::string>& wanted) {
  return Getting(settings, name).get(choose, wanted);
}

}  // namespace atl::hub
