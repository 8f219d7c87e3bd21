#include "common/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace quarry {
namespace {

// By the definition: RFC 3629, section 3.
std::string Encode(uint32_t character) {
  const auto low = [&](int shift) { return static_cast<char>(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) return {static_cast<char>(character)};
  if (character < 0x800) return {static_cast<char>(0xC0 | character >> 6), low(0)};
  if (character < 0x10000) return {static_cast<char>(0xE0 | character >> 12), low(6), low(0)};
  return {static_cast<char>(0xF0 | character >> 18), low(12), low(6), low(0)};
}

TEST(IsUtf8, IsTrueOfEveryCharacterAndOfNoPartOfOne) {
  for (uint32_t character = 0; character <= 0x10FFFF; ++character) {
    const std::string bytes = Encode(character);
    const bool surrogate = character >= 0xD800 && character <= 0xDFFF;
    ASSERT_EQ(IsUtf8(bytes), !surrogate) << character;
    if (bytes.size() == 1) continue;
    ASSERT_FALSE(IsUtf8(bytes.substr(1))) << character;
    ASSERT_FALSE(IsUtf8(bytes.substr(0, bytes.size() - 1))) << character;
  }
}

TEST(IsUtf8, IsFalseOfLongFormsAndOfWhatIsTooLarge) {
  for (const char* bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80",
                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xFE"}) {
    EXPECT_FALSE(IsUtf8(bytes));
  }
}

TEST(IsUtf8, LooksAtAllOfTheText) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("caf\xC3\xA9 \xE2\x82\xAC"));
  EXPECT_FALSE(IsUtf8("caf\xC3 \xE2\x82\xAC"));
  EXPECT_FALSE(IsUtf8("good\xE2\x82"));
}

}  // namespace
}  // namespace quarry
