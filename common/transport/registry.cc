#include "common/transport/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/server_channel.h"

namespace quarry::transport {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<ClientChannel> (*client)(ClientChannelContext);
  std::unique_ptr<ServerChannel> (*server)(ServerChannelContext);
};

template <typename Base, typename Channel, typename Context>
std::unique_ptr<Base> Make(Context context) {
  return std::make_unique<Channel>(std::move(context));
}

constexpr Entry kTransports[] = {
    {"tcp", Make<ClientChannel, tcp::TcpClientChannel, ClientChannelContext>,
     Make<ServerChannel, tcp::TcpServerChannel, ServerChannelContext>},
};

absl::StatusOr<const Entry*> Find(const std::string& name) {
  for (const Entry& entry : kTransports) {
    if (name == entry.name) return &entry;
  }
  return absl::InvalidArgumentError(absl::StrCat("transport '", name, "' is not one of: tcp"));
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
