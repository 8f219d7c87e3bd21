// What `auto` picks, and that every byte is right with it: whatever the node offers, whatever the
// client allows, wherever the items lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/temporary_dir.h"

namespace quarry::testing {
namespace {

using ::testing::Bool;
using ::testing::Combine;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Values;

enum class Fabric { kNone, kWithinHost, kTrusted };

// Of the node: whether it has a Unix socket, and to whom it offers UCX. Of the client: whether it
// trusts the fabric, and whether it comes by the Unix socket.
class ClientAutoTest : public ::testing::TestWithParam<std::tuple<bool, Fabric, bool, bool>> {
 protected:
  static constexpr size_t kShard = 300'000;  // not a multiple of a chunk
  static constexpr size_t kBlocks = 8;
  static constexpr uint64_t kBytes = kBlocks * kShard;

  PrivateServer::Flags ServerFlags() const {
    PrivateServer::Flags flags;
    if (has_socket_) flags.socket = socket_;
    if (fabric_ != Fabric::kNone) flags.more.emplace_back("--ucx");
    if (fabric_ == Fabric::kTrusted) flags.more.emplace_back("--ucx-trusted-fabric");
    return flags;
  }
  ClientOptions Options() {
    ClientOptions options;
    options.transport = "auto";
    options.ucx_trusted_fabric = trusts_fabric_;
    options.log = [this](absl::string_view line) { log_.emplace_back(line); };
    return options;
  }
  double Moved(const std::string& op, const std::string& transport) {
    return server_->Metric("quarry_transfer_bytes_total{op=\"" + op + "\",tier=\"dram\",transport=\"" + transport +
                           "\"}");
  }
  // Blocks in memory that the library has allocated, as one piece each.
  void ExpectSharedMemoryComesBack(const Peer& peer, uint64_t first) {
    auto memory = peer->AllocateShared(kBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    std::vector<std::string> hashes;
    for (size_t i = 0; i < kBlocks; ++i) hashes.push_back(HashOf(first + i));
    std::vector<Item> items;
    for (size_t i = 0; i < kBlocks; ++i) {
      Item item;
      item.hash = hashes[i];
      item.depth = i;
      item.segments = {{memory->base() + i * kShard, kShard, 0, 1}};
      items.push_back(item);
    }
    Bytes content(kBytes);
    for (size_t i = 0; i < kBytes; ++i) content[i] = static_cast<std::byte>(i * 7 + i / 255);
    std::memcpy(memory->base(), content.data(), kBytes);
    const auto put = peer->Put(peer.ns(), items);
    ASSERT_TRUE(put.ok()) << put.status();
    std::memset(memory->base(), 0, kBytes);
    const auto got = peer->Get(peer.ns(), items);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(std::memcmp(memory->base(), content.data(), kBytes), 0);
  }

  const bool has_socket_ = std::get<0>(GetParam());
  const Fabric fabric_ = std::get<1>(GetParam());
  const bool trusts_fabric_ = std::get<2>(GetParam());
  const bool by_socket_ = std::get<3>(GetParam());
  const TemporaryDir dir_;
  const std::string socket_ = dir_.path() + "/quarryd.sock";
  std::vector<std::string> log_;
  const std::unique_ptr<PrivateServer> server_ = std::make_unique<PrivateServer>("256MiB", ServerFlags());
};

// There is no RDMA device, without which UCX is not picked.
TEST_P(ClientAutoTest, PicksSharedMemoryWhereThereIsASocketAndElseTcp) {
  const std::string address = by_socket_ ? "unix:" + socket_ : server_->address();
  const std::string expected = has_socket_ ? "shm" : "tcp";
  const std::string other = has_socket_ ? "tcp" : "shm";
  {
    Peer peer(address, PlainSpec(kShard), Options());
    EXPECT_THAT(log_, Contains(HasSubstr("transport " + expected + " to " + address)));
    Batch registered(peer, 1, kBlocks);
    ASSERT_TRUE(registered.Put().ok());
    EXPECT_TRUE(registered.ComesBack());
    ExpectSharedMemoryComesBack(peer, 100);
  }
  for (const char* op : {"get", "put"}) {
    EXPECT_EQ(Moved(op, expected), 2 * kBytes) << op;
    EXPECT_EQ(Moved(op, other), 0) << op;
  }
  EXPECT_TRUE(server_->BecomesIdle(0));
}

std::string NameOf(const ::testing::TestParamInfo<ClientAutoTest::ParamType>& info) {
  const auto [has_socket, fabric, trusts_fabric, by_socket] = info.param;
  std::string name = has_socket ? "Socket" : "NoSocket";
  name += fabric == Fabric::kNone ? "NoUcx" : fabric == Fabric::kWithinHost ? "UcxWithinHost" : "UcxFabric";
  name += trusts_fabric ? "Trusting" : "NotTrusting";
  return name + (by_socket ? "BySocket" : "ByTcp");
}

INSTANTIATE_TEST_SUITE_P(Offers, ClientAutoTest,
                         Combine(Values(true), Values(Fabric::kNone, Fabric::kWithinHost, Fabric::kTrusted), Bool(),
                                 Bool()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(OffersWithoutSocket, ClientAutoTest,
                         Combine(Values(false), Values(Fabric::kNone, Fabric::kWithinHost, Fabric::kTrusted), Bool(),
                                 Values(false)),
                         NameOf);

}  // namespace
}  // namespace quarry::testing
