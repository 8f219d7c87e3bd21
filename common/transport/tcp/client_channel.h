// The client's end of the TCP transport: its data streams to one node, and the requests
// whose items the node may send or pull.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_CLIENT_CHANNEL_H_
#define QUARRY_COMMON_TRANSPORT_TCP_CLIENT_CHANNEL_H_

#include <memory>
#include <vector>

#include "common/transport/exposed_table.h"
#include "common/transport/registry.h"

namespace quarry::transport::tcp {

class ClientStream;

class TcpClientChannel : public ClientChannel {
 public:
  explicit TcpClientChannel(const ClientChannelContext& context);
  // Not from a stream's callback.
  ~TcpClientChannel() override;

  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) override;
  Release Withdraw(uint64_t request, std::function<void()> released) override;
  const char* transport_name() const override { return "tcp"; }

 private:
  const std::shared_ptr<ExposedTable> table_;
  std::vector<std::shared_ptr<ClientStream>> streams_;  // constant
};

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_CLIENT_CHANNEL_H_
