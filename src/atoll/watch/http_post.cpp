#include "atoll/watch/http_post.h"

#include <curl/curl.h>

#include <memory>

namespace atl::watch {

namespace {

struct EasyDelete {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListDelete>;

void append(List& list, const std::string& header) {
  curl_slist* const longer = curl_slist_append(list.get(), header.c_str());
  if (longer == nullptr) return;
  (void)list.release();
  list.reset(longer);
}

// Drops the body of the answer.
std::size_t ignore(char*, std::size_t size, std::size_t count, void*) {
  return size * count;
}

int asks_whether_to_end(void* ends, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& asked = *static_cast<const std::function<bool()>*>(ends);
  return asked && asked() ? 1 : 0;
}

}  // namespace

std::string http_post(const HttpPost& post, const std::function<bool()>& ends) {
  static const CURLcode is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (is_ready != CURLE_OK) {
    return std::string("libcurl does not start: ") + curl_easy_strerror(is_ready);
  }
  const std::unique_ptr<CURL, EasyDelete> easy(curl_easy_init());
  CURL* const handle = easy.get();
  List headers;
  append(headers, "Content-Type: application/json");
  if (!post.token.empty()) append(headers, "Authorization: Bearer " + post.token);
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_URL, post.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "atoll");
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, post.json.c_str());
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(post.json.size()));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &ignore);
  curl_easy_setopt(handle, CURLOPT_TIMEOUT, static_cast<long>(post.timeout.count()));
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &ends);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &asks_whether_to_end);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  if (!post.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, post.ca_file.c_str());
  const CURLcode code = curl_easy_perform(handle);
  if (code != CURLE_OK) return reason[0] == '\0' ? curl_easy_strerror(code) : reason;
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300 ? "" : "it answered " + std::to_string(status);
}

}  // namespace atl::watch
