// The frame around the commands: flags, variables, file, exit codes, reports.
#include "tools/quarryctl/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/quantities.h"

namespace quarry::ctl {
namespace {

using testing::HasSubstr;

// Says what it was given; ends as told.
class EchoCommand : public Command {
 public:
  explicit EchoCommand(absl::StatusOr<ExitCode> outcome = ExitCode::kOk) : outcome_(std::move(outcome)) {}
  std::string name() const override { return "echo"; }
  std::string help() const override { return "Says what it was given"; }
  void AddFlags(CLI::App* app) override {
    AddNumber(app, "--number", &number_, "A number", 1, 9);
    AddSize(app, "--size", &size_, "A size", 1, 1 << 20);
  }
  absl::StatusOr<ExitCode> Run(const Context& context) override {
    if (!outcome_.ok()) return outcome_;
    Report report;
    report.Add("number", "number", Value::Count(number_));
    report.Add("size", "size", Value::Bytes(size_));
    report.Add("server", "server", Value::Text(context.globals.server));
    report.Add("timeout_seconds", "timeout", Value::Seconds(static_cast<double>(context.globals.timeout_ns) / 1e9));
    context.Print(report);
    return outcome_;
  }

 private:
  absl::StatusOr<ExitCode> outcome_;
  uint64_t number_ = 4;
  uint64_t size_ = 1024;
};

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

Ran RunWith(std::vector<const char*> arguments, absl::StatusOr<ExitCode> outcome = ExitCode::kOk) {
  arguments.insert(arguments.begin(), "quarryctl");
  Commands commands;
  commands.push_back(std::make_unique<EchoCommand>(std::move(outcome)));
  std::ostringstream out;
  std::ostringstream err;
  Ran ran;
  ran.code = RunProgram(commands, static_cast<int>(arguments.size()), arguments.data(), out, err);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/quarry-ctl-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    for (const char* name : kVariables) unsetenv(name);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    for (const char* name : kVariables) unsetenv(name);
  }
  std::string File(const std::string& text) const {
    std::ofstream(folder_ + "/ctl.toml") << text;
    return folder_ + "/ctl.toml";
  }

  static constexpr const char* kVariables[] = {"QUARRY_SERVER", "QUARRY_TIMEOUT", "QUARRY_JSON", "QUARRY_ECHO_NUMBER",
                                               "QUARRY_CTL_CONFIG"};
  std::string folder_;
};

TEST_F(ProgramTest, GlobalFlagsStandBeforeAndAfterTheCommand) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"--json", "--server", "host:1", "echo"},
                                                                     {"echo", "--json", "--server", "host:1"}}) {
    const Ran ran = RunWith(arguments);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(nlohmann::json::parse(ran.out)["server"], "host:1");
  }
}

TEST_F(ProgramTest, DefaultsAreTheDocumentedOnes) {
  EXPECT_EQ(RunWith({"echo"}).out, "number   4\nsize     1KiB\nserver   127.0.0.1:7420\ntimeout  10s\n");
}

TEST_F(ProgramTest, FlagsWinOverVariablesAndTheseOverTheFile) {
  const std::string file = File("server = \"file:1\"\n[echo]\nnumber = 7\n");
  const Ran from_file = RunWith({"--config", file.c_str(), "echo"});
  EXPECT_THAT(from_file.out, HasSubstr("number   7\n")) << from_file.err;
  EXPECT_THAT(from_file.out, HasSubstr("server   file:1\n"));
  setenv("QUARRY_SERVER", "variable:1", 1);
  setenv("QUARRY_ECHO_NUMBER", "8", 1);
  setenv("QUARRY_CTL_CONFIG", file.c_str(), 1);
  const Ran from_variables = RunWith({"echo"});
  EXPECT_THAT(from_variables.out, HasSubstr("number   8\n")) << from_variables.err;
  EXPECT_THAT(from_variables.out, HasSubstr("server   variable:1\n"));
  const Ran from_flags = RunWith({"--server", "flag:1", "echo", "--number", "9"});
  EXPECT_THAT(from_flags.out, HasSubstr("number   9\n")) << from_flags.err;
  EXPECT_THAT(from_flags.out, HasSubstr("server   flag:1\n"));
}

