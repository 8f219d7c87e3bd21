#!/usr/bin/python3
"""quarryctl's commands that follow a node: watch, top, report.

Usage: quarryctl_live_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

import grpc_case
import quarryctl_case
import quarryd
from grpc_case import BLOCK_BYTES, block_hash
from quarryctl_case import ControlCase, hexes

# What the daemon's log of events keeps.
LOG_EVENTS = 16 << 10


class Follower:
    """A quarryctl that goes on until it is told to stop; its stdout is read line by line."""

    def __init__(self, case, *arguments, server=None):
        # A shell that runs tests in the background has SIGINT ignored, which would be inherited. Not by
        # preexec_fn: Python code between fork and exec can hang beside gRPC's threads.
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", quarryctl_case.BINARY, "--server", server or case.daemon.grpc, *arguments],
            env=quarryd.clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        case.addCleanup(self.close)
        self._seen = b""

    def line(self):
        deadline = time.monotonic() + quarryd.DEADLINE_S
        while b"\n" not in self._seen:
            left = max(0, deadline - time.monotonic())
            assert select.select([self.process.stdout], [], [], left)[0], f"no line; so far {self._seen!r}"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            assert piece, f"it ended: {self.process.stderr.read()!r}"
            self._seen += piece
        line, self._seen = self._seen.split(b"\n", 1)
        return line.decode()

    def event(self):
        return json.loads(self.line())

    def until(self, condition):
        """The first event of which it holds."""
        deadline = time.monotonic() + quarryd.DEADLINE_S
        event = self.event()
        while not condition(event):
            assert time.monotonic() < deadline, f"still {event}"
            event = self.event()
        return event

    def end(self, number=None):
        """Its exit code and stderr, after this signal."""
        if number is not None:
            self.process.send_signal(number)
        _, error = self.process.communicate(timeout=quarryd.DEADLINE_S)
        return self.process.returncode, error.decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class WatchCase(ControlCase):
    def watch(self, *arguments, mode=("--json",)):
        return Follower(self, *mode, "watch", self.ns, *arguments)

    def listening(self, *arguments):
        """A watch that is known to listen: its snapshot, of nothing, has ended."""
        watch = self.watch("--snapshot", *arguments)
        self.assertEqual(watch.event()["event"], "snapshot_end")
        return watch

    def remove(self, names):
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace=self.ns, hashes=[block_hash(n) for n in names]))


class WatchTest(WatchCase):
    def test_what_is_stored_removed_and_cleared_is_told(self):
        watch = self.listening()
        names = [f"{self.ns}{i}" for i in range(2)]
        self.put(names)
        self.remove(names[:1])
        self.ctl("namespaces", "flush", self.ns, "--yes")
        first, second, removed, cleared = [watch.event() for _ in range(4)]
        asked = hexes(names)
        self.assertEqual([(e["event"], e["hash"], e["parent"], e["depth"]) for e in (first, second)],
                         [("stored", asked[0], None, 0), ("stored", asked[1], asked[0], 1)])
        self.assertEqual((first["namespace"], first["group"], first["bytes"], first["tier"], first["cause"]),
                         (self.ns, 0, BLOCK_BYTES, "dram", None))
        self.assertEqual((removed["event"], removed["hash"], removed["cause"], removed["depth"]),
                         ("removed", asked[0], "retired", None))
        self.assertEqual((cleared["event"], cleared["hash"], cleared["namespace"]), ("cleared", None, self.ns))
        numbers = [e["number"] for e in (first, second, removed, cleared)]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(watch.end(signal.SIGTERM), (0, ""))

    def test_people_get_a_row_an_event(self):
        self.put(["before"])
        watch = self.watch("--snapshot", mode=())
        self.assertEqual(watch.line().split(), ["NUMBER", "EVENT", "GROUP", "DEPTH", "BYTES", "CAUSE", "HASH",
                                                "NAMESPACE"])
        self.assertEqual(watch.line().split(),
                         ["-", "stored", "0", "0", str(BLOCK_BYTES), "-", *hexes(["before"]), self.ns])
        self.assertIn("snapshot_end", watch.line())
        self.remove(["before"])
        number, *rest = watch.line().split()
        self.assertEqual(rest, ["removed", "0", "-", str(BLOCK_BYTES), "retired", *hexes(["before"]), self.ns])
        self.assertGreater(int(number), 0)
        self.assertEqual(watch.end(signal.SIGINT), (0, ""))

    def test_a_snapshot_comes_before_what_happens(self):
        names = [f"{self.ns}{i}" for i in range(5)]
        self.put(names)
        watch = self.watch("--snapshot")
        snapshot = [watch.event() for _ in range(5)]
        self.assertEqual(sorted(e["hash"] for e in snapshot), sorted(hexes(names)))
        self.assertEqual({(e["number"], e["resume"]) for e in snapshot}, {(None, None)})
        self.assertEqual(watch.event()["event"], "snapshot_end")
        self.put(["later"])
        self.assertEqual([watch.event()["hash"]], hexes(["later"]))

    def test_a_count_ends_it(self):
        names = [f"{self.ns}{i}" for i in range(5)]
        self.put(names)
        lines = self.ctl("--json", "watch", self.ns, "--snapshot", "--count", "3").splitlines()
        self.assertEqual([json.loads(line)["event"] for line in lines], ["stored"] * 3)

    def test_it_goes_on_behind_an_event(self):
        watch = self.listening()
        names = [f"{self.ns}{i}" for i in range(3)]
        self.put(names[:2])
        first = watch.event()
        watch.end(signal.SIGTERM)
        self.put(names[2:])
        lines = self.ctl("--json", "watch", self.ns, "--resume", first["resume"], "--count", "2").splitlines()
        self.assertEqual([json.loads(line)["hash"] for line in lines], hexes(names[1:]))

    def test_another_life_of_the_node_is_a_gap(self):
        lines = self.ctl("--json", "watch", self.ns, "--resume", "00ff:7", "--count", "1").splitlines()
        self.assertEqual([(e["event"], e["lost"]) for e in map(json.loads, lines)], [("gap", None)])
        self.assertIn("an unknown number of events were lost",
                      self.ctl("watch", self.ns, "--resume", "00ff:7", "--count", "1"))

    def test_what_was_lost_is_said(self):
        watch = self.listening()
        self.put(["first"])
        first = watch.event()
        watch.end(signal.SIGTERM)
        self.open("small", groups=[self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=1, shards=1,
                                                    shard_bytes=1)])
        blocks = [(f"tiny{i}", b"x") for i in range(LOG_EVENTS // 2 + 1)]
        self.call(self.cache.Put, self.put_parts(blocks, ns="small", sums=False))
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace="small", hashes=[block_hash(n) for n, _ in blocks]))
        gap = json.loads(self.ctl("--json", "watch", self.ns, "--resume", first["resume"], "--count", "1"))
        self.assertEqual(gap["event"], "gap")
        self.assertGreaterEqual(gap["lost"], 2)
        self.assertRegex(self.ctl("watch", self.ns, "--resume", first["resume"], "--count", "1"),
                         r"gap +\d+ events were lost: whoever keeps a list takes a new --snapshot")

    def test_without_a_namespace_it_is_all_of_the_tenant(self):
        self.open("other")
        watch = Follower(self, "--json", "watch", "--snapshot")
        watch.until(lambda event: event["event"] == "snapshot_end")
        self.put(["o"], ns="other")
        self.put(["mine"])
        self.assertEqual([watch.event()["namespace"] for _ in range(2)], ["other", self.ns])

    def test_a_healthy_watch_outlives_the_timeout(self):
        watch = self.listening("--timeout", "2s")
        time.sleep(4.5)  # what is shown not to matter is time itself
        self.put([self.ns])
        self.assertEqual(watch.event()["event"], "stored")

    def test_bad_watches_are_refused(self):
        self.refused("nowhere", arguments=["watch", "nowhere"], code=1)
        self.refused("--count", "below the least, 1", arguments=["watch", "--count", "0"])
        self.refused("--count", "whole number", arguments=["watch", "--count", "x"])
        for bad in ("7", "xy:7", "00:x", "00:7:1", ":7", "00:-1"):
            self.refused("--resume", bad, "EPOCH:NUMBER", arguments=["watch", self.ns, "--resume", bad])
        self.refused("--resume", "--snapshot", arguments=["watch", self.ns, "--snapshot", "--resume", "00:7"])
        watch = self.listening()
        self.put([self.ns])
        epoch = watch.event()["resume"].split(":")[0]
        self.refused("resume_after", arguments=["watch", self.ns, "--resume", f"{epoch}:{2**62}"])


class LostNodeTest(WatchCase):
    def setUp(self):
        self.daemon = quarryd.Quarryd(grpc_case.BINARY)
        self.addCleanup(self.daemon.kill)
        self.ns = "lost"
        channel = grpc_case.grpc.insecure_channel(self.daemon.grpc, options=[("grpc.enable_http_proxy", 0)])
        self.addCleanup(channel.close)
        self.cache = grpc_case.STUBS.cache_pb2_grpc.CacheStub(channel)
        self.open(self.ns)

    def is_lost_by(self, watch, loss):
        self.put(["last"])
        resume = watch.event()["resume"]
        loss()
        code, error = watch.end()
        self.assertEqual((code, error.count("\n")), (3, 1), error)
        self.assertIn("quarryctl: watch: ", error)
        self.assertIn(f"--resume {resume} goes on behind", error)

    def test_a_killed_node_ends_a_watch_with_3(self):
        self.is_lost_by(self.listening(), self.daemon.kill)

    def test_so_does_one_that_answers_no_more(self):
        self.is_lost_by(self.listening("--timeout", "2s"), lambda: self.daemon.send(signal.SIGSTOP))

    def test_and_one_that_has_drained(self):
        self.is_lost_by(self.listening(), lambda: self.daemon.send(signal.SIGTERM))

    def test_a_node_that_never_answers_costs_the_timeout(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            server = f"127.0.0.1:{silent.getsockname()[1]}"
            self.refused(server, "--timeout", arguments=["watch", "--timeout", "200ms"], server=server, code=3)

    def test_top_waits_for_a_node_to_come_back_and_counts_from_0(self):
        for i in range(20):
            self.put([f"{i}"])
        top = Follower(self, "--json", "top", "--interval", "200ms")
        self.assertEqual(top.event()["blocks"], 20)
        address = self.daemon.grpc
        self.daemon.kill()
        top.until(lambda record: "error" in record)
        self.daemon = quarryd.Quarryd(grpc_case.BINARY, quarryd.private_flags(listen_grpc=address))
        self.addCleanup(self.daemon.kill)
        record = top.until(lambda record: "error" not in record)
        self.assertEqual(record["blocks"], 0)
        self.assertEqual(record["put_bytes_per_second"], 0)
        # But for its own questions.
        rates = {o["operation"]: o["requests_per_second"] for o in record["operations"]}
        self.assertEqual((rates["put"], rates["get"]), (0, 0))
        self.assertEqual(top.end(signal.SIGTERM), (0, ""))


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
