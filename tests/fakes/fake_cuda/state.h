// FAKE. What the fake driver keeps: one for the process, for ever.
#ifndef QUARRY_TESTS_FAKES_FAKE_CUDA_STATE_H_
#define QUARRY_TESTS_FAKES_FAKE_CUDA_STATE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_cuda/fake_cuda.h"

// What cuda.h's handles point to.
struct CUctx_st {
  int device = 0;
  bool primary = true;
  int retained = 0;
};

struct CUevent_st {
  uint64_t recorded = 0;  // how often
  uint64_t reached = 0;   // which of these has run
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  std::deque<std::function<void()>> tasks;  // run without the state's mutex
  bool running = false;
  bool closing = false;
  int may_run = 0;  // tasks that run although streams are held up
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread worker;
};

struct CUmod_st {
  CUctx_st* context = nullptr;
};

struct CUfunc_st {
  CUctx_st* context = nullptr;
};

namespace quarry::fakes::cuda {

struct Allocation {
  size_t bytes = 0;
  size_t part_bytes = 0;
  int device = 0;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  bool managed = false;
  std::byte* hidden = nullptr;  // the same bytes where the fake reaches them
  int file = -1;
};

struct Failure {
  int after = 0;
  CUresult result = CUDA_SUCCESS;
  bool sticky = false;
};

struct State {
  static State& Get();

  std::mutex mutex;
  std::condition_variable changed;
  // The rest is guarded by mutex.
  bool initialised = false;
  CUctx_st primary[kDevices];
  CUctx_st foreign[kDevices];
  CUstream legacy[kDevices] = {nullptr, nullptr};
  CUresult sticky[kDevices] = {CUDA_SUCCESS, CUDA_SUCCESS};
  int failures_of_device[kDevices] = {0, 0};  // what was queued before the last one never runs
  std::map<uintptr_t, Allocation> allocations;
  std::map<uintptr_t, size_t> locked;  // host memory
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::map<std::string, Failure> failures;
  std::map<std::string, int> calls;
  std::string faults;
  bool held = false;
};

// Of the calling thread.
std::vector<CUctx_st*>& ContextStack();
CUstreamCaptureMode& CaptureMode();

// With the mutex held. Counts the call; not CUDA_SUCCESS: how it was told to fail. `context`: it
// needs a current one, and fails as that does.
CUresult Enter(State* state, const char* function, bool context = true);
CUctx_st* Current();
void AddFault(State* state, const std::string& what);
// Whether calls that could disturb a capture are forbidden to this thread; the capture is then spoilt.
CUresult CheckCapture(State* state);

// With the mutex held. nullptr for a handle that is none.
CUstream FindStream(State* state, CUstream handle);
CUstream NewStream(State* state, CUctx_st* context);
void AddTask(State* state, CUstream stream, std::function<void()> task);
// Waits until all that is queued there has run.
void Drain(State* state, std::unique_lock<std::mutex>* lock, CUstream stream);

// Takes the mutex. Where the fake reaches [address, address + bytes) for an access by `device`; a
// fault, a sticky error and nullptr when a GPU could not.
std::byte* Reach(uint64_t address, size_t bytes, int device, bool host_must_be_locked = true);
// A copy as a GPU does it.
void CopyBytes(uint64_t to, uint64_t from, size_t bytes, int device, bool host_must_be_locked = true);
void FailDevice(State* state, int device, CUresult result);
// Takes the mutex. Whether the device has not failed since there were so many failures.
bool IsAlive(int device, int failures);
CUdeviceptr Allocate(State* state, int device, size_t bytes, size_t part_bytes, bool managed);

}  // namespace quarry::fakes::cuda

#endif  // QUARRY_TESTS_FAKES_FAKE_CUDA_STATE_H_
