// Our codec against the generated code, both ways.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/session/messages.h"
#include "quarry/v1/transfer.pb.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;

absl::StatusOr<ClientMessage> Decode(const v1::ClientMessage&, absl::string_view bytes) {
  return DecodeClientMessage(bytes);
}
absl::StatusOr<ServerMessage> Decode(const v1::ServerMessage&, absl::string_view bytes) {
  return DecodeServerMessage(bytes);
}

// Generated code -> our structs -> generated code gives the same message.
template <typename Proto>
void ExpectSurvives(const Proto& proto) {
  const std::string bytes = proto.SerializeAsString();
  const auto decoded = Decode(proto, bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status() << "\n" << proto.DebugString();
  std::string framed;
  AppendFramed(*decoded, &framed);
  Proto back;
  ASSERT_TRUE(back.ParseFromArray(framed.data() + 4, static_cast<int>(framed.size()) - 4));
  EXPECT_TRUE(MessageDifferencer::Equals(proto, back)) << proto.DebugString() << "became\n" << back.DebugString();
  EXPECT_EQ(framed.size() - 4, bytes.size());
}

// Decodes what the generated code wrote of `text`. The bytes live as long as the test.
class AgainstGenerated : public ::testing::Test {
 protected:
  template <typename Body>
  Body Client(const std::string& text) {
    return Parse<v1::ClientMessage, Body>(text);
  }
  template <typename Body>
  Body Server(const std::string& text) {
    return Parse<v1::ServerMessage, Body>(text);
  }

 private:
  template <typename Proto, typename Body>
  Body Parse(const std::string& text) {
    Proto proto;
    EXPECT_TRUE(TextFormat::ParseFromString("request: 300 " + text, &proto)) << text;
    ExpectSurvives(proto);
    bytes_ = proto.SerializeAsString();
    const auto decoded = Decode(proto, bytes_);
    EXPECT_EQ(decoded->request, 300u);
    EXPECT_TRUE(std::holds_alternative<Body>(decoded->body)) << text;
    return std::get<Body>(decoded->body);
  }

  std::string bytes_;
};

TEST_F(AgainstGenerated, HelloAndDataHello) {
  const auto hello = Client<Hello>(R"(hello { major: 2 minor: 3 client: "c" credential: "\000k" })");
  EXPECT_EQ(hello.major, 2u);
  EXPECT_EQ(hello.minor, 3u);
  EXPECT_EQ(hello.client, "c");
  EXPECT_EQ(hello.credential, absl::string_view("\0k", 2));
  const auto data = Client<DataHello>(R"(data_hello { major: 2 minor: 3 session: "s" shared_memory: 4 ucx: true })");
  EXPECT_EQ(data.major, 2u);
  EXPECT_EQ(data.minor, 3u);
  EXPECT_EQ(data.session, "s");
  EXPECT_EQ(data.shared_memory, 4u);
  EXPECT_TRUE(data.ucx);
}

TEST_F(AgainstGenerated, OpenNamespace) {
  const auto open = Client<OpenNamespace>(
      R"(open_namespace { name: "n" sibling_on_mismatch: true spec {
           engine: "e" layout: "l" model: "m" weights_revision: "w" adapter_digest: "a" kv_dtype: "k"
           quantization: "q" hash_scheme: "h" hash_seed: "s" hash_bytes: 33 allow_short_hashes: true layers: 61
           groups { kind: GROUP_KIND_WINDOW tokens_per_block: 2 window_tokens: 3 shards: 4 shard_bytes: 5000000000
                    exact_bytes: true }
           groups { kind: GROUP_KIND_STATE } } })");
  EXPECT_EQ(open.name, "n");
  EXPECT_TRUE(open.sibling_on_mismatch);
  const ModelSpec expected = {
      "e",
      "l",
      "m",
      "w",
      "a",
      "k",
      "q",
      "h",
      "s",
      33,
      true,
      61,
      {{GroupKind::kWindow, 2, 3, 4, 5'000'000'000, true}, {GroupKind::kState, 0, 0, 0, 0, false}}};
  EXPECT_EQ(open.spec, expected);

  std::string alone;
  AppendSpec(expected, &alone);
  v1::ModelSpec proto;
  ASSERT_TRUE(proto.ParseFromString(alone));
  const auto back = DecodeSpec(proto.SerializeAsString());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, expected);
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeSpec(alone.substr(0, alone.size() - 1)).status()));
}

