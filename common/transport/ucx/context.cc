#include "common/transport/ucx/context.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {
namespace {

struct Setting {
  const char* name;      // in the environment, behind UCX_
  const char* old_name;  // as UCX 1.13 wants to be told
  const char* value;
  const char* lanes[4] = {};  // names in UCX_TLS by which the component is asked for
};

constexpr Setting kSettings[] = {
    // Segments of 8 and 64 KiB, UCX's own, are five times slower on large blocks.
    {"TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "512K", {"tcp", "all"}},
    {"TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "512K", {"tcp", "all"}},
    // Without it, shared-memory lanes are left out where endpoints heed the death of their peer.
    {"POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "y", {"posix", "shm", "sm", "all"}},
    // The receiver's worker puts down what arrives, whatever an adapter could do: nobody writes into
    // memory that its owner has taken back, and no address of the server's leaves it.
    {"RNDV_SCHEME", "RNDV_SCHEME", "am"},
};

constexpr Setting kHostOnly[] = {
    {"TLS", "TLS", "posix,self,tcp"},
    {"NET_DEVICES", "NET_DEVICES", "lo"},
};

// UCX warns of settings for what it does not use.
bool IsWanted(const Setting& setting) {
  const char* lanes = std::getenv("UCX_TLS");
  if (lanes == nullptr || setting.lanes[0] == nullptr) return true;
  return std::any_of(std::begin(setting.lanes), std::end(setting.lanes),
                     [lanes](const char* name) { return name != nullptr && absl::StrContains(lanes, name); });
}

absl::Status Apply(const Api& api, ucp_config_t* config, const Setting& setting) {
  if (std::getenv(absl::StrCat("UCX_", setting.name).c_str()) != nullptr || !IsWanted(setting)) return absl::OkStatus();
  const char* name = api.version.minor < 14 ? setting.old_name : setting.name;
  const ucs_status_t status = api.ucp_config_modify(config, name, setting.value);
  return status == UCS_OK ? absl::OkStatus() : UcxStatus(api, status, absl::StrCat("setting ", name));
}

absl::Status ApplyAll(const Api& api, ucp_config_t* config, bool trusted_fabric) {
  for (const Setting& setting : kSettings) {
    if (absl::Status status = Apply(api, config, setting); !status.ok()) return status;
  }
  if (trusted_fabric) return absl::OkStatus();
  for (const Setting& setting : kHostOnly) {
    if (absl::Status status = Apply(api, config, setting); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Context>> Context::Create(const UcxOptions& options) {
  const auto loaded = LoadApi(options.libucp);
  if (!loaded.ok()) return loaded.status();
  const Api& api = **loaded;

  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = api.ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return UcxStatus(api, status, "reading the environment");
  }
  const absl::Status applied = ApplyAll(api, config, options.trusted_fabric);
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // each loop of a server has one
  ucp_context_h handle = nullptr;
  ucs_status_t status = UCS_OK;
  if (applied.ok()) status = api.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &handle);
  api.ucp_config_release(config);
  if (!applied.ok()) return applied;
  if (status != UCS_OK) return UcxStatus(api, status, "init");
  return std::shared_ptr<Context>(new Context(&api, handle));
}

Context::~Context() { api_->ucp_cleanup(handle_); }

}  // namespace quarry::transport::ucx
