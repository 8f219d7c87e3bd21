#!/usr/bin/python3
"""quarryctl watch, and what the commands that follow a node do when it goes away.

Usage: quarryctl_watch_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import json
import signal
import socket
import sys
import time

import grpc_case
import quarryctl_case
import quarryd
from grpc_case import BLOCK_BYTES, block_hash
from quarryctl_case import ControlCase, Follower, hexes

# What the daemon's log of events keeps.
LOG_EVENTS = 16 << 10


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


if __name__ == "__main__":
    quarryctl_case.BINARY = sys.argv.pop(2)
    grpc_case.main(sys.argv)
