#include "common/transport/ucx/context.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/rdma_device.h"

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
    // The receiver's worker puts down what a message brings, whatever an adapter could do: nobody
    // writes into memory that its owner has taken back, and no address of the server's leaves it.
    // What adapters do move by themselves (RMA) is told apart, and answered for.
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

// It costs lanes, so only where it may be used.
bool WantsRma(const UcxOptions& options) {
  if (options.rma == UcxOptions::Rma::kAuto) return options.trusted_fabric && HasRdmaDevice();
  return options.rma == UcxOptions::Rma::kAlways;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Context>> Context::Create(const UcxOptions& options) {
  const auto loaded = LoadApi(options.libucp);
  if (!loaded.ok()) return loaded.status();
  return CreateWith(**loaded, options);
}

absl::StatusOr<std::shared_ptr<Context>> Context::CreateWith(const Api& api, const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = api.ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return UcxStatus(api, status, "reading the environment");
  }
  const absl::Status applied = ApplyAll(api, config, options.trusted_fabric);
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const bool can_rma = WantsRma(options);
  if (can_rma) params.features |= UCP_FEATURE_RMA;
  params.mt_workers_shared = 1;  // each loop of a server has one
  ucp_context_h handle = nullptr;
  ucs_status_t status = UCS_OK;
  if (applied.ok()) status = api.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &handle);
  api.ucp_config_release(config);
  if (!applied.ok()) return applied;
  if (status != UCS_OK) return UcxStatus(api, status, "init");
  std::shared_ptr<Context> context(new Context(&api, handle, options.rma, can_rma));
  if (!can_rma || options.slots.bytes == 0) return context;
  auto mapped = context->Map(options.slots);
  if (!mapped.ok()) return mapped.status();
  context->slots_ = options.slots;
  context->slots_mapped_ = *mapped;
  return context;
}

Context::~Context() {
  if (slots_mapped_ != nullptr) Unmap(slots_mapped_);
  api_->ucp_cleanup(handle_);
}

absl::StatusOr<ucp_mem_h> Context::Map(MemoryRange range) const {
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = range.base;
  params.length = range.bytes;
  ucp_mem_h mapped = nullptr;
  const ucs_status_t status = api_->ucp_mem_map(handle_, &params, &mapped);
  if (status == UCS_OK) return mapped;
  return UcxStatus(*api_, status, absl::StrCat("mapping ", range.bytes, " bytes for the adapters (memlock?)"));
}

ucp_mem_h Context::MappingOf(MemoryRange range) const {
  const size_t offset = reinterpret_cast<size_t>(range.base) - reinterpret_cast<size_t>(slots_.base);
  return offset <= slots_.bytes && range.bytes <= slots_.bytes - offset ? slots_mapped_ : nullptr;
}

}  // namespace quarry::transport::ucx
