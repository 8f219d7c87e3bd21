// FAKE. A libcuda.so.1 without a GPU, for tests only: device memory that the host cannot touch
// except through the API, streams that run on threads of their own and can be held up, captures,
// errors on demand. It knows one kernel, by its name, and runs its source on the host. Whatever a
// real driver would answer by corrupting memory or by a sticky error is counted as a fault here.
//
// Programs link it and call cuda.h as with the real one; this header is what a test can do besides.
#ifndef QUARRY_TESTS_FAKES_FAKE_CUDA_FAKE_CUDA_H_
#define QUARRY_TESTS_FAKES_FAKE_CUDA_FAKE_CUDA_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

#define QUARRY_FAKE_CUDA_EXPORT __attribute__((visibility("default")))

namespace quarry::fakes::cuda {

inline constexpr int kDevices = 2;
inline constexpr size_t kPartBytes = 2 << 20;  // of memory that is mapped in parts

// Forgets errors to come, counts, faults and sticky errors, and lets every stream go. Memory,
// streams and contexts stay.
QUARRY_FAKE_CUDA_EXPORT void Reset();

// From now on, `after` calls of the function go well and the next one fails, once. `sticky`: so do all calls in
// its device's context from then on, and nothing that was queued there runs.
QUARRY_FAKE_CUDA_EXPORT void FailCall(const std::string& function, int after, CUresult result, bool sticky = false);
// How often the function was called.
QUARRY_FAKE_CUDA_EXPORT int Calls(const std::string& function);
// Accesses that no GPU would have survived: memory that is not there, of another device, or of a host that
// has not page-locked it; a use of a stream while it is captured. What they were: one line each.
QUARRY_FAKE_CUDA_EXPORT std::string Faults();

// All streams of all devices: what is queued waits, until let go.
QUARRY_FAKE_CUDA_EXPORT void HoldStreams();
QUARRY_FAKE_CUDA_EXPORT void LetStreamsGo();
// Lets so many tasks (copies, launches, events) of the stream run while streams are held up.
QUARRY_FAKE_CUDA_EXPORT void LetRun(CUstream stream, int tasks);

// Device memory in parts of kPartBytes that were mapped one behind the other, as frameworks with growing
// segments have it. Freed by cuMemFree.
QUARRY_FAKE_CUDA_EXPORT CUdeviceptr AllocateInParts(int device, size_t bytes);
// A stream of a context that is not the device's primary one.
QUARRY_FAKE_CUDA_EXPORT CUstream MakeForeignStream(int device);
// How often the primary context is retained.
QUARRY_FAKE_CUDA_EXPORT int Retained(int device);
// Bytes of host memory that are page-locked now.
QUARRY_FAKE_CUDA_EXPORT size_t LockedBytes();

}  // namespace quarry::fakes::cuda

#endif  // QUARRY_TESTS_FAKES_FAKE_CUDA_FAKE_CUDA_H_
