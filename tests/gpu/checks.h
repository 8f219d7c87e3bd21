// What must hold on every GPU.
#ifndef QUARRY_TESTS_GPU_CHECKS_H_
#define QUARRY_TESTS_GPU_CHECKS_H_

#include "tests/gpu/machine.h"

namespace quarry::gpu_check {

// Prints a line a check; how many failed.
int RunChecks(const Machine& machine, int device);

}  // namespace quarry::gpu_check

#endif  // QUARRY_TESTS_GPU_CHECKS_H_
