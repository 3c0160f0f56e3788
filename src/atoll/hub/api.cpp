#include "atoll/hub/api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/hub/retry.h"

namespace atl::hub {

namespace {

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Runs what reads members of JSON; what the library throws becomes an Error.
template <typename Read>
auto reading(const std::string& origin, Read&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw damaged_error("{}: {}", origin, json_reason(error));
  }
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

RepoFile parse_file(const nlohmann::json& entry, const std::string& origin) {
  RepoFile file;
  file.path = entry.at("path").get<std::string>();
  file.size = static_cast<std::uint64_t>(whole_number(entry.at("size"), 0, kMostBytes));
  file.blob_id = entry.at("oid").get<std::string>();
  if (!is_safe_path(file.path)) {
    throw damaged_error("{}: '{}' is no path of a file in a repository", origin, file.path);
  }
  if (!is_hex(file.blob_id, 40)) {
    throw damaged_error("{}: {}: \"oid\" is no SHA-1", origin, file.path);
  }
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && !lfs->is_null()) {
    file.sha256 = lfs->at("oid").get<std::string>();
    file.size = static_cast<std::uint64_t>(whole_number(lfs->at("size"), 0, kMostBytes));
    if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
    if (!is_hex(file.sha256, 64)) {
      throw damaged_error("{}: {}: \"lfs\" has no SHA-256", origin, file.path);
    }
  }
  if (const auto xet = entry.find("xetHash"); xet != entry.end() && xet->is_string()) {
    file.xet_hash = xet->get<std::string>();
  }
  return file;
}

// What to do about a repository that may not be read.
std::string token_advice(const HubSettings& settings) {
  return settings.token.empty()
             ? "; if it is private or gated, accept its terms on its page and set HF_TOKEN to a "
               "token that may read it"
             : "; the token that was sent (HF_TOKEN, or the file HF_TOKEN_PATH) may not read it";
}

std::string field_or_empty(const HttpResponse& response, std::string_view name) {
  const std::string* value = response.field(name);
  return value == nullptr ? "" : value->substr(0, 300);
}

}  // namespace

std::string parse_commit(std::string_view json, const std::string& origin) {
  const nlohmann::json value = parse_json(json, origin);
  return reading(origin, [&] {
    std::string commit = value.at("sha").get<std::string>();
    if (is_commit(commit)) return commit;
    throw damaged_error("{}: \"sha\" is no commit", origin);
  });
}

std::vector<RepoFile> parse_tree(std::string_view json, const std::string& origin) {
  const nlohmann::json value = parse_json(json, origin);
  if (!value.is_array()) throw damaged_error("{}: it is no list of files", origin);
  return reading(origin, [&] {
    std::vector<RepoFile> files;
    for (const nlohmann::json& entry : value) {
      if (entry.at("type").get<std::string>() == "file") {
        files.push_back(parse_file(entry, origin));
      }
    }
    return files;
  });
}

std::string next_link(std::string_view link) {
  // <address>; rel="next", <address>; rel="prev"
  while (!link.empty()) {
    const std::size_t open = link.find('<');
    const std::size_t close = link.find('>', open == link.npos ? 0 : open);
    if (open == link.npos || close == link.npos) return "";
    const std::string_view address = link.substr(open + 1, close - open - 1);
    link.remove_prefix(close + 1);
    const std::string_view parameters = link.substr(0, link.find('<'));
    if (parameters.find("rel=\"next\"") != parameters.npos ||
        parameters.find("rel=next") != parameters.npos) {
      return std::string(address);
    }
  }
  return "";
}

std::string api_url(const HubSettings& settings, const RepoName& name) {
  return settings.endpoint + (name.kind == RepoKind::kModel ? "/api/models/" : "/api/datasets/") +
         name.id;
}

std::string file_url(const HubSettings& settings, const RepoName& name, const std::string& commit,
                     const std::string& path) {
  return settings.endpoint + (name.kind == RepoKind::kModel ? "/" : "/datasets/") + name.id +
         "/resolve/" + commit + "/" + escaped(path, true);
}

void refuse_answer(const HttpResponse& response, const HubSettings& settings,
                   const RepoName& name) {
  const std::string code = field_or_empty(response, "x-error-code");
  const std::string said = field_or_empty(response, "x-error-message");
  const std::string what = fmt::format("the {} {}", kind_name(name.kind), name.text());
  const int status = response.status;
  if (code == "RevisionNotFound") {
    throw user_error("{}: {} has no revision {}", what, settings.endpoint, name.revision);
  }
  if (code == "EntryNotFound") {
    throw user_error("{}: {} has no such file at {}", what, settings.endpoint, name.revision);
  }
  if (code == "GatedRepo") {
    throw user_error("{} is gated: {}{}", what,
                     said.empty() ? "who gets it must accept its terms first" : said,
                     token_advice(settings));
  }
  if (status == 401 || status == 403) {
    throw user_error("{}: {} answers {}{}{}", what, settings.endpoint, status,
                     said.empty() ? ": there is none of that name, or it is private" : ": " + said,
                     token_advice(settings));
  }
  if (status == 404 || code == "RepoNotFound") {
    throw user_error("{}: {} has none of that name{}", what, settings.endpoint,
                     token_advice(settings));
  }
  throw make_error(ErrorKind::kIo, "{}: {} answers {}{}{}", what, settings.endpoint, status,
                   said.empty() ? "" : ": ", said);
}

std::string ask_commit(HttpClient& client, const HubSettings& settings, const RepoName& name) {
  const std::string url =
      api_url(settings, name) + "/revision/" + escaped(name.revision, /*keeps_slashes=*/false);
  const HttpResponse response = get_patiently(client, settings, url, name.text());
  if (response.status != 200) refuse_answer(response, settings, name);
  return parse_commit(response.body, url);
}

std::vector<RepoFile> ask_files(HttpClient& client, const HubSettings& settings,
                                const RepoName& name, const std::string& commit) {
  std::string url = api_url(settings, name) + "/tree/" + commit + "?recursive=true&expand=false";
  std::vector<RepoFile> files;
  std::set<std::string> seen;
  while (!url.empty()) {
    constexpr std::size_t kMostPages = 100'000;
    if (seen.size() >= kMostPages) throw damaged_error("{}: its list has no end", url);
    if (!seen.insert(url).second) throw damaged_error("{}: the next page is itself", url);
    const HttpResponse response = get_patiently(client, settings, url, name.text());
    if (response.status != 200) refuse_answer(response, settings, name);
    std::vector<RepoFile> page = parse_tree(response.body, url);
    std::move(page.begin(), page.end(), std::back_inserter(files));
    if (files.size() > kMostFiles) {
      throw make_error(ErrorKind::kResource, "{} has more than {} files", name.text(), kMostFiles);
    }
    const std::string* link = response.field("link");
    const std::string next = link == nullptr ? "" : next_link(*link);
    url = next.empty() ? "" : resolved_url(url, next);
  }
  std::sort(files.begin(), files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace atl::hub
