#include "tools/quarryctl/calc/config_fields.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::ctl {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostShownBytes = 40;

// Published files leave out what equals the default of the class in transformers
// (models/*/configuration_*.py): of Gemma 3 the heads in some sizes, of Gemma 2 and gpt-oss
// which layers have windows.
Json ClassDefaults(const std::string& model_type) {
  if (model_type == "gemma3_text") {
    return {{"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 256}, {"sliding_window_pattern", 6}};
  }
  if (model_type == "gemma2" || model_type == "gpt_oss") return {{"sliding_window_pattern", 2}};
  return Json::object();
}

std::string Shortened(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMostShownBytes) text = text.substr(0, kMostShownBytes) + "...";
  return text;
}

}  // namespace

absl::StatusOr<ConfigFields> ConfigFields::Parse(const std::string& json) {
  try {
    Json config = Json::parse(json);
    if (config.is_object()) return ConfigFields(std::move(config), {});
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", error.what()));
  }
  return absl::InvalidArgumentError("not a JSON object");
}

ConfigFields::ConfigFields(Json config, std::map<std::string, std::string> flags)
    : top_(std::move(config)), text_(Json::object()), flags_(std::move(flags)) {
  if (const auto text = top_.find("text_config"); text != top_.end() && text->is_object()) text_ = *text;
  defaults_ = Json::object();
  if (absl::StatusOr<std::string> type = Text("model_type"); type.ok()) model_type_ = *std::move(type);
  defaults_ = ClassDefaults(model_type_ == "gemma3" ? "gemma3_text" : model_type_);
}

const Json* ConfigFields::Find(const std::string& name) const {
  for (const Json* place : {&text_, &top_, &defaults_}) {
    if (const auto found = place->find(name); found != place->end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

std::string ConfigFields::Shown(const std::string& name) const {
  const auto flag = flags_.find(name);
  return flag == flags_.end() ? name : flag->second;
}

absl::Status ConfigFields::Missing(const std::string& name) const {
  return absl::InvalidArgumentError(absl::StrCat(Shown(name), " is missing"));
}

absl::Status ConfigFields::Wrong(const std::string& name, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(Shown(name), ": ", Shortened(*Find(name)), " is ", what));
}

absl::StatusOr<uint64_t> ConfigFields::Number(const std::string& name, uint64_t least, uint64_t most) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  if (!value->is_number_integer()) return Wrong(name, absl::StrCat("not a whole number from ", least, " to ", most));
  const bool negative = !value->is_number_unsigned() && value->get<int64_t>() < 0;
  if (negative || value->get<uint64_t>() < least) return Wrong(name, absl::StrCat("below the least, ", least));
  if (value->get<uint64_t>() > most) return Wrong(name, absl::StrCat("above the most, ", most));
  return value->get<uint64_t>();
}

absl::StatusOr<uint64_t> ConfigFields::NumberOr(const std::string& name, uint64_t absent, uint64_t least,
                                                uint64_t most) const {
  if (!Has(name)) return absent;
  return Number(name, least, most);
}

absl::StatusOr<bool> ConfigFields::BoolOr(const std::string& name, bool absent) const {
  const Json* value = Find(name);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return Wrong(name, "neither true nor false");
  return value->get<bool>();
}

bool ConfigFields::IsText(const std::string& name) const { return Has(name) && Find(name)->is_string(); }

absl::StatusOr<std::string> ConfigFields::Text(const std::string& name) const {
  if (!Has(name)) return Missing(name);
  if (!IsText(name)) return Wrong(name, "not a string");
  return Find(name)->get<std::string>();
}

absl::StatusOr<std::vector<std::string>> ConfigFields::Texts(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  if (!value->is_array()) return Wrong(name, "not a list of strings");
  std::vector<std::string> texts;
  for (const Json& element : *value) {
    if (!element.is_string()) return Wrong(name, "not a list of strings");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::vector<uint64_t>> ConfigFields::Numbers(const std::string& name) const {
  const Json* value = Find(name);
  if (value == nullptr) return Missing(name);
  if (!value->is_array()) return Wrong(name, "not a list of whole numbers from 0");
  std::vector<uint64_t> numbers;
  for (const Json& element : *value) {
    if (!element.is_number_unsigned()) return Wrong(name, "not a list of whole numbers from 0");
    numbers.push_back(element.get<uint64_t>());
  }
  return numbers;
}

}  // namespace quarry::ctl