TEST_F(ProgramTest, UnknownKeysAndTablesOfTheFileAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sever = \"a:1\"\n", "\"sever\""},     {"[echo]\nnumbr = 1\n", "\"echo.numbr\""},
      {"[ehco]\nnumber = 1\n", "[ehco]"},     {"number = 1\n", "\"number\""},
      {"config = \"other\"\n", "\"config\""}, {"[echo]\nserver = \"a:1\"\n", "\"echo.server\""},
  };
  for (const auto& [text, name] : cases) {
    const std::string file = File(text);
    const Ran ran = RunWith({"--config", file.c_str(), "echo"});
    EXPECT_EQ(ran.code, 2) << text;
    EXPECT_THAT(ran.err, HasSubstr("--config: unknown setting")) << text;
    EXPECT_THAT(ran.err, HasSubstr(name)) << text;
  }
}

TEST_F(ProgramTest, BadValuesNameFlagAndBoundWhereverTheyComeFrom) {
  EXPECT_THAT(RunWith({"echo", "--number", "0"}).err, HasSubstr("--number: 0 is below the least, 1"));
  EXPECT_THAT(RunWith({"echo", "--number", "10"}).err, HasSubstr("--number: 10 is above the most, 9"));
  EXPECT_THAT(RunWith({"echo", "--number", "-1"}).err, HasSubstr("--number: \"-1\" is not a whole number"));
  EXPECT_THAT(RunWith({"echo", "--size", "2MiB"}).err, HasSubstr("--size: 2MiB is above the most, 1MiB"));
  EXPECT_THAT(RunWith({"echo", "--size", "2MB2"}).err, HasSubstr("--size: \"2MB2\" has an unknown unit"));
  EXPECT_THAT(RunWith({"echo", "--timeout", "10"}).err, HasSubstr("--timeout: \"10\" has no unit"));
  EXPECT_THAT(RunWith({"echo", "--timeout", "2h"}).err, HasSubstr("--timeout: 2h is above the most, 3600s"));
  EXPECT_THAT(RunWith({"echo", "--server", "nowhere"}).err, HasSubstr("--server"));
  const std::string file = File("[echo]\nnumber = 77\n");
  EXPECT_THAT(RunWith({"--config", file.c_str(), "echo"}).err, HasSubstr("--number: 77 is above the most, 9"));
  setenv("QUARRY_TIMEOUT", "soon", 1);
  EXPECT_THAT(RunWith({"echo"}).err, HasSubstr("--timeout"));
}

TEST_F(ProgramTest, WrongUsageIsTwoAndOneLine) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {}, {"ehco"}, {"echo", "--nmber", "1"}, {"echo", "stray"}, {"--config", "/no/such/file", "echo"}}) {
    const Ran ran = RunWith(arguments);
    EXPECT_EQ(ran.code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(ran.err, testing::StartsWith("quarryctl: "));
    EXPECT_EQ(ran.out, "");
  }
}

TEST_F(ProgramTest, TheExitCodeSaysHowItEnded) {
  EXPECT_EQ(RunWith({"echo"}, ExitCode::kNo).code, 1);
  EXPECT_EQ(RunWith({"echo"}, absl::NotFoundError("no such block")).code, 1);
  EXPECT_EQ(RunWith({"echo"}, absl::InvalidArgumentError("hash: 3 bytes")).code, 2);
  EXPECT_EQ(RunWith({"echo"}, absl::UnavailableError("connection refused")).code, 3);
  EXPECT_EQ(RunWith({"echo"}, absl::DeadlineExceededError("10s")).code, 3);
  EXPECT_EQ(RunWith({"echo"}, absl::UnavailableError("connection refused")).err,
            "quarryctl: echo: connection refused\n");
}

TEST_F(ProgramTest, HelpAndVersionGoToStdout) {
  const Ran help = RunWith({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"echo", "--server", "127.0.0.1:7420", "QUARRY_SERVER", "Exit codes"}) {
    EXPECT_THAT(help.out, HasSubstr(part));
  }
  const Ran command_help = RunWith({"echo", "--help"});
  EXPECT_EQ(command_help.code, 0);
  EXPECT_THAT(command_help.out, HasSubstr("QUARRY_ECHO_NUMBER"));
  EXPECT_THAT(RunWith({"--version"}).out, HasSubstr("quarryctl "));
}

