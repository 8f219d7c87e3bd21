// The functions of libucp that Quarry calls, found at run time: nothing links UCX, so a process
// that does not ask for it maps none of it.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_API_H_
#define QUARRY_COMMON_TRANSPORT_UCX_API_H_

#include <ucp/api/ucp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::transport::ucx {

#define QUARRY_UCX_FUNCTIONS(F)     \
  F(ucp_am_data_release)            \
  F(ucp_am_recv_data_nbx)           \
  F(ucp_am_send_nbx)                \
  F(ucp_cleanup)                    \
  F(ucp_config_modify)              \
  F(ucp_config_read)                \
  F(ucp_config_release)             \
  F(ucp_ep_close_nbx)               \
  F(ucp_ep_create)                  \
  F(ucp_ep_flush_nbx)               \
  F(ucp_ep_print_info)              \
  F(ucp_ep_rkey_unpack)             \
  F(ucp_get_nbx)                    \
  F(ucp_get_version)                \
  F(ucp_init_version)               \
  F(ucp_mem_map)                    \
  F(ucp_mem_unmap)                  \
  F(ucp_put_nbx)                    \
  F(ucp_request_free)               \
  F(ucp_rkey_buffer_release)        \
  F(ucp_rkey_destroy)               \
  F(ucp_rkey_pack)                  \
  F(ucp_worker_arm)                 \
  F(ucp_worker_create)              \
  F(ucp_worker_destroy)             \
  F(ucp_worker_get_efd)             \
  F(ucp_worker_progress)            \
  F(ucp_worker_query)               \
  F(ucp_worker_release_address)     \
  F(ucp_worker_set_am_recv_handler) \
  F(ucs_status_string)

struct Version {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
};
std::string ToString(const Version& version);

struct Api {
#define QUARRY_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  QUARRY_UCX_FUNCTIONS(QUARRY_UCX_MEMBER)
#undef QUARRY_UCX_MEMBER
  Version version;
};

// `library`: a path, or a name that the loader looks up; empty: libucp.so.0. A libucp that the
// process has mapped already is taken whatever is asked for, because two would share their
// modules. Loaded once and never unloaded. NotFound says what the loader says;
// FailedPrecondition: older than the headers that this was built with. Thread-safe.
absl::StatusOr<const Api*> LoadApi(const std::string& library);

// Of a call that failed.
absl::Status UcxStatus(const Api& api, ucs_status_t status, absl::string_view what);

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_API_H_
