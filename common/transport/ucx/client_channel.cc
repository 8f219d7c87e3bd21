#include "common/transport/ucx/client_channel.h"

#include <cstring>
#include <utility>

#include "common/random.h"

namespace quarry::transport::ucx {

absl::StatusOr<std::unique_ptr<ClientChannel>> UcxClientChannel::Create(ClientChannelContext context) {
  UniqueFd fd(context.ucx_stream.fd);
  EventLoop* const loop = context.ucx_stream.loop;
  auto ucx = Context::Create(context.ucx);
  if (!ucx.ok()) return ucx.status();
  const Version version = (*ucx)->api().version;
  const bool can_rma = (*ucx)->can_rma();
  auto worker = Worker::Create(*std::move(ucx), loop);
  if (!worker.ok()) return worker.status();

  Greeting mine{.major = version.major, .minor = version.minor, .rma = can_rma, .text = (*worker)->address()};
  std::memcpy(&mine.token, SecureRandomBytes(sizeof mine.token).data(), sizeof mine.token);
  const auto server = Greet(fd.get(), mine, context.deadline_ns);
  if (!server.ok()) return server.status();

  auto table = std::make_shared<ExposedTable>();
  auto stream = std::make_shared<ClientStream>(std::move(fd), *worker, mine.token, table, std::move(context.on_closed));
  absl::Status status;
  loop->Run([&] { status = stream->Open(*server); });
  if (!status.ok()) return status;
  return std::unique_ptr<ClientChannel>(new UcxClientChannel(std::move(table), *std::move(worker), std::move(stream)));
}

UcxClientChannel::UcxClientChannel(std::shared_ptr<ExposedTable> table, std::shared_ptr<Worker> worker,
                                   std::shared_ptr<ClientStream> stream)
    : table_(std::move(table)), worker_(std::move(worker)), stream_(std::move(stream)) {}

UcxClientChannel::~UcxClientChannel() {
  EventLoop* const loop = stream_->loop();
  // Afterwards UCX touches nothing any more.
  loop->Run([this] {
    stream_->Close();
    worker_->Shutdown();
  });
}

absl::Status UcxClientChannel::RegisterMemory(MemoryRange range) {
  RegisteredMemory* const memory = stream_->memory();
  return memory == nullptr ? absl::OkStatus() : memory->Add(range);
}

void UcxClientChannel::UnregisterMemory(MemoryRange range) {
  if (RegisteredMemory* const memory = stream_->memory(); memory != nullptr) memory->Remove(range);
}

void UcxClientChannel::Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) {
  table_->Expose(request, std::move(exposed));
}

Release UcxClientChannel::Withdraw(uint64_t request, std::function<void()> released) {
  table_->Withdraw(request);
  EventLoop* const loop = stream_->loop();
  if (loop->InLoop()) stream_->Abandon(request);
  const Release result = table_->ReleaseWhenUnused(request, std::move(released));
  if (result == Release::kHeld && !loop->InLoop()) {
    loop->Post([stream = stream_, request] { stream->Abandon(request); });
  }
  return result;
}

}  // namespace quarry::transport::ucx
