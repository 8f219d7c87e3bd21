// What the SSD tier says of itself, as messages.
#ifndef QUARRY_SERVER_GRPC_SSD_CONVERT_H_
#define QUARRY_SERVER_GRPC_SSD_CONVERT_H_

#include "quarry/v1/admin.pb.h"
#include "server/ssd/ssd_disk.h"

namespace quarry::server {

void ToProto(const SsdDiskStats& stats, v1::SsdDisk* out);
void ToProto(const SsdExtentInfo& extent, v1::SsdExtent* out);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_SSD_CONVERT_H_
