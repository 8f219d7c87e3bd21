// The client's end of a session whose payload moves by UCX.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_CLIENT_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_UCX_CLIENT_CHANNEL_H_

#include <memory>

#include "common/transport/exposed_table.h"
#include "common/transport/registry.h"
#include "common/transport/ucx/client_stream.h"

namespace quarry::transport::ucx {

class UcxClientChannel : public ClientChannel {
 public:
  // Greets the server on the UCX stream of the context.
  static absl::StatusOr<std::unique_ptr<ClientChannel>> Create(ClientChannelContext context);
  // Not from a stream's callback.
  ~UcxClientChannel() override;

  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) override;
  Release Withdraw(uint64_t request, std::function<void()> released) override;
  // Where the node moves items by RMA.
  absl::Status RegisterMemory(MemoryRange range) override;
  void UnregisterMemory(MemoryRange range) override;
  const char* transport_name() const override { return "ucx"; }

 private:
  UcxClientChannel(std::shared_ptr<ExposedTable> table, std::shared_ptr<Worker> worker,
                   std::shared_ptr<ClientStream> stream);

  const std::shared_ptr<ExposedTable> table_;
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<ClientStream> stream_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_CLIENT_CHANNEL_H_
