// Records that are written together. Private to server/ssd/record_log*.cc.
#ifndef QUARRY_SERVER_SSD_RECORD_GROUP_H_
#define QUARRY_SERVER_SSD_RECORD_GROUP_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "server/ssd/record_log.h"

namespace quarry::server {

struct RecordLog::Group {
  std::deque<LogEntry> entries;
  std::vector<AlignedBuffer> headers;  // of entries that are not moved; until the writes have ended
  uint64_t bytes = 0;
  int64_t opened_ns = 0;
  size_t run_first = 0;  // entries from here on are placed, but not yet submitted
  uint64_t run_bytes = 0;
  IoRequest run;
  uint32_t open_writes = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_RECORD_GROUP_H_
