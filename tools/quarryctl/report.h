// The result of a command: built once, printed as text or as JSON.
//
// Text and JSON name the same things: a key is what JSON calls it, with the unit in its name
// (`load_seconds`), a label what a reader sees, with the unit in the value ("136.53ms").
#ifndef QUARRY_TOOLS_QUARRYCTL_REPORT_H_
#define QUARRY_TOOLS_QUARRYCTL_REPORT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace quarry::ctl {

class Value {
 public:
  static Value Text(std::string text);
  static Value Flag(bool on);          // yes, no
  static Value Count(uint64_t count);  // every digit
  static Value Bytes(uint64_t bytes);  // "128KiB"
  static Value BytesPerSecond(double rate);
  static Value Seconds(double seconds);  // "3.28s"
  // "68.45G" in text, every digit in JSON; `giga` as in quantities.h.
  static Value Quantity(double value, std::string giga = "G");
  // "75.0%" in text, 0.75 in JSON; None of nothing.
  static Value Ratio(uint64_t part, uint64_t whole);
  // null in JSON, `shown` in text.
  static Value None(std::string shown = "-");

  std::string ToText() const;
  std::string ToJson() const;
  bool is_number() const { return kind_ != Kind::kText && kind_ != Kind::kFlag; }

 private:
  enum class Kind : uint8_t { kText, kFlag, kCount, kBytes, kBytesPerSecond, kSeconds, kQuantity, kRatio, kNone };
  using Content = std::variant<std::string, bool, uint64_t, double>;
  Value(Kind kind, Content content) : kind_(kind), content_(std::move(content)) {}

  Kind kind_;
  Content content_;
  std::string giga_;
};

struct Column {
  std::string key;
  std::string heading;
  // Printed on a line of its own below the row, unless empty: for what is too long for a cell.
  bool below = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One value a column.
  void AddRow(std::vector<Value> row);

  // Columns are aligned; one that has only numbers (or none) is aligned to the right.
  std::string ToText() const;
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<Value>>& rows() const { return rows_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Value>> rows_;
};

// Fields and tables, in the order in which they were added.
class Report {
 public:
  void Add(std::string key, std::string label, Value value);
  void Add(std::string key, Table table);

  // Fields as two columns; a table with an empty line around it.
  std::string ToText() const;
  // One object; a table is an array of objects. On one line where it is one of many.
  std::string ToJson(bool one_line = false) const;

 private:
  struct Field {
    std::string key;
    std::string label;
    Value value;
  };
  struct KeyedTable {
    std::string key;
    Table table;
  };
  std::vector<std::variant<Field, KeyedTable>> items_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_REPORT_H_
