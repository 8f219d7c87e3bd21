#include "common/transport/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/transport/shm/client_channel.h"
#include "common/transport/shm/server_channel.h"
#include "common/transport/tcp/client_channel.h"
#include "common/transport/tcp/server_channel.h"
#if QUARRY_WITH_UCX
#include "common/transport/ucx/client_channel.h"
#include "common/transport/ucx/server_channel.h"
#endif

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

#if QUARRY_WITH_UCX
// What a client that does not want UCX moves over is the others'.
std::unique_ptr<ServerChannel> MakeUcxServer(ServerChannelContext context) {
  return std::make_unique<ucx::UcxServerChannel>(std::move(context), MakeServer<shm::ShmServerChannel>);
}
#endif

constexpr Entry kTransports[] = {
    {"tcp", MakeClient<tcp::TcpClientChannel>, MakeServer<tcp::TcpServerChannel>},
    {"shm", shm::ShmClientChannel::Create, MakeServer<shm::ShmServerChannel>},
#if QUARRY_WITH_UCX
    {"ucx", ucx::UcxClientChannel::Create, MakeUcxServer},
#endif
};

absl::StatusOr<const Entry*> Find(const std::string& name) {
  for (const Entry& entry : kTransports) {
    if (name == entry.name) return &entry;
  }
  std::vector<absl::string_view> names;
  for (const Entry& entry : kTransports) names.push_back(entry.name);
  return absl::InvalidArgumentError(absl::StrCat("transport '", name, "' is not one of: ", absl::StrJoin(names, ", ")));
}

}  // namespace

UcxOptions::Rma RmaNamed(absl::string_view name) {
  if (name == "never") return UcxOptions::Rma::kNever;
  return name == "always" ? UcxOptions::Rma::kAlways : UcxOptions::Rma::kAuto;
}

absl::StatusOr<std::shared_ptr<UcxHost>> MakeUcxHost([[maybe_unused]] const UcxOptions& options) {
#if QUARRY_WITH_UCX
  return ucx::Host::Create(options);
#else
  return absl::FailedPreconditionError("this was built without UCX");
#endif
}

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
