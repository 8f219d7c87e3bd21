// A node that moves items by RMA, and a client that says whatever it likes about where they lie.
// There is no adapter here that does RMA: UCX's software does it.
#include <cstring>
#include <deque>
#include <vector>

#include "common/transport/descriptor.h"
#include "common/transport/ucx/host.h"
#include "common/transport/ucx/lanes.h"
#include "tests/unit/transport/ucx_node_test.h"

namespace quarry::transport::ucx {
namespace {

using ::testing::HasSubstr;
using Rma = UcxOptions::Rma;

class UcxRmaNodeTest : public UcxNodeTest {
 protected:
  static constexpr size_t kRegionBytes = 1 << 20;
  static constexpr uint32_t kKey = 5;
  static constexpr std::byte kBefore{0x5A};

  UcxRmaNodeTest() : UcxNodeTest(TestUcx(Rma::kAlways)) {}
  explicit UcxRmaNodeTest(std::shared_ptr<UcxHost> host) : UcxNodeTest(TestUcx(Rma::kAlways), std::move(host)) {}
  ~UcxRmaNodeTest() override { End(); }  // before the memory that moves

  // And registers memory_ as kKey.
  void JoinByRma() {
    Greeting introduction = Introduction();
    introduction.rma = true;
    const auto server = Greet(side_.get(), introduction, SoonNs());
    ASSERT_TRUE(server.ok()) << server.status();
    ASSERT_TRUE(server->rma);
    server_token_ = server->token;
    raw_.Connect(server->text);
    std::fill_n(memory_.data(), kRegionBytes, kBefore);
    claim_ = raw_.Map(memory_.data(), kRegionBytes);
    ASSERT_EQ(Register(kKey, claim_), "");
  }
  // The node's answer.
  std::string Register(uint32_t key, const RegionClaim& claim) {
    SendAbout({0, key}, MessageType::kRegion, EncodeRegionClaim(claim));
    AwaitMessage(MessageType::kRegionReply, {0, key});
    return heard_->rest;
  }
  void SendAbout(ItemId id, MessageType type, const std::string& rest = "", std::vector<std::byte> data = {}) {
    std::string header;
    EncodeMessage({.token = server_token_, .id = id, .type = type}, &header);
    raw_.Send(header + rest, std::move(data));
  }
  void Place(const std::vector<Descriptor>& descriptors, const std::string& meta = Meta(kItemBytes, kItemBytes)) {
    std::vector<std::byte> data(descriptors.size() * sizeof(Descriptor));
    if (!data.empty()) std::memcpy(data.data(), descriptors.data(), data.size());
    SendAbout(kItem, MessageType::kPlace, meta, std::move(data));
  }
  static Descriptor All(uint64_t offset = 0) { return {kKey, 1, offset, kItemBytes, 0}; }
  bool Untouched() const {
    return std::all_of(memory_.bytes().begin(), memory_.bytes().end(), [](std::byte b) { return b == kBefore; });
  }

