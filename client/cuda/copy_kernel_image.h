// copy_kernel.cu as nvcc made it, for every architecture that the build names: what
// cuModuleLoadData takes.
#ifndef QUARRY_CLIENT_CUDA_COPY_KERNEL_IMAGE_H_
#define QUARRY_CLIENT_CUDA_COPY_KERNEL_IMAGE_H_

namespace quarry::cuda {

extern "C" __attribute__((visibility("hidden"))) const unsigned char quarry_copy_kernel_image[];
inline constexpr const unsigned char* kCopyKernelImage = quarry_copy_kernel_image;

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_COPY_KERNEL_IMAGE_H_
