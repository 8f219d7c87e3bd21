#include "common/transport/ucx/api.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {
namespace {

constexpr char kDefaultLibrary[] = "libucp.so.0";

absl::StatusOr<std::unique_ptr<const Api>> Load(const std::string& library) {
  void* handle = dlopen(kDefaultLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const char* name = library.empty() ? kDefaultLibrary : library.c_str();
  if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return absl::NotFoundError(absl::StrCat("UCX cannot be loaded: ", why != nullptr ? why : name));
  }
  auto api = std::make_unique<Api>();
#define QUARRY_UCX_FIND(function)                                                      \
  api->function = reinterpret_cast<decltype(api->function)>(dlsym(handle, #function)); \
  if (api->function == nullptr) return absl::NotFoundError(absl::StrCat("UCX: ", name, " has no " #function));
  QUARRY_UCX_FUNCTIONS(QUARRY_UCX_FIND)
#undef QUARRY_UCX_FIND
  Version& version = api->version;
  api->ucp_get_version(&version.major, &version.minor, &version.release);
  if (version.major != UCP_API_MAJOR || version.minor < UCP_API_MINOR) {
    return absl::FailedPreconditionError(absl::StrCat("UCX ", ToString(version), " is older than ", UCP_API_MAJOR, ".",
                                                      UCP_API_MINOR, ", which this was built for"));
  }
  return api;
}

}  // namespace

std::string ToString(const Version& version) {
  return absl::StrCat(version.major, ".", version.minor, ".", version.release);
}

absl::StatusOr<const Api*> LoadApi(const std::string& library) {
  static std::mutex mutex;
  static std::unique_ptr<const Api> loaded;  // guarded by mutex
  std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    auto api = Load(library);
    if (!api.ok()) return api.status();
    loaded = *std::move(api);
  }
  return loaded.get();
}

absl::Status UcxStatus(const Api& api, ucs_status_t status, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("UCX: ", what, ": ", api.ucs_status_string(status)));
}

}  // namespace quarry::transport::ucx