  GuardedMemory memory_{kRegionBytes};
  RegionClaim claim_;
  const Bytes payload_ = Payload(1, kItemBytes);
  TestSlot full_{payload_, kIdentity};
};

TEST_F(UcxRmaNodeTest, AnItemIsInPlaceWhenTheNodeSaysSoAndNothingElseIsWritten) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  EXPECT_TRUE(Untouched());
  constexpr size_t kPiece = 10'000;  // 30 of them
  Place({{kKey, 20, 100, kPiece, kPiece + 1000}, {kKey, 10, 500'000, kPiece, kPiece}});
  AwaitMessage(MessageType::kWritten);
  Bytes expected(kRegionBytes, kBefore);
  for (size_t i = 0; i < 20; ++i) {
    std::copy_n(payload_.begin() + i * kPiece, kPiece, expected.begin() + 100 + i * (kPiece + 1000));
  }
  std::copy_n(payload_.begin() + 20 * kPiece, 10 * kPiece, expected.begin() + 500'000);
  EXPECT_EQ(expected, Bytes(memory_.bytes().begin(), memory_.bytes().end()));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kOk);
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxRmaNodeTest, APutIsReadFromWhereItLiesAndThenReleased) {
  JoinByRma();
  std::copy(payload_.begin(), payload_.end(), memory_.data() + 77);
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  Place({All(77)});
  AwaitMessage(MessageType::kReleased);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kOk);
  EXPECT_TRUE(slot_.Holds(payload_));
}

TEST_F(UcxRmaNodeTest, APutThatIsNotWhatWasSummedIsNotTaken) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  std::string meta;
  tcp::EncodeMeta({.root = full_.root, .range = {0, kItemBytes, kItemBytes}, .edge_sums = {0, 0}, .sums = full_.sums},
                  &meta);
  Place({All()}, meta);  // other bytes lie there
  AwaitMessage(MessageType::kReleased);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kChecksum);
}

TEST_F(UcxRmaNodeTest, WhatDoesNotLieInTheRegionsEndsTheSessionAndIsNotWritten) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const struct {
    const char* what;
    std::vector<Descriptor> place;
    const char* why;
  } kBad[] = {
      {"no descriptors", {}, "fewer bytes"},
      {"a region that is not there", {{kKey + 1, 1, 0, kItemBytes, 0}}, "there is no region 6"},
      {"beyond the end", {All(kRegionBytes - kItemBytes + 1)}, "of a region of 1048576 bytes"},
      {"an offset that wraps around", {All(UINT64_MAX - 10)}, "of a region of"},
      {"a stride that wraps around", {{kKey, 3, 0, kItemBytes / 3, kHuge}}, "of a region of"},
      {"a stride beyond the end", {{kKey, 2, 0, kItemBytes / 2, kRegionBytes}}, "of a region of"},
      {"fewer bytes", {{kKey, 1, 0, kItemBytes - 1, 0}}, "fewer bytes"},
      {"more bytes", {All(), {kKey, 1, 0, 1, 0}}, "more than the 300000 bytes"},
      {"no bytes", {{kKey, 1, 0, 0, 0}, All()}, "of a region of"},
      {"no pieces", {{kKey, 0, 0, kItemBytes, 0}, All()}, "of a region of"},
      {"too many pieces", {{kKey, 300'000, 0, 1, 1}}, "than 16384 pieces"},
      {"too many descriptors", std::vector<Descriptor>(kMaxPlaceDescriptors + 1, {kKey, 1, 0, 1, 1}), "at most 4096"},
  };
  for (const auto& bad : kBad) {
    SCOPED_TRACE(bad.what);
    if (server_token_ != 0) Again();
    JoinByRma();
    const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
    AwaitMessage(MessageType::kOffer);
    Place(bad.place);
    ASSERT_TRUE(Await([&] { return end->done(); }));
    EXPECT_EQ(end->status, TransferStatus::kClosed);
    ExpectClosed(bad.why);
    EXPECT_TRUE(Untouched());
  }
}

TEST_F(UcxRmaNodeTest, AListThatIsNotOfDescriptorsEndsTheSession) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  SendAbout(kItem, MessageType::kPlace, Meta(kItemBytes, kItemBytes), std::vector<std::byte>(33));
  ASSERT_TRUE(Await([&] { return end->done(); }));
  ExpectClosed("of 32 bytes, got 33 bytes");
}

TEST_F(UcxRmaNodeTest, AnItemOfAnotherSizeIsSentSoThatTheClientSeesIt) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  Place({All(), {kKey, 1, 0, 1, 0}}, Meta(kItemBytes + 1, kItemBytes + 1));
  AwaitMessage(MessageType::kReleased);
  AwaitMessage(MessageType::kData);
  EXPECT_TRUE(Untouched());
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxRmaNodeTest, WhatLiesElsewhereIsSent) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  SendAbout(kItem, MessageType::kElsewhere);
  AwaitMessage(MessageType::kData);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kOk);
}

TEST_F(UcxRmaNodeTest, WhatIsCancelledIsReleasedWhenItsPlaceComes) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  channel_->Cancel(kItem.request);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kCancelled);
  Place({All()});
  AwaitMessage(MessageType::kReleased);
  EXPECT_TRUE(Untouched());
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxRmaNodeTest, WhatAClientMayNotSayEndsTheSession) {
  const struct {
    const char* what;
    Transfer::Kind kind;
    MessageType says;
    const char* why;
  } kBad[] = {
      {"data for an offer", Transfer::Kind::kWrite, MessageType::kData, "sent an item that it was offered"},
      {"elsewhere for a pull", Transfer::Kind::kRead, MessageType::kElsewhere, "another place for an item"},
      {"an offer", Transfer::Kind::kRead, MessageType::kOffer, "type: a client sent 4"},
      {"written", Transfer::Kind::kRead, MessageType::kWritten, "type: a client sent 7"},
      {"released", Transfer::Kind::kRead, MessageType::kReleased, "type: a client sent 8"},
      {"a region without a key", Transfer::Kind::kRead, MessageType::kRegion, "region: 16 bytes and a key, got 0"},
      {"an answer about a region", Transfer::Kind::kRead, MessageType::kRegionReply, "type: a client sent 11"},
  };
  for (const auto& bad : kBad) {
    SCOPED_TRACE(bad.what);
    if (server_token_ != 0) Again();
    JoinByRma();
    Start(bad.kind, bad.kind == Transfer::Kind::kWrite ? &full_ : &slot_);
    AwaitMessage(bad.kind == Transfer::Kind::kWrite ? MessageType::kOffer : MessageType::kPull);
    SendAbout(kItem, bad.says);
    ExpectClosed(bad.why);
  }
}

