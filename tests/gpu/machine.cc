#include "tests/gpu/machine.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quarry::gpu_check {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "gpu-check: %s\n", why.c_str());
  std::exit(2);
}

}  // namespace

Machine Machine::Open() {
  const char* path = std::getenv("QUARRY_GPU_CHECK_DRIVER");
  void* library = dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW);
  if (library == nullptr) Die(dlerror());
  Machine machine;
#define QUARRY_GPU_CHECK_RESOLVE(name, symbol, type)             \
  machine.name = reinterpret_cast<type>(dlsym(library, symbol)); \
  if (machine.name == nullptr) Die(std::string("the driver lacks ") + (symbol));
  QUARRY_GPU_CHECK_FUNCTIONS(QUARRY_GPU_CHECK_RESOLVE)
#undef QUARRY_GPU_CHECK_RESOLVE
  machine.fake = dlsym(library, "quarry_fake_cuda") != nullptr;
  machine.driver = cuda::Driver::Find();
  if (machine.driver == nullptr) Die("the driver's soname is not libcuda.so.1");
  if (!machine.driver->missing.empty()) Die("the driver lacks " + machine.driver->missing);
  Must(machine, machine.Init(0), "cuInit");
  Must(machine, machine.DeviceGetCount(&machine.devices), "cuDeviceGetCount");
  if (machine.devices == 0) Die("no GPU");
  return machine;
}

std::string Machine::Describe(int device) const {
  char name[256] = "";
  int version = 0;
  CUdevice handle = 0;
  Must(*this, driver->DeviceGet(&handle, device), "cuDeviceGet");
  Must(*this, DeviceGetName(name, sizeof name, handle), "cuDeviceGetName");
  Must(*this, DriverGetVersion(&version), "cuDriverGetVersion");
  std::string text = std::string(name) + ", driver for CUDA " + std::to_string(version / 1000) + "." +
                     std::to_string(version % 1000 / 10);
  if (fake) text += " (FAKE: no GPU; its rates mean nothing)";
  return text;
}

void Must(const Machine& machine, const cuda::Outcome& outcome) {
  if (!outcome.ok()) Die(outcome.Describe(*machine.driver));
}

void Must(const Machine& machine, CUresult result, const char* what) { Must(machine, cuda::Outcome(what, result)); }

DeviceMemory::DeviceMemory(const Machine& machine, size_t bytes) : machine_(machine), bytes_(bytes) {
  Must(machine_, machine_.MemAlloc(&address_, bytes_), "cuMemAlloc");
}

DeviceMemory::~DeviceMemory() { Must(machine_, machine_.MemFree(address_), "cuMemFree"); }

void DeviceMemory::Write(const std::vector<std::byte>& bytes) {
  Must(machine_, machine_.MemcpyHtoD(address_, bytes.data(), bytes_), "cuMemcpyHtoD");
}

std::vector<std::byte> DeviceMemory::Read() const {
  std::vector<std::byte> bytes(bytes_);
  Must(machine_, machine_.MemcpyDtoH(bytes.data(), address_, bytes_), "cuMemcpyDtoH");
  return bytes;
}

SharedBytes::SharedBytes(size_t bytes) : bytes_(bytes) {
  const int file = memfd_create("gpu-check", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) Die("cannot make a memfd");
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) Die("cannot map a memfd");
  close(file);
  data_ = static_cast<std::byte*>(mapped);
  madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}

SharedBytes::~SharedBytes() { munmap(data_, bytes_); }

}  // namespace quarry::gpu_check
