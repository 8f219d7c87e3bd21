#include <grpcpp/impl/client_unary_call.h>

#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "quarry/v1/cache.grpc.pb.h"
#include "tools/bench/block_content.h"
#include "tools/bench/grpc_call.h"
#include "tools/bench/grpc_workload.h"

namespace quarry::bench {
namespace {

constexpr uint32_t kGrpcLeaseMs = 10'000;
// The empty call: what gRPC's own health service answers, with a message of two bytes.
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr size_t kRequests = 64;  // chosen before the clock runs

}  // namespace

struct GrpcMatch::State {
  void Choose(v1::MatchRequest* request) {
    request->set_namespace_(ns);
    request->set_touch(true);
    request->set_lease_ms(options->lease ? kGrpcLeaseMs : 0);
    v1::MatchChain* chain = request->add_chains();
    std::unordered_set<uint64_t> chosen;
    while (chosen.size() < options->hashes) {
      random = Mix(random);
      const uint64_t id = random % options->blocks;
      if (chosen.insert(id).second) chain->add_hashes(HashOf(id));
    }
  }

  void Match(const v1::MatchRequest& request, Slice* slice) {
    v1::MatchResponse response;
    grpc::ClientContext context;
    const int64_t begin = Clock::Real()->NowNs();
    const grpc::Status status = stub->Match(&context, request, &response);
    const int64_t elapsed = Clock::Real()->NowNs() - begin;
    if (!status.ok()) return slice->AddError(status.error_message());
    if (response.chains(0).end_usable() != options->hashes || response.lease().empty() == options->lease) {
      return slice->AddError(absl::StrCat("only ", response.usable_tokens(), " tokens usable, or no lease"));
    }
    ++slice->ops;
    slice->latencies.Add(elapsed);
  }

  void Empty(Slice* slice) {
    grpc::ClientContext context;
    // Any message without fields: the answer's one is not looked at.
    const v1::StatsRequest request;
    v1::StatsRequest response;
    const int64_t begin = Clock::Real()->NowNs();
    const grpc::Status status = grpc::internal::BlockingUnaryCall(channel.get(), health, &context, request, &response);
    const int64_t elapsed = Clock::Real()->NowNs() - begin;
    if (!status.ok()) return slice->AddError(status.error_message());
    ++slice->ops;
    slice->latencies.Add(elapsed);
  }

  const GrpcOptions* options;
  std::string ns;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Cache::Stub> stub;
  grpc::internal::RpcMethod health{kHealthCheck, grpc::internal::RpcMethod::NORMAL_RPC};
  uint64_t random = 1;
};

GrpcMatch::GrpcMatch(const GrpcOptions& options, const std::string& server, std::string ns)
    : state_(std::make_unique<State>()) {
  state_->options = &options;
  state_->ns = std::move(ns);
  state_->channel = OpenChannel(server);
  state_->stub = v1::Cache::NewStub(state_->channel);
}

GrpcMatch::~GrpcMatch() = default;

MatchSlices GrpcMatch::Run(int64_t duration_ns) {
  MatchSlices slices;
  const int64_t end = Clock::Real()->NowNs() + duration_ns;
  while (Clock::Real()->NowNs() < end && slices.match.errors + slices.empty.errors == 0) {
    std::vector<v1::MatchRequest> requests(kRequests);
    for (v1::MatchRequest& request : requests) state_->Choose(&request);
    for (const v1::MatchRequest& request : requests) {
      state_->Match(request, &slices.match);
      state_->Empty(&slices.empty);
    }
  }
  return slices;
}

}  // namespace quarry::bench
