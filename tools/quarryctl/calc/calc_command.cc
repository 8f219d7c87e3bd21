#include "tools/quarryctl/calc/calc_command.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/flags.h"

namespace quarry::ctl {
namespace {

constexpr uint64_t kMostConfigBytes = 16 << 20;
constexpr uint64_t kMostIoBytes = 1 << 30;
constexpr int64_t kMostFixedNs = 3'600'000'000'000;
constexpr char kConfigFlag[] = "--model-config";

absl::StatusOr<std::string> ReadRegularFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  struct stat info {};
  if (!in.good() || stat(path.c_str(), &info) != 0) return absl::InvalidArgumentError("cannot be read");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a file");
  if (static_cast<uint64_t>(info.st_size) > kMostConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", info.st_size, " bytes, more than a config.json may, ", kMostConfigBytes));
  }
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace

CLI::Option* CalcCommand::AddShapeFlag(CLI::App* app, const std::string& flag, const std::string& field, uint64_t most,
                                       const std::string& help) {
  ShapeFlag& shape = shape_flags_.emplace_back(ShapeFlag{.flag = flag, .field = field});
  shape.option = AddNumber(app, flag, &shape.value, help, 1, most);
  return shape.option;
}

void CalcCommand::AddModelFlags(CLI::App* app) {
  CLI::Option* file = AddFile(app, kConfigFlag, &model_config_, "A Hugging Face config.json; or flags:");
  AddShapeFlag(app, "--layers", "num_hidden_layers", kMaxLayers, "Layers");
  CLI::Option* kv_heads =
      AddShapeFlag(app, "--kv-heads", "num_key_value_heads", kMostDimension, "KV heads; default: --attention-heads");
  CLI::Option* head_dim = AddShapeFlag(app, "--head-dim", "head_dim", kMostDimension,
                                       "Size of a head; default: --hidden-size / --attention-heads");
  CLI::Option* heads = AddShapeFlag(app, "--attention-heads", "num_attention_heads", kMostDimension, "Query heads");
  CLI::Option* hidden = AddShapeFlag(app, "--hidden-size", "hidden_size", kMostDimension, "Size of the hidden state");
  CLI::Option* latent = AddShapeFlag(app, "--kv-lora-rank", "kv_lora_rank", kMostDimension, "MLA: size of the latent");
  CLI::Option* rope = AddShapeFlag(app, "--qk-rope-head-dim", "qk_rope_head_dim", kMostDimension,
                                   "MLA: size of the key's part with positions");
  CLI::Option* window = AddShapeFlag(app, "--sliding-window", "sliding_window", kMostWindowTokens,
                                     "Tokens that a layer with a window sees");
  AddShapeFlag(app, "--sliding-window-pattern", "sliding_window_pattern", kMaxLayers,
               "Every so many layers, one sees all; default: none does")
      ->needs(window);
  latent->needs(rope);
  rope->needs(latent);
  for (CLI::Option* option : {kv_heads, head_dim, heads, hidden}) latent->excludes(option);
  for (const ShapeFlag& shape : shape_flags_) file->excludes(shape.option);
  AddNumber(app, "--dtype-bytes", &element_bytes_.kv, "Bytes of an element of K and V; default: the model's dtype", 1,
            kMostDtypeBytes);
  AddNumber(app, "--state-dtype-bytes", &element_bytes_.state,
            "Bytes of an element of a recurrent state; default: the model's", 1, kMostDtypeBytes);
}

void CalcCommand::AddPathFlags(CLI::App* app) {
  CLI::Option* bandwidth =
      AddByteRate(app, "--bandwidth", &bandwidth_, "Of the path that all ranks share, as 24GB/s; or:");
  CLI::Option* iops = AddQuantity(app, "--iops", &iops_, "Reads a second of --io-size each");
  CLI::Option* io_size = AddSize(app, "--io-size", &io_bytes_, "Bytes of a read", 1, kMostIoBytes);
  iops->needs(io_size)->excludes(bandwidth);
  io_size->needs(iops);
  AddDuration(app, "--fixed-latency", &fixed_latency_ns_, "Of a load, whatever its size; default: 0", 0, kMostFixedNs);
}

void CalcCommand::AddFlags(CLI::App* app) {
  AddModelFlags(app);
  AddNumber(app, "--tokens", &input_.prompt_tokens, "Tokens of the prompt", 1, kMostPromptTokens);
  AddNumber(app, "--tokens-per-block", &input_.tokens_per_block, "Tokens of a block", 1, kMaxTokensPerBlock);
  AddNumber(app, "--ranks", &input_.ranks, "Tensor-parallel ranks", 1, kMaxShards);
  AddPathFlags(app);
  prefill_.AddTo(app, "; default: counted from --model-config");
}

absl::StatusOr<ConfigFields> CalcCommand::ReadModel() const {
  if (!model_config_.empty()) {
    const auto text = ReadRegularFile(model_config_);
    if (!text.ok()) return text.status();
    return ConfigFields::Parse(*text);
  }
  nlohmann::json config = nlohmann::json::object();
  std::map<std::string, std::string> flags;
  for (const ShapeFlag& shape : shape_flags_) {
    if (shape.option->count() > 0) config[shape.field] = shape.value;
    flags[shape.field] = shape.flag;
  }
  if (config.empty()) {
    return absl::InvalidArgumentError("a model is needed: --model-config, or --layers, --kv-heads and --head-dim");
  }
  if (element_bytes_.kv == 0) return absl::InvalidArgumentError("--dtype-bytes is missing");
  return ConfigFields(std::move(config), std::move(flags));
}

absl::Status CalcCommand::FillPath() {
  LoadPath path{.fixed_seconds = static_cast<double>(fixed_latency_ns_) / 1e9, .bytes_per_second = bandwidth_};
  if (iops_ > 0) path.bytes_per_second = BytesPerSecond(iops_, io_bytes_);
  if (path.bytes_per_second > 0) {
    input_.path = path;
  } else if (fixed_latency_ns_ > 0) {
    return absl::InvalidArgumentError("--fixed-latency needs --bandwidth, or --iops and --io-size");
  }
  return absl::OkStatus();
}

absl::Status CalcCommand::FillRate(const ConfigFields& fields) {
  if (prefill_.LacksParameters()) {
    if (model_config_.empty()) return absl::InvalidArgumentError("--parameters: needed with --flops");
    const auto counted = CountParameters(fields);
    if (!counted.ok()) return counted.status();
    prefill_.set_parameters(static_cast<double>(*counted));
  }
  input_.parameters = prefill_.parameters();
  input_.flop_per_second = prefill_.flop_per_second();
  input_.prefill_tokens_per_second = prefill_.TokensPerSecond();
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> CalcCommand::Run(const Context& context) {
  // What is wrong with a file is said with its name.
  const auto named = [this](const absl::Status& status) {
    if (model_config_.empty()) return status;
    return absl::Status(status.code(), absl::StrCat(kConfigFlag, " ", model_config_, ": ", status.message()));
  };
  const auto fields = ReadModel();
  if (!fields.ok()) return named(fields.status());
  auto groups = ReadLayerGroups(*fields, element_bytes_);
  if (!groups.ok()) return named(groups.status());
  input_.groups = *std::move(groups);
  input_.model = model_config_.empty()          ? "as the flags say"
                 : fields->model_type().empty() ? "of no model_type"
                                                : fields->model_type();
  if (absl::Status status = FillPath(); !status.ok()) return status;
  if (absl::Status status = FillRate(*fields); !status.ok()) return status;
  const auto result = Calculate(input_);
  if (!result.ok()) return result.status();
  context.Print(CalcReport(input_, *result));
  return ExitCode::kOk;
}

}  // namespace quarry::ctl
