#include "common/transport/tcp/client_channel.h"

#include <utility>

#include "common/transport/tcp/client_stream.h"

namespace quarry::transport::tcp {

TcpClientChannel::TcpClientChannel(const ClientChannelContext& context) : table_(std::make_shared<ExposedTable>()) {
  // Streams break one by one, on different threads; the first tells.
  auto once = std::make_shared<std::once_flag>();
  for (const JoinedStream& joined : context.streams) {
    streams_.push_back(std::make_shared<ClientStream>(
        UniqueFd(joined.fd), joined.loop, table_, [once, on_closed = context.on_closed](const absl::Status& status) {
          std::call_once(*once, [&] { on_closed(status); });
        }));
  }
  for (const auto& stream : streams_) stream->loop()->Post([stream] { stream->Open(); });
}

TcpClientChannel::~TcpClientChannel() {
  for (const auto& stream : streams_) stream->loop()->Run([&stream] { stream->Close(); });
}

void TcpClientChannel::Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) {
  table_->Expose(request, std::move(exposed));
}

Release TcpClientChannel::Withdraw(uint64_t request, std::function<void()> released) {
  table_->Withdraw(request);
  for (const auto& stream : streams_) {
    if (stream->loop()->InLoop()) stream->Abandon(request);
  }
  const Release result = table_->ReleaseWhenUnused(request, std::move(released));
  if (result == Release::kHeld) {
    for (const auto& stream : streams_) {
      if (!stream->loop()->InLoop()) stream->loop()->Post([stream, request] { stream->Abandon(request); });
    }
  }
  return result;
}

}  // namespace quarry::transport::tcp
