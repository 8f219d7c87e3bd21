// Which transports a client tries, by what it knows of the node and of its own host.
#include "client/open_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quarry {
namespace {

using ::testing::ElementsAre;

TEST(AutoOrderTest, WithinAHostSharedMemoryComesFirst) {
  EXPECT_THAT(AutoOrder({.node_on_host = true}), ElementsAre("shm", "tcp"));
  EXPECT_THAT(
      AutoOrder({.node_on_host = true, .node_offers_ucx = true, .ucx_over_network = true, .has_rdma_device = true}),
      ElementsAre("shm", "ucx", "tcp"));
}

TEST(AutoOrderTest, UcxIsTriedOnlyWhereBothEndsMayAndRdmaIsThere) {
  for (const bool offers : {false, true}) {
    for (const bool may : {false, true}) {
      for (const bool rdma : {false, true}) {
        const auto order = AutoOrder({.node_offers_ucx = offers, .ucx_over_network = may, .has_rdma_device = rdma});
        if (offers && may && rdma) {
          EXPECT_THAT(order, ElementsAre("ucx", "tcp"));
        } else {
          EXPECT_THAT(order, ElementsAre("tcp"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quarry
