#include <gtest/gtest.h>

#include "server/grpc/status.h"

namespace quarry::server {
namespace {

TEST(GrpcStatusTest, KeepsCodeAndMessage) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  const grpc::Status status = ToGrpc(absl::NotFoundError("no such namespace"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such namespace");
}

// google.rpc.Status{code 3, message, details Any{type, BadRequest{violation{field, description}}}},
// byte by byte; tests/integration reads the same with generated code.
TEST(GrpcStatusTest, AWrongArgumentIsABadRequestWithItsField) {
  const std::string violation =
      "\x0a\x03"
      "a.b"
      "\x12\x04"
      "c: d";
  const std::string bad_request = "\x0a\x0b" + violation;
  const std::string type = "type.googleapis.com/google.rpc.BadRequest";
  const std::string any = "\x0a" + std::string(1, static_cast<char>(type.size())) + type + "\x12\x0d" + bad_request;
  const std::string expected =
      "\x08\x03"
      "\x12\x09"
      "a.b: c: d"
      "\x1a" +
      std::string(1, static_cast<char>(any.size())) + any;
  EXPECT_EQ(ToGrpc(absl::InvalidArgumentError("a.b: c: d")).error_details(), expected);
}

TEST(GrpcStatusTest, AMessageThatNamesNoFieldIsAllDescription) {
  for (const char* message : {"no field here", "two words: x", ": x", "trailing: "}) {
    const std::string details = ToGrpc(absl::InvalidArgumentError(message)).error_details();
    EXPECT_NE(details.find(message), std::string::npos);
  }
}

TEST(GrpcStatusTest, OtherErrorsHaveNoDetail) {
  EXPECT_EQ(ToGrpc(absl::UnavailableError("x")).error_details(), std::string("\x08\x0e\x12\x01x"));
}

TEST(GrpcStatusTest, EverySubjectIsAViolation) {
  const std::string details = ToGrpc(absl::FailedPreconditionError("differs"), {"kv_dtype", "layers"}).error_details();
  EXPECT_NE(details.find("PreconditionFailure"), std::string::npos);
  EXPECT_NE(details.find("kv_dtype"), std::string::npos);
  EXPECT_NE(details.find("layers"), std::string::npos);
}

}  // namespace
}  // namespace quarry::server
