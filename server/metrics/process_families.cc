#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "server/metrics/sections.h"

namespace quarry::server {
namespace {

void AddMemory(Families& out) {
  std::ifstream statm("/proc/self/statm");
  uint64_t virtual_pages = 0;
  uint64_t resident_pages = 0;
  if (!(statm >> virtual_pages >> resident_pages)) return;
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  out.Gauge("process_virtual_memory_bytes", "Address space of the process.");
  out.Add(static_cast<double>(virtual_pages) * page_bytes);
  out.Gauge("process_resident_memory_bytes", "Memory that the process occupies, the arena included.");
  out.Add(static_cast<double>(resident_pages) * page_bytes);
}

void AddFileDescriptors(Families& out) {
  std::error_code error;
  uint64_t open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++open;
  }
  rlimit limit{};
  if (error || open == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  out.Gauge("process_open_fds", "Open file descriptors.");
  out.Add(static_cast<double>(open - 1));  // without the folder's own
  out.Gauge("process_max_fds", "File descriptors that the process may have open.");
  out.Add(static_cast<double>(limit.rlim_cur));
}

}  // namespace

void AddProcess(Families& out, double start_time_seconds) {
  out.Gauge("process_start_time_seconds", "When the process started, in seconds since the epoch.");
  out.Add(start_time_seconds);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    out.Counter("process_cpu_seconds_total", "User and system CPU time of the process.");
    constexpr int64_t kUsPerSecond = 1'000'000;
    const int64_t us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * kUsPerSecond + usage.ru_utime.tv_usec +
                       usage.ru_stime.tv_usec;
    out.Add(static_cast<double>(us) / kUsPerSecond);
  }
  AddMemory(out);
  AddFileDescriptors(out);
}

}  // namespace quarry::server
