#include "tests/fakes/fake_power.h"

namespace quarry::fakes {

void FakePower::CutAfter(uint64_t syncs) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_sync_ = syncs_ + syncs;
}

void FakePower::Cut() {
  std::lock_guard<std::mutex> lock(mutex_);
  on_ = false;
}

void FakePower::Restore() {
  std::lock_guard<std::mutex> lock(mutex_);
  on_ = true;
  last_sync_ = UINT64_MAX;
}

bool FakePower::BeforeSync() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (syncs_ >= last_sync_) on_ = false;
  if (on_) ++syncs_;
  return on_;
}

bool FakePower::on() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return on_;
}

uint64_t FakePower::syncs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return syncs_;
}

}  // namespace quarry::fakes
