#include "client/open_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/rdma_device.h"
#include "common/transport/registry.h"

namespace quarry {
namespace {

class Opener {
 public:
  Opener(const ClientOptions& options, const Greeting& greeting, const std::vector<EventLoop*>& loops,
         const std::function<void(absl::Status)>& on_closed, int64_t deadline_ns, DialInterrupt* interrupt)
      : options_(options), greeting_(greeting), loops_(loops), interrupt_(interrupt) {
    context_.deadline_ns = deadline_ns;
    context_.on_closed = on_closed;
    context_.ucx = {.libucp = options.ucx_library,
                    .trusted_fabric = options.ucx_trusted_fabric,
                    .rma = transport::RmaNamed(options.ucx_rma)};
  }

  absl::StatusOr<std::unique_ptr<transport::ClientChannel>> Open(const std::string& name) {
    if (name == "shm") return OpenShm();
    if (name == "ucx") return OpenUcx();
    return OpenTcp();
  }

 private:
  using Channel = absl::StatusOr<std::unique_ptr<transport::ClientChannel>>;

  Channel OpenTcp() {
    if (absl::Status status = OpenDataStreams(); !status.ok()) return status;
    transport::ClientChannelContext context = context_;
    context.streams = Joined(std::move(data_));
    return transport::MakeClientChannel("tcp", std::move(context));
  }

  // What the server cannot reach moves over data streams.
  Channel OpenShm() {
    if (greeting_.socket.empty()) {
      return absl::FailedPreconditionError("the node is on another host, or has no Unix socket");
    }
    std::vector<UniqueFd> shared;
    const uint32_t count = std::min(options_.data_streams, std::max(most_streams() / 2, 1u));
    for (uint32_t i = 0; i < count; ++i) {
      auto stream = OpenDataStream(LocalAddress(), greeting_.session, {.shared_memory = i == 0 ? 1u : 2u},
                                   context_.deadline_ns, interrupt_);
      if (!stream.ok()) return stream.status();
      shared.push_back(*std::move(stream));
    }
    joined_ += count;
    if (absl::Status status = OpenDataStreams(); !status.ok()) return status;
    transport::ClientChannelContext context = context_;
    context.shared_streams = Joined(std::move(shared));
    // Kept: where shared memory does not work after all, they carry everything.
    std::vector<UniqueFd> data = std::move(data_);
    for (const UniqueFd& stream : data) context.streams.push_back({stream.get(), nullptr});
    AssignLoops(&context.streams);
    Channel made = transport::MakeClientChannel("shm", std::move(context));
    if (made.ok()) {
      for (UniqueFd& stream : data) stream.release();
    } else {
      data_ = std::move(data);
    }
    return made;
  }

  Channel OpenUcx() {
    if (greeting_.ucx == wire::UcxOffer::kNone) {
      return absl::FailedPreconditionError("the node does not offer UCX to clients here");
    }
    auto stream = OpenDataStream(options_.server, greeting_.session, {.ucx = true}, context_.deadline_ns, interrupt_);
    if (!stream.ok()) return stream.status();
    ++joined_;
    transport::ClientChannelContext context = context_;
    std::vector<UniqueFd> one;
    one.push_back(*std::move(stream));
    context.ucx_stream = Joined(std::move(one))[0];
    return transport::MakeClientChannel("ucx", std::move(context));
  }

  absl::Status OpenDataStreams() {
    const uint32_t left = most_streams() - std::min(most_streams() - 1, joined_);
    while (data_.size() < std::min(options_.data_streams, left)) {
      auto stream = OpenDataStream(options_.server, greeting_.session, {}, context_.deadline_ns, interrupt_);
      if (!stream.ok()) return stream.status();
      data_.push_back(*std::move(stream));
    }
    return absl::OkStatus();
  }

  // Beginning after the control stream's loop, which they leave alone where they can.
  void AssignLoops(std::vector<transport::JoinedStream>* streams) const {
    for (size_t i = 0; i < streams->size(); ++i) (*streams)[i].loop = loops_[(i + 1) % loops_.size()];
  }
  std::vector<transport::JoinedStream> Joined(std::vector<UniqueFd> streams) const {
    std::vector<transport::JoinedStream> joined;
    for (UniqueFd& stream : streams) joined.push_back({stream.release(), nullptr});
    AssignLoops(&joined);
    return joined;
  }

  uint32_t most_streams() const { return std::max(greeting_.limits.max_data_streams, 1u); }
  // The session's secret makes sure that whoever listens there is the node that greeted.
  std::string LocalAddress() const {
    return absl::StartsWith(options_.server, "unix:") ? options_.server : absl::StrCat("unix:", greeting_.socket);
  }

  const ClientOptions& options_;
  const Greeting& greeting_;
  const std::vector<EventLoop*>& loops_;
  DialInterrupt* const interrupt_;
  transport::ClientChannelContext context_;  // without streams
  std::vector<UniqueFd> data_;               // opened, and not taken by a channel
  uint32_t joined_ = 0;                      // other streams of the session
};

std::string WhyPicked(const std::string& name, const std::vector<std::string>& failures) {
  if (name == "shm") return "the node is on this host";
  if (name == "ucx") return "both ends have RDMA";
  return absl::StrJoin(failures, "; ");
}

}  // namespace

std::vector<std::string> AutoOrder(const TransportFacts& facts) {
  std::vector<std::string> order;
  if (facts.node_on_host) order.emplace_back("shm");
  if (facts.node_offers_ucx && facts.ucx_over_network && facts.has_rdma_device) order.emplace_back("ucx");
  order.emplace_back("tcp");
  return order;
}

absl::StatusOr<OpenedChannel> OpenChannel(const ClientOptions& options, const Greeting& greeting,
                                          const std::vector<EventLoop*>& loops,
                                          const std::function<void(absl::Status)>& on_closed, int64_t deadline_ns,
                                          DialInterrupt* interrupt) {
  Opener opener(options, greeting, loops, on_closed, deadline_ns, interrupt);
  if (options.transport != "auto") {
    auto channel = opener.Open(options.transport);
    if (channel.ok()) return OpenedChannel{*std::move(channel), {options.transport, "it was asked for"}};
    if (options.transport == "tcp") return channel.status();
    return absl::FailedPreconditionError(
        absl::StrCat("transport ", options.transport, ": ", absl::string_view(channel.status().message())));
  }
  const TransportFacts facts = {.node_on_host = !greeting.socket.empty(),
                                .node_offers_ucx = greeting.ucx == wire::UcxOffer::kFabric,
                                .ucx_over_network = options.ucx_trusted_fabric,
                                .has_rdma_device = HasRdmaDevice()};
  std::vector<std::string> failures;
  if (!facts.node_on_host) failures.emplace_back("the node is on another host, or has no Unix socket");
  for (const std::string& name : AutoOrder(facts)) {
    auto channel = opener.Open(name);
    if (channel.ok()) return OpenedChannel{*std::move(channel), {name, WhyPicked(name, failures)}};
    if (name == "tcp") return channel.status();
    failures.emplace_back(channel.status().message());
  }
  return absl::InternalError("tcp is always tried");
}

}  // namespace quarry
