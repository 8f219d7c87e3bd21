#include "tools/bench/scratch_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace quarry::bench {
namespace {

TEST(ScratchDir, IsGoneWithAllThatIsInItAndItsParentStays) {
  auto parent = ScratchDir::Create(std::filesystem::temp_directory_path());
  ASSERT_TRUE(parent.ok()) << parent.status();
  std::string path;
  {
    auto dir = ScratchDir::Create((*parent)->path());
    ASSERT_TRUE(dir.ok()) << dir.status();
    path = (*dir)->path();
    std::filesystem::create_directory(path + "/folder");
    std::ofstream(path + "/folder/file") << "content";
    EXPECT_TRUE(std::filesystem::exists(path + "/folder/file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists((*parent)->path()));
}

TEST(ScratchDir, AnErrorNamesTheParent) {
  const auto dir = ScratchDir::Create("/no/such/folder");
  EXPECT_EQ(dir.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(dir.status().message()), testing::HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace quarry::bench
