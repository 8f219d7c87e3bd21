#include "common/net/rdma_device.h"

#include <filesystem>
#include <system_error>

namespace quarry {

bool HasRdmaDevice() {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

}  // namespace quarry
