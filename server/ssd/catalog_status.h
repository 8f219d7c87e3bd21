// RocksDB's statuses as ours.
#ifndef QUARRY_SERVER_SSD_CATALOG_STATUS_H_
#define QUARRY_SERVER_SSD_CATALOG_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rocksdb/status.h"

namespace quarry::server {

// `where` begins the message. NotFound; DataLoss: a sum does not hold, or a file that belongs
// to others is missing; ResourceExhausted: no space; Unavailable: busy with just that; Internal:
// the disk, and all else.
absl::Status ToStatus(const rocksdb::Status& status, absl::string_view where);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_CATALOG_STATUS_H_
