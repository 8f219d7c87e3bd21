#include "tools/quarryctl/report.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "tools/quarryctl/quantities.h"

namespace quarry::ctl {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double kMostFormattedSeconds = 9e9;     // of FormatDuration
constexpr double kMostFormattedBytesPerS = 9e18;  // of FormatBytes
constexpr size_t kGap = 2;
constexpr char kBelowIndent[] = "    ";

std::string FormatSeconds(double seconds) {
  if (seconds >= kMostFormattedSeconds) return absl::StrFormat("%.3gs", seconds);
  return FormatDuration(std::llround(seconds * 1e9));
}

std::string FormatByteRate(double rate) {
  if (rate >= kMostFormattedBytesPerS) return absl::StrFormat("%.3gB/s", rate);
  return absl::StrCat(FormatBytes(static_cast<uint64_t>(std::llround(rate))), "/s");
}

std::string Padded(const std::string& text, size_t width, bool right) {
  const std::string padding(width - std::min(width, text.size()), ' ');
  return right ? padding + text : text + padding;
}

// Appends the cells without blanks at the end of the line.
void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                const std::vector<bool>& right, std::string* out) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line.append(kGap, ' ');
    line += Padded(cells[i], widths[i], right[i]);
  }
  line.resize(line.find_last_not_of(' ') + 1);
  absl::StrAppend(out, line, "\n");
}

}  // namespace

Value Value::Text(std::string text) { return {Kind::kText, std::move(text)}; }
Value Value::Flag(bool on) { return {Kind::kFlag, on}; }
Value Value::Count(uint64_t count) { return {Kind::kCount, count}; }
Value Value::Bytes(uint64_t bytes) { return {Kind::kBytes, bytes}; }
Value Value::BytesPerSecond(double rate) { return {Kind::kBytesPerSecond, rate}; }
Value Value::Seconds(double seconds) { return {Kind::kSeconds, seconds}; }
Value Value::Quantity(double value, std::string giga) {
  Value result(Kind::kQuantity, value);
  result.giga_ = std::move(giga);
  return result;
}
Value Value::Ratio(uint64_t part, uint64_t whole) {
  if (whole == 0) return None();
  return {Kind::kRatio, static_cast<double>(part) / static_cast<double>(whole)};
}
Value Value::None(std::string shown) { return {Kind::kNone, std::move(shown)}; }

std::string Value::ToText() const {
  switch (kind_) {
    case Kind::kText:
    case Kind::kNone:
      return std::get<std::string>(content_);
    case Kind::kFlag:
      return std::get<bool>(content_) ? "yes" : "no";
    case Kind::kCount:
      return absl::StrCat(std::get<uint64_t>(content_));
    case Kind::kBytes:
      return FormatBytes(std::get<uint64_t>(content_));
    case Kind::kBytesPerSecond:
      return FormatByteRate(std::get<double>(content_));
    case Kind::kSeconds:
      return FormatSeconds(std::get<double>(content_));
    case Kind::kQuantity:
      return FormatQuantity(std::get<double>(content_), giga_);
    case Kind::kRatio:
      return absl::StrFormat("%.1f%%", 100 * std::get<double>(content_));
  }
  return "";
}

std::string Value::ToJson() const {
  if (kind_ == Kind::kNone) return "null";
  // What is not UTF-8 becomes U+FFFD: names come from outside.
  return std::visit(
      [](const auto& content) {
        return OrderedJson(content).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      },
      content_);
}

void Table::AddRow(std::vector<Value> row) {
  assert(row.size() == columns_.size());
  rows_.push_back(std::move(row));
}

std::string Table::ToText() const {
  std::vector<std::string> headings;
  std::vector<size_t> widths;
  std::vector<bool> right;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].below) continue;
    headings.push_back(columns_[i].heading);
    widths.push_back(columns_[i].heading.size());
    right.push_back(!rows_.empty());
    for (const std::vector<Value>& row : rows_) {
      widths.back() = std::max(widths.back(), row[i].ToText().size());
      if (!row[i].is_number()) right.back() = false;
    }
  }
  std::string text;
  AppendLine(headings, widths, right, &text);
  for (const std::vector<Value>& row : rows_) {
    std::vector<std::string> cells;
    std::string below;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = row[i].ToText();
      if (!columns_[i].below) {
        cells.push_back(cell);
      } else if (!cell.empty()) {
        absl::StrAppend(&below, kBelowIndent, columns_[i].heading, cell, "\n");
      }
    }
    AppendLine(cells, widths, right, &text);
    text += below;
  }
  return text;
}

void Report::Add(std::string key, std::string label, Value value) {
  items_.emplace_back(Field{std::move(key), std::move(label), std::move(value)});
}

void Report::Add(std::string key, Table table) { items_.emplace_back(KeyedTable{std::move(key), std::move(table)}); }

std::string Report::ToText() const {
  size_t width = 0;
  for (const auto& item : items_) {
    if (const Field* field = std::get_if<Field>(&item)) width = std::max(width, field->label.size());
  }
  std::string text;
  bool after_table = false;
  for (const auto& item : items_) {
    const Field* field = std::get_if<Field>(&item);
    if (!text.empty() && (field == nullptr || after_table)) text += "\n";
    after_table = field == nullptr;
    if (field != nullptr) {
      AppendLine({field->label, field->value.ToText()}, {width, 0}, {false, false}, &text);
    } else {
      text += std::get<KeyedTable>(item).table.ToText();
    }
  }
  return text;
}

std::string Report::ToJson(bool one_line) const {
  OrderedJson json = OrderedJson::object();
  for (const auto& item : items_) {
    if (const Field* field = std::get_if<Field>(&item)) {
      json[field->key] = OrderedJson::parse(field->value.ToJson());
      continue;
    }
    const KeyedTable& keyed = std::get<KeyedTable>(item);
    OrderedJson rows = OrderedJson::array();
    for (const std::vector<Value>& row : keyed.table.rows()) {
      OrderedJson object = OrderedJson::object();
      for (size_t i = 0; i < row.size(); ++i)
        object[keyed.table.columns()[i].key] = OrderedJson::parse(row[i].ToJson());
      rows.push_back(std::move(object));
    }
    json[keyed.key] = std::move(rows);
  }
  return json.dump(one_line ? -1 : 2) + "\n";
}

}  // namespace quarry::ctl