TEST_F(UcxRmaNodeTest, RegionsThatCannotBeAreRefusedWithTheReasonAndCostNothing) {
  JoinByRma();
  RegionClaim claim = claim_;
  EXPECT_THAT(Register(kKey, claim_), HasSubstr("region 5: there is one"));
  claim.bytes = 0;
  EXPECT_THAT(Register(1, claim), HasSubstr("region: empty"));
  claim.bytes = UINT64_MAX - claim.base + 1;
  EXPECT_THAT(Register(1, claim), HasSubstr("beyond the address space"));
  const TransferEndPtr end = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  Place({All()});
  AwaitMessage(MessageType::kWritten);
  EXPECT_EQ(closed_, 0);
}

TEST_F(UcxRmaNodeTest, ASessionHasABoundedNumberOfRegions) {
  JoinByRma();
  for (uint32_t key = 100; key < 100 + kMaxRegions - 1; ++key) ASSERT_EQ(Register(key, claim_), "");
  EXPECT_THAT(Register(1, claim_), HasSubstr("regions: at most 4096"));
  SendAbout({0, 100}, MessageType::kUnregion);
  EXPECT_EQ(Register(1, claim_), "");
}

TEST_F(UcxRmaNodeTest, ARegionThatIsTakenBackUnderAMoveIsNoUseAfterFree) {
  JoinByRma();
  const TransferEndPtr end = Start(Transfer::Kind::kRead, &slot_);
  AwaitPull();
  Place({All()});
  SendAbout({0, kKey}, MessageType::kUnregion);
  AwaitMessage(MessageType::kReleased);
  ASSERT_TRUE(Await([&] { return end->done(); }));
  EXPECT_EQ(end->status, TransferStatus::kOk);
  const TransferEndPtr next = Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  Place({All()});
  ExpectClosed("there is no region 5");
}

TEST_F(UcxRmaNodeTest, AClientThatGoesAwayUnderAMoveGivesTheSlotBack) {
  for (const Transfer::Kind kind : {Transfer::Kind::kWrite, Transfer::Kind::kRead}) {
    if (server_token_ != 0) Again();
    JoinByRma();
    const TransferEndPtr end = Start(kind, kind == Transfer::Kind::kWrite ? &full_ : &slot_);
    AwaitMessage(kind == Transfer::Kind::kWrite ? MessageType::kOffer : MessageType::kPull);
    Place({All()});
    HoldUpClient();
    LetServerWork();
    side_ = UniqueFd();
    ExpectClosed("closed the connection");
    go_ = true;
    EXPECT_TRUE(Await([&] { return end->done(); }));
  }
}

// ---------------------------------------------------------------- whether, and when it has ended

class UcxNoRmaNodeTest : public UcxNodeTest {
 protected:
  UcxNoRmaNodeTest() : UcxNodeTest(TestUcx(Rma::kAuto)) {}
};

TEST_F(UcxNoRmaNodeTest, WithoutAnAdapterItemsAreSentAndRegionsEndTheSession) {
  Greeting introduction = Introduction();
  introduction.rma = true;
  const auto server = Greet(side_.get(), introduction, SoonNs());
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_FALSE(server->rma);
  server_token_ = server->token;
  raw_.Connect(server->text);
  Start(Transfer::Kind::kWrite, &slot_);
  AwaitMessage(MessageType::kData);
  raw_.Send(Header(MessageType::kRegion) + EncodeRegionClaim({1, 1, "key"}));
  ExpectClosed("do not move by RMA");
}

// A fake adapter: what is put goes out when it is flushed, and not before.
class FakeLateAdapter {
 public:
  static const Api& api() {
    static const Api late = [] {
      Api api = *Require(LoadApi(TestUcx().libucp));
      real = api;
      api.ucp_put_nbx = Put;
      api.ucp_ep_flush_nbx = Flush;
      return api;
    }();
    return late;
  }

