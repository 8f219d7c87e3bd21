// A UCX context with the settings that Quarry needs. The environment (UCX_*) wins over them.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_CONTEXT_H_
#define QUARRY_COMMON_TRANSPORT_UCX_CONTEXT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/transport/registry.h"
#include "common/transport/ucx/api.h"

namespace quarry::transport::ucx {

// Thread-safe.
class Context {
 public:
  static absl::StatusOr<std::shared_ptr<Context>> Create(const UcxOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Api& api() const { return *api_; }
  ucp_context_h handle() const { return handle_; }

 private:
  Context(const Api* api, ucp_context_h handle) : api_(api), handle_(handle) {}

  const Api* const api_;
  const ucp_context_h handle_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_CONTEXT_H_
