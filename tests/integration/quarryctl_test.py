#!/usr/bin/python3
"""quarryctl as a user runs it: calc, doctor, completion in real shells, exit codes.

Usage: quarryctl_test.py QUARRYCTL [unittest arguments]
"""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import quarryd

BINARY = ""
MODELS = quarryd.ROOT / "tests" / "data" / "model_configs"
KIB = 1 << 10
GIB = 1 << 30
SHAPE = ["--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--dtype-bytes", "2"]


def run(*arguments, environment=None):
    return quarryd.run_to_exit(BINARY, list(arguments), environment)


class QuarryctlTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="quarry-ctl-")
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def calc(self, *arguments):
        result = run("calc", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def model(self, name, *arguments):
        return self.calc("--model-config", str(MODELS / f"{name}.json"), *arguments)

    def refused(self, *parts, arguments):
        """Wrong usage: exit code 2, and one line that has all the parts."""
        result = run("calc", *arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in ("quarryctl: ", *parts):
            self.assertIn(part, result.stderr)


class CalcTest(QuarryctlTest):
    def test_the_designs_example(self):
        sizes = self.calc(*SHAPE, "--tokens", "8192", "--iops", "20000", "--io-size", "16KiB",
                          "--prefill-tokens-per-s", "5000")
        self.assertEqual(sizes["bytes_per_token"], 128 * KIB)
        self.assertEqual(sizes["bytes_per_prompt"], GIB)
        self.assertEqual(sizes["bandwidth_bytes_per_second"], 312.5 * KIB * KIB)
        self.assertAlmostEqual(sizes["load_seconds"], 3.28, places=2)
        self.assertAlmostEqual(sizes["recompute_seconds"], 8192 / 5000)
        self.assertEqual(sizes["verdict"], "recompute")
        self.assertIsNone(sizes["break_even_tokens"])

    def test_a_prompt_of_a_70b_model(self):
        sizes = self.model("llama-3-70b", "--tokens", "10000", "--bandwidth", "24GB/s", "--flops", "4e15",
                           "--parameters", "70B")
        self.assertAlmostEqual(sizes["bytes_per_prompt"] / 1e9, 3.28, places=2)
        self.assertAlmostEqual(sizes["load_seconds"], 0.137, places=3)
        self.assertAlmostEqual(sizes["recompute_flop"] / 1e15, 1.4)
        self.assertAlmostEqual(sizes["recompute_seconds"], 0.35)
        self.assertEqual(sizes["verdict"], "load")

    def test_parameters_are_counted_where_not_given(self):
        sizes = self.model("llama-3-70b", "--tokens", "10000", "--flops", "4P")
        self.assertAlmostEqual(sizes["parameters"] / 1e9, 68.45, places=2)
        self.assertIsNone(sizes["verdict"])  # nothing is said about the path

    def test_fixed_latency_moves_the_break_even(self):
        # Loading a token: 128 KiB / (1310.72 MB/s) = 100 us; computing one: 200 us. 1 s is earned by 10,000.
        path = ["--bandwidth", "1310.72MB/s", "--prefill-tokens-per-s", "5000"]
        self.assertEqual(self.calc(*SHAPE, *path)["break_even_tokens"], 1)
        delayed = self.calc(*SHAPE, *path, "--fixed-latency", "1s", "--tokens", "9000")
        self.assertAlmostEqual(delayed["break_even_tokens"], 10_000, delta=1)
        self.assertEqual(delayed["verdict"], "recompute")
        self.assertEqual(self.calc(*SHAPE, *path, "--fixed-latency", "1s", "--tokens", "11000")["verdict"], "load")

    def test_block_shapes_of_published_models(self):
        for name, tokens, ranks, of_one_rank in (
                ("llama-3-8b", 16, 1, 32 * 64), ("llama-3-70b", 16, 8, 80 * 8), ("deepseek-v3", 64, 8, 61 * 72),
                ("qwen3-8b", 16, 1, 36 * 64)):
            sizes = self.model(name, "--tokens-per-block", str(tokens), "--ranks", str(ranks))
            self.assertEqual(sizes["bytes_per_block_and_rank"], of_one_rank * KIB, name)

    def test_flags_say_the_same_as_a_file(self):
        path = ["--bandwidth", "24GB/s", "--prefill-tokens-per-s", "30000", "--tokens", "5000"]
        for name, flags in (
                ("llama-3-8b", SHAPE),
                ("llama-3-8b", ["--layers", "32", "--kv-heads", "8", "--hidden-size", "4096", "--attention-heads", "32",
                                "--dtype-bytes", "2"]),
                ("deepseek-v3", ["--layers", "61", "--kv-lora-rank", "512", "--qk-rope-head-dim", "64",
                                 "--dtype-bytes", "2"]),
                ("mistral-7b-v0.1", [*SHAPE, "--sliding-window", "4096"]),
                ("gemma-3-27b", ["--layers", "62", "--kv-heads", "16", "--head-dim", "128", "--dtype-bytes", "2",
                                 "--sliding-window", "1024", "--sliding-window-pattern", "6"])):
            from_file, from_flags = self.model(name, *path), self.calc(*flags, *path)
            del from_file["model"], from_flags["model"]
            self.assertEqual(from_file, from_flags, name)

    def test_an_8_bit_cache_is_half_as_large(self):
        self.assertEqual(self.model("llama-3-8b", "--dtype-bytes", "1")["bytes_per_token"], 64 * KIB)

    def test_every_model_of_the_tests_is_read(self):
        names = sorted(MODELS.glob("*.json"))
        self.assertGreaterEqual(len(names), 8)
        for name in names:
            self.assertGreater(self.calc("--model-config", str(name))["bytes_per_prompt"], 0)

    def test_text_says_never(self):
        text = run("calc", *SHAPE, "--bandwidth", "1MB/s", "--prefill-tokens-per-s", "10k").stdout
        self.assertRegex(text, r"(?m)^verdict +recompute$")
        self.assertRegex(text, r"(?m)^break-even tokens +never$")

    def test_bad_files_are_named(self):
        missing = os.path.join(self.folder, "none.json")
        self.refused(missing, "cannot be read", arguments=["--model-config", missing])
        self.refused("is not a file", arguments=["--model-config", self.folder])
        broken = self.file("broken.json", '{"num_hidden_layers": 32,')
        self.refused(broken, "not JSON", arguments=["--model-config", broken])
        wrong = self.file("wrong.json", '{"num_hidden_layers": -1}')
        self.refused(wrong, "num_hidden_layers: -1 is below the least, 1", arguments=["--model-config", wrong])

    def test_bad_numbers_are_named_with_their_bounds(self):
        self.refused("--layers", "0 is below the least, 1", arguments=["--layers", "0"])
        self.refused("--layers", "4097 is above the most, 4096", arguments=["--layers", "4097"])
        self.refused("--layers", "-1", arguments=["--layers", "-1"])
        self.refused("--tokens", "0 is below the least, 1", arguments=[*SHAPE, "--tokens", "0"])
        self.refused("--ranks", "3 neither divides", arguments=[*SHAPE, "--ranks", "3"])
        self.refused("--bandwidth", "does not end in /s", arguments=[*SHAPE, "--bandwidth", "24GB"])
        self.refused("--bandwidth", "not above 0", arguments=[*SHAPE, "--bandwidth", "0GB/s"])
        self.refused("--iops", "not above 0", arguments=[*SHAPE, "--iops", "0", "--io-size", "1KiB"])
        self.refused("--flops", "is not a number", arguments=[*SHAPE, "--flops", "many"])

    def test_contradictions_are_named(self):
        config = ["--model-config", str(MODELS / "llama-3-8b.json")]
        self.refused("--model-config", "--layers", arguments=[*config, "--layers", "3"])
        self.refused("--iops", "--bandwidth",
                     arguments=[*SHAPE, "--bandwidth", "1GB/s", "--iops", "1", "--io-size", "1KiB"])
        self.refused("--iops", "--io-size", arguments=[*SHAPE, "--iops", "1"])
        self.refused("--flops", "--prefill-tokens-per-s",
                     arguments=[*SHAPE, "--flops", "1T", "--prefill-tokens-per-s", "1"])
        self.refused("--parameters", "--flops", arguments=[*SHAPE, "--parameters", "1B"])
        self.refused("--parameters", "--flops", arguments=[*SHAPE, "--flops", "1P"])
        self.refused("--fixed-latency", "--bandwidth", arguments=[*SHAPE, "--fixed-latency", "1ms"])
        self.refused("--dtype-bytes is missing", arguments=SHAPE[:-2])
        self.refused("--kv-heads is missing", arguments=["--layers", "3", "--dtype-bytes", "2"])
        self.refused("a model is needed", arguments=[])

    def test_settings_come_from_variables_and_the_file(self):
        config = self.file("ctl.toml", "json = true\n[calc]\nranks = 4\ntokens = 100\n")
        result = run("--config", config, "calc", *SHAPE, environment={"QUARRY_CALC_RANKS": "2"})
        self.assertEqual(result.returncode, 0, result.stderr)
        sizes = json.loads(result.stdout)
        self.assertEqual((sizes["ranks"], sizes["prompt_tokens"]), (2, 100))
        self.file("ctl.toml", "[calc]\nrank = 4\n")
        self.assertIn('"calc.rank"', run("--config", config, "calc", *SHAPE).stderr)


class DoctorTest(QuarryctlTest):
    def test_finds_out_about_this_machine(self):
        result = run("doctor", "--json")
        answer = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if answer["healthy"] else 1)
        names = [check["name"] for check in answer["checks"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(answer["healthy"], all(check["state"] != "bad" for check in answer["checks"]))
        for check in answer["checks"]:
            self.assertIn(check["state"], ("ok", "warn", "bad"))
            self.assertTrue(check["finding"])
            self.assertEqual(bool(check["advice"]), check["state"] != "ok", check)
        text = run("doctor").stdout
        for name in names:
            self.assertRegex(text, rf"(?m)^{re.escape(name)} +(ok|warn|bad) ")

    def test_sees_the_limit_on_locked_memory(self):
        command = ["bash", "-c", 'ulimit -l 64 && exec "$0" doctor --json', BINARY]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=quarryd.DEADLINE_S,
                                           check=False).stdout)
        (memlock,) = [check for check in answer["checks"] if check["name"] == "memlock"]
        self.assertEqual((memlock["state"], memlock["finding"]), ("warn", "at most 64KiB may be locked"))


def flags_of(*command):
    """The flags in the --help of a command."""
    text = run(*command, "--help").stdout
    return set(re.findall(r"(?m)^  (?:-h,)?(--[a-z-]+)", text))


class CompletionTest(QuarryctlTest):
    def script(self, shell):
        result = run("completion", shell)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.file(f"_quarryctl.{shell}", result.stdout)

    def shell(self, *command):
        result = subprocess.run(command, cwd=self.folder, env=quarryd.clean_environment(), capture_output=True,
                                text=True, timeout=quarryd.DEADLINE_S, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.splitlines()

    def bash(self, *words):
        """What bash offers for the last of the words."""
        self.script("bash")
        ask = ('source ./_quarryctl.bash; complete -p quarryctl >/dev/null || exit 9; COMP_WORDS=("$@"); '
               'COMP_CWORD=$(($# - 1)); _quarryctl; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"')
        return self.shell("bash", "--norc", "-c", ask, "bash", "quarryctl", *words)

    def zsh(self, *words, autoload=False):
        script = self.script("zsh")
        if autoload:
            os.rename(script, os.path.join(self.folder, "_quarryctl"))
            load = "fpath=(. $fpath); autoload -Uz _quarryctl"
        else:
            load = "compdef() { [[ $* == '_quarryctl quarryctl' ]] || exit 9 }; source ./_quarryctl.zsh"
        # compadd and _files work only inside zsh's line editor.
        ask = (load + '; compadd() { if [[ $1 == -- ]]; then print -l -- $@[2,-1]; else print -l -- $offers; fi };'
               '_files() { print "(files)" }; words=("$@"); CURRENT=$#; _quarryctl')
        return self.shell("zsh", "-f", "-c", ask, "zsh", "quarryctl", *words)

    def commands(self):
        help_text = run("--help").stdout
        return re.findall(r"(?m)^  ([a-z-]+) ", help_text[help_text.index("Subcommands:"):])

    def test_bash_offers_commands_and_flags(self):
        self.assertEqual(self.bash("ca"), ["calc"])
        self.assertEqual(self.bash("--serv"), ["--server"])
        self.assertIn("--json", self.bash("calc", "--"))
        self.assertEqual(self.bash("calc", "--model"), ["--model-config"])
        self.assertEqual(self.bash("completion", "")[:2], ["bash", "zsh"])
        self.assertEqual(self.bash("completion", "ba"), ["bash"])
        self.assertEqual(self.bash("doctor", "--layers"), [])

    def test_every_flag_of_every_command_is_offered(self):
        commands = self.commands()
        self.assertGreaterEqual(set(commands), {"calc", "doctor", "completion"})
        everywhere = flags_of() - {"--help", "--version"}
        for offered in (self.bash, self.zsh):
            self.assertGreaterEqual(set(offered("")), set(commands) | flags_of())
            for command in commands:
                flags = flags_of(command)
                self.assertIn("--help", flags)
                self.assertGreaterEqual(set(offered(command, "")), flags | everywhere, command)

    def test_the_value_of_a_flag_is_not_taken_for_a_command(self):
        self.assertEqual(self.bash("--tenant", "calc", "doc"), ["doctor"])
        self.assertEqual(self.bash("--tenant", "ca"), [])
        self.assertEqual(self.bash("--server", "127.0.0.1", ":", "7420", "ca"), ["calc"])
        self.assertEqual(self.bash("--tenant", "=", "calc", "doc"), ["doctor"])
        self.assertEqual(self.zsh("--tenant", "calc", "completion", "-x")[:2], ["bash", "zsh"])

    def test_files_are_offered_where_a_file_is_wanted(self):
        self.file("config.json", "{}")
        self.assertEqual(self.bash("calc", "--model-config", "conf"), ["config.json"])
        self.assertEqual(self.bash("calc", "--model-config", "="), self.bash("calc", "--model-config", ""))
        self.assertIn("config.json", self.bash("--config", ""))
        self.assertEqual(self.zsh("calc", "--model-config", ""), ["(files)"])

    def test_zsh_offers_by_source_and_by_fpath(self):
        self.assertIn("--model-config", self.zsh("calc", ""))
        self.assertIn("--model-config", self.zsh("calc", "", autoload=True))

    def test_a_tab_in_an_interactive_bash(self):
        self.script("bash")
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       quarryd.clean_environment({"TERM": "dumb", "PS1": "ready> "}))
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        seen = ""

        def expect(text):
            nonlocal seen
            deadline = time.monotonic() + quarryd.DEADLINE_S
            while text not in seen:
                self.assertTrue(select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], seen)
                seen += os.read(terminal, 4096).decode("utf-8", "replace")
            seen = seen[seen.index(text) + len(text):]

        expect("ready> ")
        os.write(terminal, b"source ./_quarryctl.bash; echo sour''ced\n")
        expect("sourced\r\n")
        os.write(terminal, b"quarryctl --server 127.0.0.1:7420 comp\t z\t")
        expect("completion ")
        expect("zsh ")


class ProgramTest(QuarryctlTest):
    def test_exit_codes_are_documented(self):
        self.assertIn("Exit codes: 0 ok; 1", run("--help").stdout)

    def test_wrong_usage(self):
        for arguments in ((), ("calk",), ("calc", "--layer", "3"), ("--timeout", "10", "doctor")):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
