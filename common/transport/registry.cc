#include "common/transport/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/transport/shm/client_channel.h"
#include "common/transport/shm/server_channel.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/server_channel.h"

namespace quarry::transport {
namespace {

struct Entry {
  const char* name;
  absl::StatusOr<std::unique_ptr<ClientChannel>> (*client)(ClientChannelContext);
  std::unique_ptr<ServerChannel> (*server)(ServerChannelContext);
};

template <typename Channel>
absl::StatusOr<std::unique_ptr<ClientChannel>> MakeClient(ClientChannelContext context) {
  return std::unique_ptr<ClientChannel>(std::make_unique<Channel>(std::move(context)));
}

template <typename Channel>
std::unique_ptr<ServerChannel> MakeServer(ServerChannelContext context) {
  return std::make_unique<Channel>(std::move(context));
}

constexpr Entry kTransports[] = {
    {"tcp", MakeClient<tcp::TcpClientChannel>, MakeServer<tcp::TcpServerChannel>},
    {"shm", shm::ShmClientChannel::Create, MakeServer<shm::ShmServerChannel>},
};

absl::StatusOr<const Entry*> Find(const std::string& name) {
  for (const Entry& entry : kTransports) {
    if (name == entry.name) return &entry;
  }
  return absl::InvalidArgumentError(absl::StrCat("transport '", name, "' is not one of: tcp, shm"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientChannel>> MakeClientChannel(const std::string& transport,
                                                                 ClientChannelContext context) {
  auto entry = Find(transport);
  if (!entry.ok()) return entry.status();
  return (*entry)->client(std::move(context));
}

absl::StatusOr<std::unique_ptr<ServerChannel>> MakeServerChannel(const std::string& transport,
                                                                 ServerChannelContext context) {
  auto entry = Find(transport);
  if (!entry.ok()) return entry.status();
  return (*entry)->server(std::move(context));
}

}  // namespace quarry::transport