TEST_F(AgainstGenerated, MatchTouchAndFetchPrefix) {
  const std::string chains = R"(chains { group: 1 first_block: 5000000000 hashes: "hash" } chains {})";
  const auto match = Client<Match>(
      "match { handle: 1 local_tokens: 2 lease_ms: 3 no_touch: true prefetch_shards: [0, 300] " + chains + "}");
  EXPECT_EQ(match.handle, 1u);
  EXPECT_EQ(match.local_tokens, 2u);
  EXPECT_EQ(match.lease_ms, 3u);
  EXPECT_TRUE(match.no_touch);
  EXPECT_EQ(match.prefetch_shards, (std::vector<uint32_t>{0, 300}));
  ASSERT_EQ(match.chains.size(), 2u);
  EXPECT_EQ(match.chains[0].group, 1u);
  EXPECT_EQ(match.chains[0].first_block, 5'000'000'000u);
  EXPECT_EQ(match.chains[0].hashes, "hash");

  const auto touch = Client<Touch>("touch { handle: 9 " + chains + "}");
  EXPECT_EQ(touch.handle, 9u);
  EXPECT_EQ(touch.chains[0].hashes, "hash");

  const auto fetch = Client<FetchPrefix>(
      "fetch_prefix { match { handle: 4 } shards: [0, 7, 300] max_blocks: 5 min_blocks: 6 deadline_ms: 7 priority: 8 "
      "}");
  EXPECT_EQ(fetch.match.handle, 4u);
  EXPECT_THAT(fetch.shards, ElementsAre(0, 7, 300));
  EXPECT_EQ(fetch.max_blocks, 5u);
  EXPECT_EQ(fetch.min_blocks, 6u);
  EXPECT_EQ(fetch.deadline_ms, 7u);
  EXPECT_EQ(fetch.priority, 8u);
}

TEST_F(AgainstGenerated, GetAndCredit) {
  const auto get = Client<Get>(
      R"(get { handle: 1 lease: "l" deadline_ms: 2 priority: 3 wait_in_flight: true credit_bytes: 4
               runs { group: 5 shard: 6 hashes: "h" offset: 7 bytes: 8 } })");
  EXPECT_EQ(get.handle, 1u);
  EXPECT_EQ(get.lease, "l");
  EXPECT_EQ(get.deadline_ms, 2u);
  EXPECT_EQ(get.priority, 3u);
  EXPECT_TRUE(get.wait_in_flight);
  EXPECT_EQ(get.credit_bytes, 4u);
  ASSERT_EQ(get.runs.size(), 1u);
  EXPECT_EQ(get.runs[0].group, 5u);
  EXPECT_EQ(get.runs[0].shard, 6u);
  EXPECT_EQ(get.runs[0].hashes, "h");
  EXPECT_EQ(get.runs[0].offset, 7u);
  EXPECT_EQ(get.runs[0].bytes, 8u);
  EXPECT_EQ(Client<Credit>("credit { bytes: 18446744073709551615 }").bytes, UINT64_MAX);
}

