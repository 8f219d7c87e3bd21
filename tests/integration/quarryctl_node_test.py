#!/usr/bin/python3
"""quarryctl's commands that ask a node, as a user runs them, against a running quarryd.

Usage: quarryctl_node_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import json
import socket
import subprocess
import sys

import grpc_case
import quarryd
from grpc_case import BLOCK_BYTES, GrpcCase, block_hash

BINARY = ""


class ControlCase(GrpcCase):
    def run_ctl(self, *arguments, server=None, stdin=None):
        """What came of it; stdout and stderr as bytes."""
        return subprocess.run([BINARY, "--server", server or self.daemon.grpc, *arguments],
                              env=quarryd.clean_environment(), input=stdin or b"", capture_output=True,
                              timeout=quarryd.DEADLINE_S, check=False)

    def ctl(self, *arguments, code=0, **options):
        """The text that it prints."""
        result = self.run_ctl(*arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (code, b""), result.stdout)
        return result.stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.ctl("--json", *arguments, **options))

    def refused(self, *parts, arguments, code=2, **options):
        """An exit code, nothing on stdout, and one line on stderr that has all the parts."""
        result = self.run_ctl(*arguments, **options)
        error = result.stderr.decode()
        self.assertEqual((result.returncode, result.stdout), (code, b""), error)
        self.assertEqual(error.count("\n"), 1, error)
        for part in ("quarryctl: ", *parts):
            self.assertIn(part, error)

    def match(self, names):
        chain = self.C.MatchChain(hashes=[block_hash(n) for n in names])
        self.call(self.cache.Match, self.C.MatchRequest(namespace=self.ns, chains=[chain]))


class NodeTest(ControlCase):
    def test_status_is_the_node_at_a_glance(self):
        self.put([self.ns])
        self.match([self.ns])
        status, stats = self.json("status"), self.call(self.cache.Stats, self.C.StatsRequest())
        self.assertEqual((status["version"], status["server"]), (stats.version, self.daemon.grpc))
        for field in ("arena_bytes", "used_bytes", "leased_bytes", "blocks", "sessions"):
            self.assertEqual(status[field], getattr(stats, field), field)
        self.assertEqual(status["hit_ratio"], stats.match_hits / stats.match_hashes)
        self.assertTrue(status["ready"])
        self.assertIn("memory", {part["part"] for part in status["parts"]})
        text = self.ctl("status")
        self.assertRegex(text, r"(?m)^ready +yes$")
        self.assertRegex(text, r"(?m)^hit ratio +\d+\.\d%$")

    def test_health_is_yes_part_by_part(self):
        health = self.json("health")
        self.assertEqual((health["healthy"], health["ready"]), (True, True))
        self.assertTrue(all(part["healthy"] and part["detail"] for part in health["parts"]))
        self.assertRegex(self.ctl("health"), r"(?m)^memory +yes ")

    def test_stats_have_misses_by_cause_refusals_and_size_classes(self):
        self.put([self.ns])
        parts = list(self.put_parts([("bad", b"x" * BLOCK_BYTES)]))
        parts[2].data = b"y" + parts[2].data[1:]
        self.call(self.cache.Put, iter(parts))
        self.match([self.ns, "none"])
        said, stats = self.json("stats"), self.call(self.cache.Stats, self.C.StatsRequest())
        for field in ("arena_bytes", "payload_bytes", "index_bytes", "complete_blocks", "match_hashes", "match_hits",
                      "stored_shards", "stored_bytes", "evicted_blocks", "leases", "draining"):
            self.assertEqual(said[field], getattr(stats, field), field)
        causes = {row["cause"]: row["count"] for row in said["misses"]}
        self.assertGreaterEqual(causes["never_stored"], 1)
        self.assertEqual({row["reason"]: row["count"] for row in said["refusals"]}["checksum"], 1)
        self.assertEqual([c["slot_bytes"] for c in said["size_classes"]], [c.slot_bytes for c in stats.size_classes])
        self.assertIn(self.ns, {n["name"] for n in said["namespaces"]})
        self.assertRegex(self.ctl("stats"), r"(?m)^never_stored +\d+$")

    def test_the_config_in_force_and_one_setting_of_it(self):
        settings = {row["name"]: row for row in self.json("config")["settings"]}
        self.assertEqual((settings["memory"]["value"], settings["memory"]["given"]), ("192MiB", True))
        self.assertFalse(settings["max-sessions"]["given"])
        only = self.json("config", "memory")["settings"]
        self.assertEqual([row["name"] for row in only], ["memory"])
        self.refused("no-such-setting", arguments=["config", "no-such-setting"], code=1)

    def test_the_log_level_is_set_and_what_it_was_is_told(self):
        self.assertEqual(self.json("log-level", "debug"), {"before": "info", "level": "debug"})
        self.assertEqual(self.json("config", "log-level")["settings"][0]["value"], "debug")
        self.assertRegex(self.ctl("log-level", "info"), r"(?m)^before +debug$")
        self.refused("LEVEL", "loud", arguments=["log-level", "loud"])


class NamespacesTest(ControlCase):
    def row(self, *arguments):
        return next((r for r in self.json("namespaces", *arguments)["namespaces"] if r["name"] == self.ns), None)

    def test_namespaces_are_listed_with_what_they_hold_and_saved(self):
        names = [f"{self.ns}{i}" for i in range(3)]
        self.put(names)
        self.match([*names, "none"])
        row = self.row()
        self.assertEqual((row["blocks"], row["payload_bytes"], row["hit_ratio"], row["saved_tokens"]),
                         (3, 3 * BLOCK_BYTES, 0.75, 48))
        self.assertEqual((row["engine"], row["model"], row["kv_dtype"]), ("test", "m", "bfloat16"))
        self.assertIn("full, 16 tokens a block, 1 shard of at most", row["groups"])
        text = self.ctl("namespaces")
        self.assertRegex(text, rf"(?m) {self.ns} .* 75.0% +48$")
        self.assertIsNone(self.row("--tenant", "nobody"))

    def test_a_flush_empties_and_a_retirement_forgets(self):
        self.put([self.ns])
        self.assertEqual(self.json("namespaces", "flush", self.ns, "--yes"),
                         {"namespace": self.ns, "dropped_blocks": 1})
        self.assertEqual(self.row()["blocks"], 0)
        self.put([self.ns])
        self.assertRegex(self.ctl("namespaces", "retire", self.ns, "--yes"), r"(?m)^dropped blocks +1$")
        self.assertIsNone(self.row())

    def test_nothing_is_emptied_without_yes(self):
        self.put([self.ns])
        for verb in ("flush", "retire"):
            self.refused("--yes", self.ns, arguments=["namespaces", verb, self.ns])
        self.assertEqual(self.row()["blocks"], 1)

    def test_a_namespace_that_is_not_known_is_a_no(self):
        for verb in ("flush", "retire"):
            self.refused("nowhere", arguments=["namespaces", verb, "nowhere", "--yes"], code=1)
        self.refused("NAMESPACE", arguments=["namespaces", "flush", "--yes"])


class UnreachableTest(ControlCase):
    COMMANDS = [["status"], ["health"], ["stats"], ["namespaces"], ["config"], ["drain"], ["log-level", "info"]]

    def test_a_server_that_is_not_there_is_named(self):
        # Bound but not listening: nobody else can take the port meanwhile.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            server = f"127.0.0.1:{taken.getsockname()[1]}"
            for command in self.COMMANDS:
                self.refused(server, command[0], arguments=command, server=server, code=3)

    def test_a_server_that_does_not_answer_costs_the_timeout(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            server = f"127.0.0.1:{silent.getsockname()[1]}"
            self.refused(server, "--timeout", arguments=["status", "--timeout", "200ms"], server=server, code=3)


class DrainTest(ControlCase):
    def test_a_drained_node_is_not_healthy(self):
        self.assertEqual(self.json("drain"), {"draining": True})
        health = self.json("health", code=1)
        self.assertEqual((health["healthy"], health["ready"]), (False, False))
        self.assertFalse(self.json("status")["ready"])
        self.assertEqual(self.daemon.stop()[0], 0)


if __name__ == "__main__":
    BINARY = sys.argv.pop(2)
    grpc_case.main(sys.argv)
