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
  // With these functions, which outlive it.
  static absl::StatusOr<std::shared_ptr<Context>> CreateWith(const Api& api, const UcxOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Api& api() const { return *api_; }
  ucp_context_h handle() const { return handle_; }
  // Maps memory for the adapters. Unmap it before the context ends.
  absl::StatusOr<ucp_mem_h> Map(MemoryRange range) const;
  void Unmap(ucp_mem_h mapped) const { api_->ucp_mem_unmap(handle_, mapped); }
  // Of UcxOptions::slots, if all of the range lies there; else nullptr.
  ucp_mem_h MappingOf(MemoryRange range) const;
  UcxOptions::Rma rma() const { return rma_; }
  bool can_rma() const { return can_rma_; }

 private:
  Context(const Api* api, ucp_context_h handle, UcxOptions::Rma rma, bool can_rma)
      : api_(api), handle_(handle), rma_(rma), can_rma_(can_rma) {}

  const Api* const api_;
  const ucp_context_h handle_;
  const UcxOptions::Rma rma_;
  const bool can_rma_;
  MemoryRange slots_;
  ucp_mem_h slots_mapped_ = nullptr;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_CONTEXT_H_
