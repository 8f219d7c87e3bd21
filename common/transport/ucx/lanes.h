// What the lanes of an endpoint can do: no function of UCX 1.13 tells, but it prints it.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_LANES_H_
#define QUARRY_COMMON_TRANSPORT_UCX_LANES_H_

#include "absl/strings/string_view.h"
#include "common/transport/registry.h"

namespace quarry::transport::ucx {

// Whether what ucp_ep_print_info has printed names a lane by which an adapter reaches the memory at
// the other end by itself: rc_verbs, rc_mlx5, dc_mlx5 and their like.
bool NamesRdmaLane(absl::string_view info);

// How items move between two ends that can both do RMA, and have such a lane or none. Without
// adapters that do it, messages are twice as fast.
bool MovesByRma(UcxOptions::Rma wanted, bool rdma_lane);

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_LANES_H_
