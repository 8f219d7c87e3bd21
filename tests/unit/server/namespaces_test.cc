#include "server/namespaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/namespace_id.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec OtherSpec() {
  ModelSpec spec = TestSpec(4096);
  spec.kv_dtype = "float8";
  spec.layers = 2;
  return spec;
}

TEST(NamespacesTest, SameNameAndSpecIsTheSameNamespace) {
  NamespaceRegistry registry;
  const auto first = registry.Open("t", "n", TestSpec(4096), false);
  const auto second = registry.Open("t", "n", TestSpec(4096), true);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->ns, second->ns);
  EXPECT_TRUE(second->differing_fields.empty());
  EXPECT_EQ(first->ns->id, NamespaceId("t", "n", TestSpec(4096)));
  EXPECT_EQ(registry.Find("t", "n"), first->ns);
  EXPECT_EQ(registry.Find("t", "m"), nullptr);
}

TEST(NamespacesTest, AnotherSpecFailsAndNamesTheFields) {
  NamespaceRegistry registry;
  ASSERT_TRUE(registry.Open("t", "n", TestSpec(4096), false).ok());
  const auto mismatch = registry.Open("t", "n", OtherSpec(), false);
  EXPECT_TRUE(absl::IsFailedPrecondition(mismatch.status()));
  EXPECT_THAT(std::string(mismatch.status().message()), HasSubstr("kv_dtype, layers"));
  EXPECT_EQ(registry.List().size(), 1u);
}

TEST(NamespacesTest, SiblingOpensOnRequestAndSaysSo) {
  NamespaceRegistry registry;
  const auto first = registry.Open("t", "n", TestSpec(4096), true);
  const auto sibling = registry.Open("t", "n", OtherSpec(), true);
  ASSERT_TRUE(sibling.ok());
  EXPECT_NE(sibling->ns, first->ns);
  EXPECT_THAT(sibling->differing_fields, ElementsAre("kv_dtype", "layers"));
  EXPECT_EQ(sibling->ns->name, SiblingName("n", OtherSpec()));
  EXPECT_EQ(registry.Open("t", "n", OtherSpec(), true)->ns, sibling->ns);
  EXPECT_EQ(registry.Find("t", sibling->ns->name), sibling->ns);
}

TEST(NamespacesTest, TheLongestNamesSiblingOpensAgainUnderItsOwnName) {
  const std::string longest(256, 'n');
  NamespaceRegistry registry;
  ASSERT_TRUE(registry.Open("t", longest, TestSpec(4096), true).ok());
  const auto sibling = registry.Open("t", longest, OtherSpec(), true);
  ASSERT_TRUE(sibling.ok()) << sibling.status();
  // As a client does after the node has started again.
  NamespaceRegistry later;
  const auto again = later.Open("t", sibling->ns->name, OtherSpec(), false);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ns->id, sibling->ns->id);
  // Nothing else may be so long.
  EXPECT_TRUE(absl::IsInvalidArgument(later.Open("t", sibling->ns->name, TestSpec(4096), false).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(later.Open("t", longest + "n", OtherSpec(), false).status()));
}

TEST(NamespacesTest, TenantsAreApart) {
  NamespaceRegistry registry;
  const auto a = registry.Open("a", "n", TestSpec(4096), false);
  const auto b = registry.Open("b", "n", OtherSpec(), false);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->ns->tenant_index, b->ns->tenant_index);
  EXPECT_NE(a->ns->index, b->ns->index);
}

TEST(NamespacesTest, BadNamesAndSpecsAreNamed) {
  NamespaceRegistry registry;
  EXPECT_THAT(std::string(registry.Open("t", "", TestSpec(1), false).status().message()), HasSubstr("name: 0 bytes"));
  EXPECT_THAT(std::string(registry.Open("t", std::string(257, 'x'), TestSpec(1), false).status().message()),
              HasSubstr("name: 257 bytes"));
  EXPECT_THAT(std::string(registry.Open("t", std::string("a\0b", 3), TestSpec(1), false).status().message()),
              HasSubstr("control character"));
  EXPECT_THAT(std::string(registry.Open("", "n", TestSpec(1), false).status().message()), HasSubstr("tenant"));
  EXPECT_TRUE(absl::IsInvalidArgument(registry.Open("t", "n", ModelSpec(), false).status()));
}

TEST(NamespacesTest, NumberIsBounded) {
  NamespaceRegistry registry(2, 1);
  ASSERT_TRUE(registry.Open("t", "1", TestSpec(1), false).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Open("u", "1", TestSpec(1), false).status()));
  ASSERT_TRUE(registry.Open("t", "2", TestSpec(1), false).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Open("t", "3", TestSpec(1), false).status()));
  EXPECT_TRUE(registry.Open("t", "2", TestSpec(1), false).ok());
}

TEST(NamespacesTest, AFlushGivesAnotherIndexToTheSameNamespace) {
  NamespaceRegistry registry;
  const Namespace* ns = registry.Open("t", "n", TestSpec(1), false)->ns;
  const uint32_t before = ns->index;
  EXPECT_EQ(*registry.Flush(*ns), before);
  EXPECT_NE(ns->index, before);
  EXPECT_EQ(registry.Open("t", "n", TestSpec(1), false)->ns, ns);
  EXPECT_EQ(registry.OfIndex(before), ns);
  EXPECT_EQ(registry.OfIndex(ns->index), ns);
  EXPECT_EQ(registry.OfIndex(ns->index + 1), nullptr);
}

TEST(NamespacesTest, ARetiredNameIsFreeAndItsNumberIsNotGivenAgain) {
  NamespaceRegistry registry(1, 1);
  const Namespace* ns = registry.Open("t", "n", TestSpec(1), false)->ns;
  const uint32_t before = *registry.Retire(*ns);
  EXPECT_TRUE(ns->retired);
  EXPECT_TRUE(registry.List().empty());
  EXPECT_EQ(registry.Find("t", "n"), nullptr);
  EXPECT_TRUE(absl::IsNotFound(registry.Retire(*ns).status()));
  const auto again = registry.Open("t", "n", OtherSpec(), false);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->ns, ns);
  EXPECT_NE(again->ns->index, before);
  EXPECT_NE(again->ns->index, ns->index);
}

TEST(NamespacesTest, NumbersRunOutWithAnError) {
  NamespaceRegistry registry;
  const Namespace* ns = registry.Open("t", "n", TestSpec(1), false)->ns;
  for (uint32_t i = 1; i < kNamespacesPerIndex; ++i) ASSERT_TRUE(registry.Flush(*ns).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(registry.CheckNumberLeft()));
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Flush(*ns).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Retire(*ns).status()));
  EXPECT_FALSE(ns->retired);
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Open("t", "m", TestSpec(1), false).status()));
}

}  // namespace
}  // namespace quarry::server