TEST_F(AgainstGenerated, Put) {
  const auto put = Client<Put>(
      R"(put { handle: 1 deadline_ms: 2 priority: 3 retain_ms: 4 no_ssd: true wait_in_flight: false
               runs { group: 5 shard: 6 first_block: 7 hashes: "h" parent: "p" bytes: [0, 9, 5000000000] } })");
  EXPECT_EQ(put.handle, 1u);
  EXPECT_EQ(put.deadline_ms, 2u);
  EXPECT_EQ(put.priority, 3u);
  EXPECT_EQ(put.retain_ms, 4u);
  EXPECT_TRUE(put.no_ssd);
  EXPECT_FALSE(put.wait_in_flight);
  EXPECT_TRUE(Client<Put>("put { wait_in_flight: true }").wait_in_flight);
  ASSERT_EQ(put.runs.size(), 1u);
  EXPECT_EQ(put.runs[0].group, 5u);
  EXPECT_EQ(put.runs[0].shard, 6u);
  EXPECT_EQ(put.runs[0].first_block, 7u);
  EXPECT_EQ(put.runs[0].hashes, "h");
  EXPECT_EQ(put.runs[0].parent, "p");
  EXPECT_THAT(put.runs[0].bytes, ElementsAre(0, 9, 5'000'000'000));
}

TEST_F(AgainstGenerated, LeasesDeliveredAndBodiesWithoutFields) {
  const auto renew = Client<RenewLease>(R"(renew_lease { lease: "l" lease_ms: 2 })");
  EXPECT_EQ(renew.lease, "l");
  EXPECT_EQ(renew.lease_ms, 2u);
  EXPECT_EQ(Client<ReleaseLease>(R"(release_lease { lease: "l" })").lease, "l");
  const auto delivered = Client<Delivered>("delivered { items: 1 bytes: 2 corrupt_items: [3, 0] }");
  EXPECT_EQ(delivered.items, 1u);
  EXPECT_EQ(delivered.bytes, 2u);
  EXPECT_THAT(delivered.corrupt_items, ElementsAre(3, 0));
  Client<Cancel>("cancel {}");
  Client<GetView>("get_view {}");
  Server<Draining>("draining {}");
  Server<Ack>("ack {}");
  EXPECT_EQ(Server<LeaseReply>("lease_reply { lease_ms: 4 }").lease_ms, 4u);
}

TEST_F(AgainstGenerated, ErrorHelloReplyNamespaceReplyAndView) {
  const auto error = Server<Error>(R"(error { code: 9 message: "m" differing_fields: ["a", "b"] })");
  EXPECT_EQ(error.code, 9u);
  EXPECT_EQ(error.message, "m");
  EXPECT_THAT(error.differing_fields, ElementsAre("a", "b"));
  const auto hello = Server<HelloReply>(
      R"(hello_reply { major: 1 minor: 2 session: "s" node: "n" socket: "/p" ucx: UCX_OFFER_FABRIC limits { max_items: 3 max_lease_ms: 4
           max_message_bytes: 5 max_data_streams: 6 max_namespaces: 7 max_requests: 8 } })");
  EXPECT_EQ(hello.minor, 2u);
  EXPECT_EQ(hello.session, "s");
  EXPECT_EQ(hello.node, "n");
  EXPECT_EQ(hello.socket, "/p");
  EXPECT_EQ(hello.ucx, UcxOffer::kFabric);
  EXPECT_EQ(hello.limits.max_items, 3u);
  EXPECT_EQ(hello.limits.max_lease_ms, 4u);
  EXPECT_EQ(hello.limits.max_message_bytes, 5u);
  EXPECT_EQ(hello.limits.max_data_streams, 6u);
  EXPECT_EQ(hello.limits.max_namespaces, 7u);
  EXPECT_EQ(hello.limits.max_requests, 8u);
  const auto opened = Server<NamespaceReply>(R"(namespace_reply { handle: 1 id: "i" name: "n" differing_fields: "" })");
  EXPECT_EQ(opened.handle, 1u);
  EXPECT_EQ(opened.id, "i");
  EXPECT_EQ(opened.name, "n");
  EXPECT_THAT(opened.differing_fields, ElementsAre(""));
  const auto view = Server<View>(R"(view { digest: "d" nodes: ["x", "y"] })");
  EXPECT_EQ(view.digest, "d");
  EXPECT_THAT(view.nodes, ElementsAre("x", "y"));
}

TEST_F(AgainstGenerated, MatchReply) {
  const auto reply = Server<MatchReply>(
      R"(match_reply { usable_tokens: 1 first_miss: MISS_CAUSE_REFUSED first_miss_chain: 2 first_miss_block: 3
           lease: "l" lease_ms: 4 fetched_blocks: 5 lease_limit: LEASE_LIMIT_BYTES
           chains { states: "\001\000\004" first_usable: 6 end_usable: 7 } })");
  EXPECT_EQ(reply.usable_tokens, 1u);
  EXPECT_EQ(reply.first_miss, MissCause::kRefused);
  EXPECT_EQ(reply.first_miss_chain, 2u);
  EXPECT_EQ(reply.first_miss_block, 3u);
  EXPECT_EQ(reply.lease, "l");
  EXPECT_EQ(reply.lease_ms, 4u);
  EXPECT_EQ(reply.fetched_blocks, 5u);
  EXPECT_EQ(reply.lease_limit, LeaseLimit::kBytes);
  ASSERT_EQ(reply.chains.size(), 1u);
  EXPECT_EQ(reply.chains[0].states, absl::string_view("\1\0\4", 3));
  EXPECT_EQ(reply.chains[0].first_usable, 6u);
  EXPECT_EQ(reply.chains[0].end_usable, 7u);
}

