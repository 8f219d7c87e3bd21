// How the process' allocator treats what is freed.
#ifndef QUARRY_SERVER_ALLOCATOR_H_
#define QUARRY_SERVER_ALLOCATOR_H_

namespace quarry::server {

// gRPC takes and frees buffers of up to 4 MiB for all that it receives. By default each of
// them goes back to the kernel, which clears its pages before it gives them out again: half of
// the cost of a put over gRPC. From now on some tens of MiB stay with the process. Call it
// before other threads start.
void KeepFreedMemory();

}  // namespace quarry::server

#endif  // QUARRY_SERVER_ALLOCATOR_H_
