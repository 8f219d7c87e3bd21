#!/usr/bin/python3
"""quarryctl's commands that show what a node does: top, report.

Usage: quarryctl_top_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios

import grpc_case
import quarryctl_case
import quarryd
from grpc_case import BLOCK_BYTES
from quarryctl_case import ControlCase, Follower


class TopTest(ControlCase):
    def traffic(self, name):
        """Puts and gets a block, matches a chain of which 3 of 4 blocks are there."""
        self.put([name])
        self.get([name])
        self.match(["a", "b", "c", "none"])

    def ready(self):
        self.put(["a", "b", "c"])

    def test_the_rates_are_those_of_the_traffic(self):
        self.ready()
        top = Follower(self, "--json", "top", "--interval", "200ms")
        top.event()
        rounds = 5
        for i in range(rounds):
            self.traffic(f"{self.ns}{i}")
        sums = dict.fromkeys(("put_bytes_per_second", "get_bytes_per_second", "match_hashes_per_second",
                              "matches_per_second", "saved_tokens_per_second"), 0)
        operations, here = {"get": 0, "put": 0, "match": 0}, 0
        while sums["match_hashes_per_second"] < 4 * rounds - 0.1:
            record = top.event()
            for key in sums:
                sums[key] += record[key] * record["interval_seconds"]
            for row in record["operations"]:
                if row["operation"] in operations:
                    operations[row["operation"]] += row["requests_per_second"] * record["interval_seconds"]
                    self.assertEqual(row["mean_seconds"] is None, row["requests_per_second"] == 0, row)
            busiest = record["namespaces"][0]
            if record["match_hashes_per_second"]:
                self.assertEqual((busiest["name"], busiest["hit_ratio"], record["hit_ratio"]), (self.ns, 0.75, 0.75))
                here += busiest["match_hashes_per_second"] * record["interval_seconds"]
        for key, total in (("put_bytes_per_second", rounds * BLOCK_BYTES),
                           ("get_bytes_per_second", rounds * BLOCK_BYTES), ("match_hashes_per_second", 4 * rounds),
                           ("matches_per_second", rounds), ("saved_tokens_per_second", 3 * 16 * rounds)):
            self.assertAlmostEqual(sums[key], total, msg=key, delta=0.01)
        self.assertAlmostEqual(here, 4 * rounds)
        for operation, requests in operations.items():
            self.assertAlmostEqual(requests, rounds, msg=operation)
        self.assertEqual(record["blocks"], self.call(self.cache.Stats, self.C.StatsRequest()).blocks)
        self.assertEqual(top.end(signal.SIGTERM), (0, ""))

    def while_there_is_traffic(self, *arguments):
        self.ready()
        top = Follower(self, *arguments, "top", "--once", "--interval", "500ms")
        number = 0
        while top.process.poll() is None:
            self.traffic(f"{self.ns}{number % 10}")
            number += 1
        output, error = top.process.communicate(timeout=quarryd.DEADLINE_S)
        self.assertEqual((top.process.returncode, error), (0, b""))
        return output.decode()

    def test_once_is_one_interval(self):
        text = self.while_there_is_traffic("--json")
        self.assertEqual(text.count("\n"), 1)
        record = json.loads(text)
        self.assertGreaterEqual(record["interval_seconds"], 0.5)
        for key in ("matches_per_second", "get_bytes_per_second", "saved_tokens_per_second"):
            self.assertGreater(record[key], 0, key)
        self.assertFalse(record["draining"])
        page = self.while_there_is_traffic()
        self.assertRegex(page, rf"(?m)^node +{re.escape(self.daemon.grpc)}, version \S+, up \S+, serving$")
        self.assertRegex(page, r"(?m)^memory +\S+ of \S+ used \(\d+\.\d%\), \S+ leased$")
        self.assertRegex(page, r"(?m)^get +[1-9]\S*/s$")
        self.assertRegex(page, r"(?m)^refused +none$")
        self.assertRegex(page, r"(?m)^match +[1-9]\S* +0 +\S+s$")

    def test_refusals_are_named(self):
        top = Follower(self, "--json", "top", "--interval", "200ms")
        top.event()
        parts = list(self.put_parts([("bad", b"x" * BLOCK_BYTES)]))
        parts[2].data = b"y" + parts[2].data[1:]
        self.call(self.cache.Put, iter(parts))
        refused = 0
        while refused < 0.5:
            record = top.event()
            refused += sum(row["per_second"] * record["interval_seconds"] for row in record["refusals"]
                           if row["reason"] == "checksum")
        self.assertAlmostEqual(refused, 1)

    def test_without_a_terminal_it_is_a_block_an_interval(self):
        top = Follower(self, "top", "--interval", "100ms")
        lines = [top.line() for _ in range(40)]
        self.assertGreaterEqual(sum(line.startswith("node ") for line in lines), 2)
        self.assertNotIn("\x1b", "".join(lines))
        self.assertEqual(top.end(signal.SIGINT), (0, ""))

    def test_a_terminal_is_drawn_within_its_bounds_and_given_back(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number), Terminal(self, 10, 50, "top", "--interval", "100ms") as terminal:
                pages = terminal.until(b"blocks, ").decode()
                self.assertTrue(pages.startswith("\x1b[?1049h\x1b[?25l"), pages)
                terminal.until(b"blocks, ")
                os.kill(terminal.pid, number)
                rest = terminal.rest().decode()
                self.assertTrue(rest.endswith("\x1b[?25h\x1b[?1049l"), rest)
                self.assertEqual(terminal.code, 0)
                for page in rest.split("\x1b[H")[1:]:
                    lines = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", page).split("\r\n")
                    self.assertLessEqual(len(lines), 10)
                    self.assertLessEqual(max(map(len, lines)), 50)

    def test_bad_values_are_named(self):
        self.refused("--interval", "below the least, 100ms", arguments=["top", "--interval", "99ms"])
        self.refused("--interval", "above the most, 3600s", arguments=["top", "--interval", "2h"])
        self.refused("--interval", "no unit", arguments=["top", "--interval", "1"])


class Terminal:
    """A quarryctl on a terminal of its own."""

    def __init__(self, case, rows, columns, *arguments):
        command = [quarryctl_case.BINARY, "--server", case.daemon.grpc, *arguments]
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.execve(command[0], command, quarryd.clean_environment({"TERM": "xterm"}))
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def _read(self):
        """What it has drawn since; nothing when it is gone."""
        assert select.select([self.fd], [], [], quarryd.DEADLINE_S)[0], "it draws no more"
        try:
            return os.read(self.fd, 1 << 16)
        except OSError:  # the other side is closed
            return b""

    def until(self, text):
        seen = b""
        while text not in seen:
            piece = self._read()
            assert piece, seen
            seen += piece
        return seen

    def rest(self):
        seen = b""
        while piece := self._read():
            seen += piece
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return seen


class ReportTest(ControlCase):
    flags = {"memory": "160MiB"}

    def row(self, report):
        return next(r for r in report["namespaces"] if r["name"] == self.ns)

    def test_saved_tokens_and_seconds_follow_from_what_was_matched(self):
        self.put(["a", "b", "c"])
        before = self.json("report")
        self.match(["a", "b", "none"])
        self.match(["a", "b", "c"])
        report = self.json("report", "--prefill-tokens-per-s", "1k")
        row = self.row(report)
        self.assertEqual((row["match_hashes"], row["hit_ratio"], row["saved_tokens"], row["saved_seconds"]),
                         (6, 5 / 6, 5 * 16, 0.08))
        self.assertEqual(report["saved_tokens"] - before["saved_tokens"], 80)
        self.assertEqual(report["saved_seconds"], report["saved_tokens"] / 1000)
        self.assertEqual(report["saved_tokens"], sum(r["saved_tokens"] for r in report["namespaces"]))
        # 2 x 8e9 FLOP a token at 16e12 a second are 1,000 tokens a second.
        by_flops = self.json("report", "--flops", "16T", "--parameters", "8B")
        self.assertEqual((by_flops["prefill_tokens_per_second"], self.row(by_flops)["saved_seconds"]), (1000, 0.08))
        self.assertRegex(self.ctl("report", "--prefill-tokens-per-s", "1k"),
                         rf"(?m) {self.ns} +m +6 +83\.3% +80 +80ms$")

    def test_without_a_rate_there_are_tokens_only(self):
        report = self.json("report")
        self.assertEqual((report["prefill_tokens_per_second"], report["saved_seconds"]), (None, None))
        self.assertEqual(self.row(report)["saved_tokens"], 0)
        self.assertIsNone(self.row(report)["hit_ratio"])
        self.assertEqual(self.json("report", "--tenant", "nobody")["namespaces"], [])

    def test_bad_rates_are_named(self):
        self.refused("--prefill-tokens-per-s", "not above 0", arguments=["report", "--prefill-tokens-per-s", "0"])
        self.refused("--flops", "not a number", arguments=["report", "--flops", "x", "--parameters", "1B"])
        self.refused("--parameters", "--flops", arguments=["report", "--flops", "1T"])
        self.refused("--parameters", "--flops", arguments=["report", "--parameters", "1B"])
        self.refused("--flops", "--prefill-tokens-per-s",
                     arguments=["report", "--prefill-tokens-per-s", "1", "--flops", "1T"])


if __name__ == "__main__":
    quarryctl_case.BINARY = sys.argv.pop(2)
    grpc_case.main(sys.argv)