TEST(TableTest, AlignsNumbersToTheRightAndTextToTheLeft) {
  Table table({{"name", "NAME"}, {"bytes", "BYTES"}, {"note", "> ", /*below=*/true}});
  table.AddRow({Value::Text("a"), Value::Bytes(5 << 10), Value::Text("")});
  table.AddRow({Value::Text("longer"), Value::Bytes(1), Value::Text("advice")});
  table.AddRow({Value::Text("b"), Value::None(), Value::Text("")});
  EXPECT_EQ(table.ToText(),
            "NAME    BYTES\n"
            "a        5KiB\n"
            "longer     1B\n"
            "    > advice\n"
            "b           -\n");
}

TEST(TableTest, WithoutRowsHasItsHeading) {
  const Table table({{"name", "NAME"}, {"bytes", "BYTES"}});
  EXPECT_EQ(table.ToText(), "NAME  BYTES\n");
}

TEST(ReportTest, PrintsTheSameValuesBothWays) {
  Report report;
  report.Add("load_seconds", "load time", Value::Seconds(0.25));
  Table table({{"name", "NAME"}, {"count", "COUNT"}});
  table.AddRow({Value::Text("x"), Value::Count(3)});
  report.Add("rows", std::move(table));
  report.Add("healthy", "healthy", Value::Flag(false));
  report.Add("end", "end", Value::None("never"));
  EXPECT_EQ(report.ToText(), "load time  250ms\n\nNAME  COUNT\nx         3\n\nhealthy    no\nend        never\n");
  const auto json = nlohmann::json::parse(report.ToJson());
  EXPECT_EQ(json, nlohmann::json::parse(
                      R"({"load_seconds": 0.25, "rows": [{"name": "x", "count": 3}], "healthy": false, "end": null})"));
}

TEST(ReportTest, NamesThatAreNotUtf8StillGiveJson) {
  Report report;
  report.Add("name", "name", Value::Text("a\xff\"b"));
  EXPECT_EQ(nlohmann::json::parse(report.ToJson())["name"], "a\xef\xbf\xbd\"b");
}

TEST(ValueTest, FormatsWithUnits) {
  EXPECT_EQ(Value::Bytes(131072).ToText(), "128KiB");
  EXPECT_EQ(Value::BytesPerSecond(327'680'000).ToText(), "312.5MiB/s");
  EXPECT_EQ(Value::Seconds(3.2768).ToText(), "3.28s");
  EXPECT_EQ(Value::Seconds(1e12).ToText(), "1e+12s");
  EXPECT_EQ(Value::Quantity(68.45e9, "B").ToText(), "68.45B");
  EXPECT_EQ(Value::Quantity(1.4e15).ToText(), "1.4P");
  EXPECT_EQ(Value::Quantity(12).ToText(), "12");
}

TEST(QuantitiesTest, RatesHaveBytesOrBits) {
  EXPECT_EQ(ParseByteRate("24GB/s").value(), 24e9);
  EXPECT_EQ(ParseByteRate("312.5MiB/s").value(), 327'680'000);
  EXPECT_EQ(ParseByteRate("400Gbit/s").value(), 50e9);
  for (const char* text : {"24GB", "24", "/s", "Gbit/s", "-1GB/s", "0GB/s", "0Gbit/s", "24gb/s", "nanGbit/s"}) {
    EXPECT_FALSE(ParseByteRate(text).ok()) << text;
  }
}

TEST(QuantitiesTest, CountsHaveSuffixesOrExponents) {
  EXPECT_EQ(ParseQuantity("20000").value(), 20'000);
  EXPECT_EQ(ParseQuantity("70B").value(), 70e9);
  EXPECT_EQ(ParseQuantity("1.5k").value(), 1500);
  EXPECT_EQ(ParseQuantity("1.4e15").value(), 1.4e15);
  EXPECT_EQ(ParseQuantity("989T").value(), 989e12);
  for (const char* text : {"", "B", "0", "-3", "3X", "inf", "nan", "1e308E"})
    EXPECT_FALSE(ParseQuantity(text).ok()) << text;
}

}  // namespace
}  // namespace quarry::ctl
