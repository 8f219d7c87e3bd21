#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/settings.h"

namespace quarry::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CommandLine Parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"quarryd"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

ServerConfig Parsed(const std::vector<std::string>& arguments) {
  CommandLine result = Parse(arguments);
  EXPECT_TRUE(result.config.has_value()) << result.output;
  return result.config.value_or(ServerConfig{});
}

// The message on stderr; checks that it is one line and that the exit code is 2.
std::string Refused(const std::vector<std::string>& arguments) {
  const CommandLine result = Parse(arguments);
  EXPECT_FALSE(result.config.has_value());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
  return result.output;
}

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const Setting& setting : Settings(&unused_)) unsetenv(EnvironmentName(setting.name).c_str());
    unsetenv("QUARRY_CONFIG");
    char pattern[] = "/tmp/quarry-config-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    std::filesystem::remove_all(folder_);
  }

  std::string File(const std::string& text) {
    std::string path = folder_ + "/quarryd.toml";
    std::ofstream(path) << text;
    return path;
  }
  void Environment(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

  std::string folder_;

 private:
  std::vector<std::string> set_;
  ServerConfig unused_;
};

TEST_F(ConfigTest, DefaultsListenOnLoopbackOnly) {
  const ServerConfig config = Parsed({});
  EXPECT_THAT(config.listen_grpc, ElementsAre("127.0.0.1:7420"));
  EXPECT_THAT(config.listen_transfer, ElementsAre("127.0.0.1:7421"));
  EXPECT_THAT(config.listen_metrics, ElementsAre("127.0.0.1:9420"));
  EXPECT_FALSE(config.insecure);
  EXPECT_TRUE(config.given.empty());
}

TEST_F(ConfigTest, ReadsEveryKindOfSettingFromFlags) {
  const ServerConfig config =
      Parsed({"--memory", "8GiB", "--max-lease=250ms", "--data-threads", "4", "--no-prefault", "--log-format", "json",
              "--listen-grpc", "127.0.0.1:1,[::1]:2", "--listen-grpc", "localhost:3", "--node-name", "a",
              "--max-lease-blocks", "5", "--max-leased-blocks", "7"});
  EXPECT_EQ(config.memory_bytes, 8ull << 30);
  EXPECT_EQ(config.max_lease_ns, 250'000'000);
  EXPECT_EQ(config.max_lease_blocks, 5u);
  EXPECT_EQ(config.max_leased_blocks, 7u);
  EXPECT_EQ(config.data_threads, 4u);
  EXPECT_TRUE(config.no_prefault);
  EXPECT_EQ(config.log_format, "json");
  EXPECT_THAT(config.listen_grpc, ElementsAre("127.0.0.1:1", "[::1]:2", "localhost:3"));
  EXPECT_EQ(config.node_name, "a");
}

TEST_F(ConfigTest, EverySettingHasAVariable) {
  Environment("QUARRY_MEMORY", "1GiB");
  Environment("QUARRY_LISTEN_TRANSFER", "127.0.0.1:1,127.0.0.2:2");
  Environment("QUARRY_NO_PREFAULT", "true");
  const ServerConfig config = Parsed({});
  EXPECT_EQ(config.memory_bytes, 1ull << 30);
  EXPECT_THAT(config.listen_transfer, ElementsAre("127.0.0.1:1", "127.0.0.2:2"));
  EXPECT_TRUE(config.no_prefault);
}

TEST_F(ConfigTest, ReadsAFile) {
  const std::string path = File(
      "# a comment\n"
      "memory = \"2GiB\"\n"
      "listen-grpc = [\"127.0.0.1:1\", \"[::1]:2\"]\n"
      "data-threads = 3\n"
      "no-prefault = true\n"
      "insecure = false\n"
      "socket = \"none\"\n");
  const ServerConfig config = Parsed({"--config", path});
  EXPECT_EQ(config.memory_bytes, 2ull << 30);
  EXPECT_THAT(config.listen_grpc, ElementsAre("127.0.0.1:1", "[::1]:2"));
  EXPECT_EQ(config.data_threads, 3u);
  EXPECT_TRUE(config.no_prefault);
  EXPECT_FALSE(config.insecure);
  EXPECT_EQ(SocketPath(config), "");
}

TEST_F(ConfigTest, FlagsWinOverVariablesAndTheseOverTheFile) {
  Environment("QUARRY_CONFIG", File("memory = \"1GiB\"\ndata-threads = 11\ncontrol-threads = 11\n"));
  Environment("QUARRY_DATA_THREADS", "22");
  Environment("QUARRY_CONTROL_THREADS", "22");
  const ServerConfig config = Parsed({"--control-threads", "33"});
  EXPECT_EQ(config.memory_bytes, 1ull << 30);
  EXPECT_EQ(config.data_threads, 22u);
  EXPECT_EQ(config.control_threads, 33u);
}

