// How fast the staged copies are, beside one plain copy.
#ifndef QUARRY_TESTS_GPU_RATES_H_
#define QUARRY_TESTS_GPU_RATES_H_

#include "tests/gpu/machine.h"

namespace quarry::gpu_check {

// Prints a table.
void PrintRates(const Machine& machine, int device);

}  // namespace quarry::gpu_check

#endif  // QUARRY_TESTS_GPU_RATES_H_