TEST_F(AgainstGenerated, Progress) {
  const auto get = Server<GetProgress>(
      "get_progress { missed_items: [0, 5] causes: [MISS_CAUSE_EVICTED, MISS_CAUSE_UNSPECIFIED] done: true "
      "dropped_items: 9 }");
  EXPECT_THAT(get.missed_items, ElementsAre(0, 5));
  EXPECT_THAT(get.causes, ElementsAre(MissCause::kEvicted, MissCause::kNone));
  EXPECT_TRUE(get.done);
  EXPECT_THAT(get.dropped_items, ElementsAre(9));
  const auto put = Server<PutProgress>(
      "put_progress { items: [1, 2] outcomes: [PUT_OUTCOME_STORED, PUT_OUTCOME_REFUSED] "
      "reasons: [REFUSAL_REASON_UNSPECIFIED, REFUSAL_REASON_NO_SPACE] done: true }");
  EXPECT_THAT(put.items, ElementsAre(1, 2));
  EXPECT_THAT(put.outcomes, ElementsAre(PutOutcome::kStored, PutOutcome::kRefused));
  EXPECT_THAT(put.reasons, ElementsAre(RefusalReason::kNone, RefusalReason::kNoSpace));
  EXPECT_TRUE(put.done);
}

// ------------------------------------------------------------ random messages

template <typename Proto>
void Fill(Proto* message, TestRandom* random);

std::string RandomText(TestRandom* random) {
  return std::string(random->Between(0, 40), static_cast<char>(random->Between(0, 4)));
}
uint64_t RandomNumber(TestRandom* random) {
  return random->Between(0, 1) * (random->Between(0, UINT64_MAX) >> random->Between(0, 63));
}

void FillField(google::protobuf::Message* message, const FieldDescriptor* field, TestRandom* random) {
  const auto* reflection = message->GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(repeated ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field),
                  random);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? reflection->AddString(message, field, RandomText(random))
                      : reflection->SetString(message, field, RandomText(random));
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = static_cast<uint32_t>(RandomNumber(random));
      return repeated ? reflection->AddUInt32(message, field, value) : reflection->SetUInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = RandomNumber(random);
      return repeated ? reflection->AddUInt64(message, field, value) : reflection->SetUInt64(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, random->Chance(0.5));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = static_cast<int>(random->Between(0, field->enum_type()->value_count() - 1));
      return repeated ? reflection->AddEnumValue(message, field, value)
                      : reflection->SetEnumValue(message, field, value);
    }
    default:
      FAIL() << "a type that the test does not know: " << field->full_name();
  }
}

// Every field set; repeated ones 0 to 5 times, the same for all of a message, so that
// parallel arrays are equally long.
template <typename Proto>
void Fill(Proto* message, TestRandom* random) {
  const auto* descriptor = message->GetDescriptor();
  const uint64_t repeats = random->Between(0, 5);
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->containing_oneof() != nullptr) continue;
    for (uint64_t n = field->is_repeated() ? repeats : 1; n > 0; --n) FillField(message, field, random);
  }
  if (descriptor->oneof_decl_count() > 0) {
    const auto* body = descriptor->oneof_decl(0);
    FillField(message, body->field(static_cast<int>(random->Between(0, body->field_count() - 1))), random);
  }
}

template <typename Proto>
Proto Random(TestRandom* random) {
  Proto proto;
  Fill(&proto, random);
  return proto;
}

TEST(RandomMessages, SurviveBothWays) {
  TestRandom random;
  for (int i = 0; i < 3000 && !::testing::Test::HasFailure(); ++i) {
    ExpectSurvives(Random<v1::ClientMessage>(&random));
    ExpectSurvives(Random<v1::ServerMessage>(&random));
  }
}

// Malformed or not, an answer: never a crash, never an exception.
template <typename Proto>
void ExpectAnswer(const Proto& proto, absl::string_view bytes) {
  const std::string exact(bytes);  // of its own, so that ASan sees a read past the end
  const auto decoded = Decode(proto, exact);
  EXPECT_TRUE(decoded.ok() || decoded.status().code() == absl::StatusCode::kInvalidArgument);
}

template <typename Proto>
void Damage(TestRandom* random) {
  const Proto proto = Random<Proto>(random);
  std::string bytes = proto.SerializeAsString();
  for (size_t cut = 0; cut < bytes.size(); ++cut) ExpectAnswer(proto, absl::string_view(bytes).substr(0, cut));
  for (int i = 0; i < 50 && !bytes.empty(); ++i) {
    bytes[random->Between(0, bytes.size() - 1)] = static_cast<char>(random->Between(0, 255));
    ExpectAnswer(proto, bytes);
  }
}

TEST(RandomMessages, CutOrDamagedAnywhereGetAnAnswer) {
  TestRandom random;
  for (int i = 0; i < 300; ++i) {
    Damage<v1::ClientMessage>(&random);
    Damage<v1::ServerMessage>(&random);
  }
}

}  // namespace
}  // namespace quarry::wire
