// Records that are read whole, header and payload, outside of the arena: to be moved, or checked.
#ifndef QUARRY_SERVER_SSD_WHOLE_RECORDS_H_
#define QUARRY_SERVER_SSD_WHOLE_RECORDS_H_

#include <vector>

#include "server/ssd/catalog.h"
#include "server/ssd/extent_set.h"
#include "server/ssd/io/io_queue.h"
#include "server/ssd/record_log.h"

namespace quarry::server {

// The record as the log takes it, to be moved from where it lies.
LogEntry EntryOf(uint32_t disk, const CatalogRecord& record, const RecordLog::Contents& contents);

// Reads them into memory of their own, LogEntry::bytes; all are of that extent. For each, whether
// it could be read and is what it should be. Waits for the disk.
std::vector<bool> ReadWhole(const Extent& extent, const Catalog& catalog, IoQueue* io, std::vector<LogEntry>* entries);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_WHOLE_RECORDS_H_
