// What tools/gpu-check builds and runs: the client's copies to and from GPU memory, on every GPU
// there is. Exit status: 0 when all bytes were right.
#include <cstdio>

#include "tests/gpu/checks.h"
#include "tests/gpu/machine.h"
#include "tests/gpu/rates.h"

int main() {
  using namespace quarry::gpu_check;
  const Machine machine = Machine::Open();
  int failed = 0;
  for (int device = 0; device < machine.devices; ++device) failed += RunChecks(machine, device);
  PrintRates(machine, 0);
  std::printf("\ngpu-check: %s%s\n", failed == 0 ? "all bytes right" : "FAILED",
              machine.fake ? " (on a FAKE driver, which says nothing about GPUs)" : "");
  return failed == 0 ? 0 : 1;
}