TEST_F(ConfigTest, BadValuesNameTheFlagAndTheBound) {
  EXPECT_THAT(Refused({"--memory", "1MiB"}), AllOf(HasSubstr("--memory"), HasSubstr("128MiB")));
  EXPECT_THAT(Refused({"--memory", "8 gigs"}), AllOf(HasSubstr("--memory"), HasSubstr("unknown unit")));
  EXPECT_THAT(Refused({"--index-shards", "0"}), AllOf(HasSubstr("--index-shards"), HasSubstr("the least, 1")));
  EXPECT_THAT(Refused({"--data-threads", "-1"}), AllOf(HasSubstr("--data-threads"), HasSubstr("from 1 to 256")));
  EXPECT_THAT(Refused({"--max-lease", "2h"}), AllOf(HasSubstr("--max-lease"), HasSubstr("the most, 3600s")));
  EXPECT_THAT(Refused({"--max-lease", "60"}), AllOf(HasSubstr("--max-lease"), HasSubstr("no unit")));
  EXPECT_THAT(Refused({"--max-lease-blocks", "65537"}), HasSubstr("the most, 65536"));
  EXPECT_THAT(Refused({"--log-level", "loud"}), AllOf(HasSubstr("--log-level"), HasSubstr("trace|debug|info")));
  EXPECT_THAT(Refused({"--listen-grpc", "nonsense"}), HasSubstr("--listen-grpc"));
  EXPECT_THAT(Refused({"--advertise-grpc", "nonsense"}), HasSubstr("--advertise-grpc"));
  EXPECT_THAT(Refused({"--socket", std::string(108, 'x')}), AllOf(HasSubstr("--socket"), HasSubstr("107")));
}

TEST_F(ConfigTest, EveryBoundIsWhereItIsSaidToBe) {
  struct {
    const char* flag;
    const char* below;  // nullptr: nothing is
    const char* least;
    const char* most;
    const char* above;
  } const cases[] = {
      {"--memory", "134217727", "134217728", "64TiB", "70368744177665"},
      {"--slab", "1048575", "1MiB", "1GiB", "1073741825"},
      {"--index-shards", "0", "1", "4096", "4097"},
      {"--max-lease", "99999999ns", "100ms", "3600s", "3600001ms"},
      {"--control-threads", "0", "1", "256", "257"},
      {"--control-spin", nullptr, "0", "1ms", "1001us"},
      {"--data-threads", "0", "1", "256", "257"},
      {"--max-sessions", "0", "1", "1000000", "1000001"},
      {"--grpc-stream-idle", "99999999ns", "100ms", "3600s", "3600001ms"},
      {"--drain-timeout", nullptr, "0s", "3600s", "3600001ms"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Parse({c.flag, c.least}).output, "") << c.flag;
    EXPECT_EQ(Parse({c.flag, c.most}).output, "") << c.flag;
    EXPECT_THAT(Refused({c.flag, c.above}), AllOf(HasSubstr(c.flag), HasSubstr("above the most")));
    if (c.below == nullptr) continue;
    EXPECT_THAT(Refused({c.flag, c.below}), AllOf(HasSubstr(c.flag), HasSubstr("below the least")));
  }
}

TEST_F(ConfigTest, TextsAndListsAreBounded) {
  Parsed({"--node-name", std::string(253, 'n')});
  EXPECT_THAT(Refused({"--node-name", std::string(254, 'n')}), AllOf(HasSubstr("--node-name"), HasSubstr("253")));
  Parsed({"--socket", std::string(107, 's')});
  std::vector<std::string> arguments;
  for (int i = 0; i < 16; ++i) arguments.insert(arguments.end(), {"--listen-metrics", "127.0.0.1:0"});
  EXPECT_EQ(Parsed(arguments).listen_metrics.size(), 16u);
  arguments.insert(arguments.end(), {"--listen-metrics", "127.0.0.1:0"});
  EXPECT_THAT(Refused(arguments), AllOf(HasSubstr("--listen-metrics"), HasSubstr("at most 16")));
}

TEST_F(ConfigTest, BadValuesOfVariablesAndFilesNameTheSettingToo) {
  EXPECT_THAT(Refused({"--config", File("memory = \"1MiB\"\n")}), HasSubstr("--memory"));
  EXPECT_THAT(Refused({"--config", File("insecure = \"perhaps\"\n")}), HasSubstr("--insecure"));
  Environment("QUARRY_MAX_LEASE", "soon");
  EXPECT_THAT(Refused({}), HasSubstr("--max-lease"));
}