 private:
  struct Late {
    ucp_ep_h endpoint;
    const void* from;
    size_t bytes;
    uint64_t to;
    ucp_rkey_h key;
  };
  static ucs_status_ptr_t Put(ucp_ep_h endpoint, const void* from, size_t bytes, uint64_t to, ucp_rkey_h key,
                              const ucp_request_param_t*) {
    late.push_back({endpoint, from, bytes, to, key});
    return nullptr;
  }
  static ucs_status_ptr_t Flush(ucp_ep_h endpoint, const ucp_request_param_t* param) {
    for (const Late& put : std::exchange(late, {})) {
      ucp_request_param_t none = {};
      ucs_status_ptr_t request = real.ucp_put_nbx(put.endpoint, put.from, put.bytes, put.to, put.key, &none);
      if (UCS_PTR_IS_PTR(request)) real.ucp_request_free(request);
    }
    return real.ucp_ep_flush_nbx(endpoint, param);
  }

  static inline Api real;
  static inline std::deque<Late> late;  // of the one loop there is
};

class UcxFakeLateAdapterTest : public UcxRmaNodeTest {
 protected:
  UcxFakeLateAdapterTest()
      : UcxRmaNodeTest(
            std::make_shared<Host>(Require(Context::CreateWith(FakeLateAdapter::api(), TestUcx(Rma::kAlways))))) {}
};

TEST_F(UcxFakeLateAdapterTest, AllLanesAreFlushedBeforeAnItemIsSaidToBeWritten) {
  JoinByRma();
  Start(Transfer::Kind::kWrite, &full_);
  AwaitMessage(MessageType::kOffer);
  Place({All()});
  AwaitMessage(MessageType::kWritten);
  EXPECT_TRUE(std::equal(payload_.begin(), payload_.end(), memory_.data()));
}

TEST(UcxContext, SlotsAreMappedForRmaAndNothingElseIs) {
  GuardedMemory memory(64 << 10);
  std::byte* const base = memory.data() + 4096;
  constexpr size_t kBytes = 32 << 10;
  for (const Rma rma : {Rma::kAlways, Rma::kNever}) {
    UcxOptions options = TestUcx(rma);
    options.slots = {base, kBytes};
    const auto context = Require(Context::Create(options));
    EXPECT_EQ(context->MappingOf({base, kBytes}) != nullptr, rma == Rma::kAlways);
    EXPECT_EQ(context->MappingOf({base + kBytes - 1, 1}) != nullptr, rma == Rma::kAlways);
    EXPECT_EQ(context->MappingOf({base - 1, 2}), nullptr);
    EXPECT_EQ(context->MappingOf({base + 1, kBytes}), nullptr);
    EXPECT_EQ(context->MappingOf({base + kBytes, 1}), nullptr);
  }
}

TEST(UcxLanes, ThoseOfRdmaAdaptersAreToldFromOthers) {
  // As UCX 1.13 and 1.22 print them.
  EXPECT_FALSE(NamesRdmaLane(""));
  EXPECT_FALSE(
      NamesRdmaLane("#   lane[0]:  0:tcp/lo.0 md[0]   -> md[0]/tcp/sysdev[255] am am_bw#0 keepalive wireup\n"
                    "#   lane[1]:  3:posix/memory.0 md[2]  -> md[2]/posix/sysdev[255] seg 4294967295 am\n"
                    "#   rma_bw: mds rndv_rkey_size 9\n"));
  EXPECT_FALSE(NamesRdmaLane("#   lane[0]:  2:ud_mlx5/mlx5_0:1.0 md[3]  -> md[3]/ib/sysdev[0] am\n"));
  EXPECT_FALSE(NamesRdmaLane("# peer: host:rc_\n#   lane[0]:  0:tcp/lo.0 md[0]\n"));
  for (const char* transport : {"rc_verbs", "rc_mlx5", "dc_mlx5"}) {
    EXPECT_TRUE(
        NamesRdmaLane(absl::StrCat("#\n#   lane[0]:  4:", transport, "/mlx5_0:1.0 md[3]  -> md[3]/ib rma_bw#0")));
  }
}

TEST(UcxLanes, DecideHowItemsMoveUnlessTheUserDoes) {
  EXPECT_TRUE(MovesByRma(Rma::kAuto, /*rdma_lane=*/true));
  EXPECT_FALSE(MovesByRma(Rma::kAuto, /*rdma_lane=*/false));
  EXPECT_TRUE(MovesByRma(Rma::kAlways, /*rdma_lane=*/false));
  EXPECT_FALSE(MovesByRma(Rma::kNever, /*rdma_lane=*/true));
}

}  // namespace
}  // namespace quarry::transport::ucx
