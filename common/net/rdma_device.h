#ifndef QUARRY_COMMON_NET_RDMA_DEVICE_H_
#define QUARRY_COMMON_NET_RDMA_DEVICE_H_

namespace quarry {

// Whether this host has an RDMA adapter, whoever may use it.
bool HasRdmaDevice();

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_RDMA_DEVICE_H_