TEST_F(ConfigTest, UnknownFlagsKeysAndSectionsAreErrorsThatNameThem) {
  EXPECT_THAT(Refused({"--memroy", "1GiB"}), HasSubstr("--memroy"));
  EXPECT_THAT(Refused({"stray"}), HasSubstr("stray"));
  EXPECT_THAT(Refused({"--config", File("memroy = \"1GiB\"\n")}), HasSubstr("\"memroy\""));
  EXPECT_THAT(Refused({"--config", File("[server]\nmemory = \"1GiB\"\n")}), HasSubstr("server"));
}

TEST_F(ConfigTest, AnUnreadableFileIsAnError) {
  EXPECT_THAT(Refused({"--config", folder_ + "/absent.toml"}), HasSubstr("absent.toml"));
  EXPECT_THAT(Refused({"--config", folder_}), HasSubstr(folder_));
  Environment("QUARRY_CONFIG", folder_ + "/absent.toml");
  EXPECT_THAT(Refused({}), HasSubstr("absent.toml"));
}

TEST_F(ConfigTest, BeyondLoopbackTakesInsecure) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.test:0", "[::ffff:127.0.0.1]:0"}) {
    for (const char* flag : {"--listen-grpc", "--listen-transfer", "--listen-metrics"}) {
      EXPECT_THAT(Refused({flag, address}), AllOf(HasSubstr(flag), HasSubstr(address), HasSubstr("--insecure")));
    }
    Parsed({"--listen-grpc", address, "--insecure"});
  }
  EXPECT_THAT(Refused({"--listen-grpc", "127.0.0.1:0,0.0.0.0:0"}), HasSubstr("0.0.0.0:0"));
  Parsed({"--listen-grpc", "127.9.9.9:0,[::1]:0,localhost:0"});
}

TEST_F(ConfigTest, HelpAndVersionGoToStdout) {
  const CommandLine help = Parse({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  ServerConfig unused;
  for (const Setting& setting : Settings(&unused)) {
    EXPECT_THAT(help.output, HasSubstr("--" + setting.name + " "));
    EXPECT_THAT(help.output, HasSubstr(EnvironmentName(setting.name)));
  }
  EXPECT_THAT(Parse({"--version"}).output, HasSubstr("quarryd "));
}

TEST_F(ConfigTest, AReloadSeesWhatChanged) {
  const std::string path = File("log-level = \"info\"\nmemory = \"1GiB\"\n");
  const ServerConfig before = Parsed({"--config", path});
  EXPECT_TRUE(ChangedSettings(before, Parsed({"--config", path})).empty());
  File("log-level = \"debug\"\nmemory = \"2GiB\"\ndata-threads = 3\n");
  EXPECT_THAT(ChangedSettings(before, Parsed({"--config", path})), ElementsAre("memory", "data-threads", "log-level"));
  EXPECT_TRUE(IsReloadable("log-level"));
  EXPECT_FALSE(IsReloadable("memory"));
}

TEST_F(ConfigTest, TheSocketIsWhereSettingsOrSystemSay) {
  EXPECT_EQ(SocketPath(Parsed({"--socket", "/a/b.sock"})), "/a/b.sock");
  EXPECT_EQ(SocketPath(Parsed({"--socket", "none"})), "");
  EXPECT_EQ(SocketPath(Parsed({"--socket", ""})), "");
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  const bool system_folder = access("/run/quarry", W_OK) == 0;
  EXPECT_EQ(SocketPath(Parsed({})), (system_folder ? "/run/quarry" : folder_) + "/quarryd.sock");
  setenv("XDG_RUNTIME_DIR", (folder_ + "/absent").c_str(), 1);
  EXPECT_EQ(SocketPath(Parsed({})), system_folder ? "/run/quarry/quarryd.sock" : "");
  if (before == nullptr) {
    unsetenv("XDG_RUNTIME_DIR");
  } else {
    setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
  }
}

TEST(PlanMemoryTest, ReservesAShareAndAtLeast64MiB) {
  for (const uint64_t total : {kMinMemoryBytes, uint64_t{1} << 30, uint64_t{100} << 30}) {
    const MemoryPlan plan = PlanMemory(total, 0);
    EXPECT_EQ(plan.arena_bytes + plan.reserve_bytes, total);
    EXPECT_GE(plan.reserve_bytes, 64u << 20);
    EXPECT_GE(plan.reserve_bytes, total / 100 * 6);
  }
  EXPECT_EQ(PlanMemory(kMinMemoryBytes, 0).arena_bytes, 64u << 20);
}

}  // namespace
}  // namespace quarry::server
