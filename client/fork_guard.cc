#include "client/fork_guard.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace quarry {
namespace {

std::atomic<uint64_t> fork_generation{0};

uint64_t CurrentGeneration() {
  static std::once_flag registered;
  std::call_once(registered, [] {
    pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  });
  return fork_generation.load(std::memory_order_relaxed);
}

}  // namespace

ForkGuard::ForkGuard() : generation_(CurrentGeneration()) {}

bool ForkGuard::InOwner() const { return fork_generation.load(std::memory_order_relaxed) == generation_; }

}  // namespace quarry
