#include "tools/quarryctl/completion.h"

#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace quarry::ctl {
namespace {

struct Word {
  std::string text;
  std::string help;
};
struct Flag {
  Word word;
  bool takes_value = false;
  std::vector<std::string> choices;  // of the value; none and no file: anything
  bool is_file = false;
  bool inherited = true;  // may stand after the commands below, too
};
// A command, by the words that lead to it: "" is the program, "calc" a command of it.
struct Place {
  std::string path;
  std::vector<std::string> commands;
  std::vector<Word> words;  // commands, and choices of positional arguments
  std::vector<Flag> flags;
};

// CLI11 keeps the choices of IsMember only as text: "TEXT:{bash,zsh}".
std::vector<std::string> Choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
}

void AppendOption(const CLI::Option& option, Place* place) {
  if (option.get_positional()) {
    for (const std::string& choice : Choices(option)) place->words.push_back({choice, option.get_description()});
  }
  const auto add = [&](const std::string& name) {
    place->flags.push_back({.word = {name, option.get_description()},
                            .takes_value = option.get_items_expected_max() > 0,
                            .choices = Choices(option),
                            .is_file = option.get_type_name() == "FILE",
                            // --help and --version are of the command that is asked.
                            .inherited = option.get_configurable() || option.get_items_expected_max() > 0});
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
}

void Walk(const CLI::App& app, const std::string& path, const std::vector<Flag>& above, std::vector<Place>* places) {
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  Place place;
  place.path = path;
  for (const CLI::App* command : commands) {
    place.commands.push_back(command->get_name());
    place.words.push_back({command->get_name(), command->get_description()});
  }
  for (const CLI::Option* option : app.get_options()) AppendOption(*option, &place);
  for (const Flag& flag : above) {
    if (flag.inherited) place.flags.push_back(flag);
  }
  const std::vector<Flag> flags = place.flags;
  places->push_back(std::move(place));
  for (const CLI::App* command : commands) {
    Walk(*command, absl::StrCat(path, path.empty() ? "" : " ", command->get_name()), flags, places);
  }
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The cases by which a script reads the words before the one to be completed: `at` becomes
// the command they lead to, `expects` the flag whose value comes next.
std::string ReadingCases(const std::vector<Place>& places) {
  std::string script;
  for (const Place& place : places) {
    for (const std::string& command : place.commands) {
      const std::string path = absl::StrCat(place.path, place.path.empty() ? "" : " ", command);
      absl::StrAppend(&script, "      ", Quoted(place.path + ":" + command), ") at=", Quoted(path), " ;;\n");
    }
    std::vector<std::string> flags;
    for (const Flag& flag : place.flags) {
      if (flag.takes_value) flags.push_back(Quoted(place.path + ":" + flag.word.text));
    }
    if (!flags.empty()) absl::StrAppend(&script, "      ", absl::StrJoin(flags, "|"), ") expects=\"$at:$word\" ;;\n");
  }
  return script;
}

// Calls `values` for each flag whose values are known, with the pattern of its case.
template <typename Values>
std::string ValueCases(const std::vector<Place>& places, Values values) {
  std::string script;
  for (const Place& place : places) {
    for (const Flag& flag : place.flags) {
      if (!flag.is_file && flag.choices.empty()) continue;
      absl::StrAppend(&script, "      ", Quoted(place.path + ":" + flag.word.text), ") ", values(flag), " ;;\n");
    }
  }
  return script;
}

// All that may stand at a place; flags last.
std::vector<Word> Offers(const Place& place) {
  std::vector<Word> offers = place.words;
  for (const Flag& flag : place.flags) offers.push_back(flag.word);
  return offers;
}

std::vector<Place> Places(const CLI::App& program) {
  std::vector<Place> places;
  Walk(program, "", {}, &places);
  return places;
}

}  // namespace

std::string BashCompletion(const CLI::App& program) {
  const std::vector<Place> places = Places(program);
  const std::string& name = program.get_name();
  std::string script = absl::StrCat("# Completion of ", name, " for bash, printed by `", name, " completion bash`.\n");
  // Readline splits --flag=value at the "=".
  absl::StrAppend(&script, "_", name, R"(() {
  local current="${COMP_WORDS[COMP_CWORD]}" at='' expects='' word i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    if [[ -n "$expects" ]]; then
      [[ "$word" == '=' ]] || expects=''
      continue
    fi
    case "$at:$word" in
)");
  absl::StrAppend(&script, ReadingCases(places), R"(    esac
  done
  COMPREPLY=()
  if [[ -n "$expects" ]]; then
    [[ "$current" != '=' ]] || current=''
    case "$expects" in
)");
  script += ValueCases(places, [](const Flag& flag) {
    if (flag.is_file)
      return std::string("compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$current\")");
    return absl::StrCat("mapfile -t COMPREPLY < <(compgen -W ", Quoted(absl::StrJoin(flag.choices, " ")),
                        " -- \"$current\")");
  });
  script += "    esac\n    return\n  fi\n  case \"$at\" in\n";
  for (const Place& place : places) {
    const std::string words =
        absl::StrJoin(Offers(place), " ", [](std::string* out, const Word& word) { out->append(word.text); });
    absl::StrAppend(&script, "    ", Quoted(place.path), ") mapfile -t COMPREPLY < <(compgen -W ", Quoted(words),
                    " -- \"$current\") ;;\n");
  }
  absl::StrAppend(&script, "  esac\n}\ncomplete -F _", name, " ", name, "\n");
  return script;
}

std::string ZshCompletion(const CLI::App& program) {
  const std::vector<Place> places = Places(program);
  const std::string& name = program.get_name();
  std::string script = absl::StrCat("#compdef ", name, "\n# Completion of ", name, " for zsh, printed by `", name,
                                    " completion zsh`.\n_", name, R"(() {
  local at='' expects='' word i
  local -a offers shown
  for ((i = 2; i < CURRENT; ++i)); do
    word="${words[i]}"
    if [[ -n "$expects" ]]; then
      expects=''
      continue
    fi
    case "$at:$word" in
)");
  absl::StrAppend(&script, ReadingCases(places), "    esac\n  done\n",
                  "  if [[ -n \"$expects\" ]]; then\n    case \"$expects\" in\n");
  script += ValueCases(places, [](const Flag& flag) {
    return flag.is_file ? std::string("_files") : absl::StrCat("compadd -- ", absl::StrJoin(flag.choices, " "));
  });
  script += "    esac\n    return\n  fi\n  case \"$at\" in\n";
  for (const Place& place : places) {
    absl::StrAppend(&script, "    ", Quoted(place.path), ")\n");
    for (const Word& word : Offers(place)) {
      absl::StrAppend(&script, "      offers+=(", Quoted(word.text), "); shown+=(",
                      Quoted(absl::StrCat(word.text, "  -- ", word.help)), ")\n");
    }
    script += "      ;;\n";
  }
  // Autoloaded from $fpath, the file is the body of the function; sourced, it registers it.
  absl::StrAppend(&script, "  esac\n  compadd -l -d shown -a offers\n}\nif [[ \"${funcstack[1]}\" == _", name,
                  " ]]; then\n  _", name, " \"$@\"\nelse\n  compdef _", name, " ", name, "\nfi\n");
  return script;
}

}  // namespace quarry::ctl
