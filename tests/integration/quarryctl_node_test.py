#!/usr/bin/python3
"""quarryctl's commands that ask a node, as a user runs them, against a running quarryd.

Usage: quarryctl_node_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import os
import socket
import sys

import grpc_case
import quarryctl_case
from grpc_case import BLOCK_BYTES, block_hash, payload
from quarryctl_case import ControlCase, hexes


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

    def test_a_time_to_live_is_set_and_listed(self):
        self.assertEqual(self.json("namespaces", "ttl", self.ns, "1h"), {"namespace": self.ns, "ttl_seconds": 3600})
        self.assertEqual(self.row()["ttl_seconds"], 3600)
        self.assertRegex(self.ctl("namespaces", "ttl", self.ns, "none"), r"(?m)^time to live +none$")
        self.assertIsNone(self.row()["ttl_seconds"])
        for bad in ("soon", "0", "1us"):
            self.refused("TIME", arguments=["namespaces", "ttl", self.ns, bad])
        self.refused("ttl_ms", "1000", arguments=["namespaces", "ttl", self.ns, "20ms"])
        self.refused("nowhere", arguments=["namespaces", "ttl", "nowhere", "1h"], code=1)

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


class BlocksTest(ControlCase):
    def put_some(self, count):
        names = [f"{self.ns}{i}" for i in range(count)]
        self.put(names)
        return names

    def test_a_match_says_how_far_the_prompt_is_cached(self):
        names = self.put_some(2)
        asked = hexes([*names, "none"])
        match = self.json("match", self.ns, *asked)
        self.assertEqual((match["usable_tokens"], match["first_miss_block"], match["first_miss"]),
                         (32, 2, "never_stored"))
        self.assertEqual([(b["hash"], b["state"], b["usable"]) for b in match["blocks"]],
                         [(asked[0], "dram", True), (asked[1], "dram", True), (asked[2], "absent", False)])
        self.assertRegex(self.ctl("match", self.ns, *asked[:2]), r"(?m)^first miss, block +none$")
        # The engine has all of it already; nothing at all is there.
        self.ctl("match", self.ns, *asked[:2], "--local-tokens", "32", code=1)
        self.assertEqual(self.json("match", self.ns, asked[2], code=1)["usable_tokens"], 0)

    def test_hashes_come_from_a_file_or_standard_input(self):
        lines = "\n".join([*hexes(self.put_some(3)), "", ""]).encode()
        for source, stdin in ((self.file("hashes", lines), b""), ("-", lines)):
            match = self.json("match", self.ns, "--hashes-file", source, stdin=stdin)
            self.assertEqual(match["usable_tokens"], 48)

    def test_an_explanation_names_the_first_missing_block_and_changes_no_counter(self):
        names = self.put_some(3)
        self.ctl("rm", self.ns, *hexes(names[1:2]))
        before = self.call(self.cache.Stats, self.C.StatsRequest())
        explained = self.json("explain", self.ns, *hexes(names), code=1)
        after = self.call(self.cache.Stats, self.C.StatsRequest())
        self.assertEqual((explained["first_missing"], explained["hash"], explained["cause"],
                          explained["there_behind_it"]), (1, hexes(names)[1], "retired", 1))
        self.assertIn("removed", explained["why"])
        self.assertIn("store it again", explained["advice"])
        self.assertEqual((before.match_hashes, list(before.misses)), (after.match_hashes, list(after.misses)))
        self.assertRegex(self.ctl("explain", self.ns, *hexes(["none"]), code=1), r"(?m)^cause +never_stored$")
        self.assertIsNone(self.json("explain", self.ns, *hexes(names[:1]))["first_missing"])

    def test_a_lookup_tells_of_each_block(self):
        names = self.put_some(1)
        there, missing = self.json("lookup", self.ns, *hexes([*names, "none"]), code=1)["blocks"]
        self.assertEqual((there["state"], there["bytes"], there["shards_there"], there["miss"]),
                         ("dram", BLOCK_BYTES, 1, None))
        self.assertEqual((missing["state"], missing["miss"]), ("absent", "never_stored"))
        self.assertIn(hexes(names)[0], self.ctl("lookup", self.ns, *hexes(names)))

    def test_a_listing_has_every_block_once_over_several_pages(self):
        self.open("tiny", groups=[self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=16, shards=1,
                                                   shard_bytes=8)])
        names = [f"{self.ns}{i}" for i in range(2500)]
        self.call(self.cache.Put, self.put_parts([(n, b"12345678") for n in names], ns="tiny"))
        listed = self.json("ls", "tiny")["blocks"]
        self.assertEqual(sorted(b["hash"] for b in listed), sorted(hexes(names)))
        self.assertEqual({b["bytes"] for b in listed}, {8})
        heading, *rows = self.ctl("ls", "tiny").splitlines()
        self.assertEqual(heading.split()[-1], "HASH")
        self.assertEqual(sorted(row.split()[-1] for row in rows), sorted(hexes(names)))
        self.assertEqual(self.json("ls", self.ns), {"blocks": []})

    def test_what_is_put_comes_back_byte_for_byte(self):
        data = payload(self.ns)
        first, second = hexes(["first", "second"])
        self.assertEqual(self.json("put", self.ns, first, self.file("data", data))["outcome"], "stored")
        self.assertEqual(self.json("put", self.ns, first, "-", stdin=data)["outcome"], "already_there")
        self.assertRegex(self.ctl("put", self.ns, second, "-", "--parent", first, "--depth", "1", stdin=data[:1000]),
                         r"(?m)^outcome +stored$")
        self.assertEqual(self.json("lookup", self.ns, second)["blocks"][0]["depth"], 1)
        output = self.file("output", None)
        self.assertEqual(self.json("get", self.ns, first, "--output", output), {"file": output, "bytes": len(data)})
        with open(output, "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(self.run_ctl("get", self.ns, second, "-o", "-").stdout, data[:1000])

    def test_a_miss_says_why_and_writes_nothing(self):
        output = self.file("output", None)
        self.refused("never_stored", arguments=["get", self.ns, *hexes(["none"]), "--output", output], code=1)
        self.assertFalse(os.path.exists(output))

    def test_removed_blocks_are_gone(self):
        names = self.put_some(3)
        self.assertEqual(self.json("rm", self.ns, *hexes([*names[1:], "none"])), {"removed": 2})
        self.assertEqual(self.has(names), [True, False, False])
        self.assertRegex(self.ctl("rm", self.ns, *hexes(names[1:]), code=1), r"(?m)^removed +0$")

    def test_a_pin_holds_until_it_is_ended(self):
        names = self.put_some(2)
        pin = self.json("pin", self.ns, *hexes([*names, "none"]))
        self.assertEqual(pin["pinned"], 2)
        self.assertEqual(self.json("lookup", self.ns, *hexes(names))["blocks"][0]["leases"], 1)
        self.ctl("unpin", pin["pin"])
        self.assertEqual(self.json("lookup", self.ns, *hexes(names))["blocks"][0]["leases"], 0)
        self.refused("pin", arguments=["unpin", pin["pin"]], code=1)
        self.assertIsNone(self.json("pin", self.ns, *hexes(["none"]), code=1)["pin"])

    def test_warming_says_what_is_in_dram(self):
        names = self.put_some(2)
        self.assertEqual(self.json("warm", self.ns, *hexes(names)), {"blocks": 2, "in_dram": 2})
        self.assertRegex(self.ctl("warm", self.ns, *hexes([*names, "none"]), code=1), r"(?m)^in DRAM +2$")


class BadBlocksTest(ControlCase):
    BY_HASHES = ["match", "explain", "lookup", "rm", "pin", "warm"]

    def test_an_unknown_namespace_is_a_no_that_names_it(self):
        good = block_hash("x").hex()
        for command in self.BY_HASHES:
            self.refused("nowhere", arguments=[command, "nowhere", good], code=1)
        self.refused("nowhere", arguments=["ls", "nowhere"], code=1)
        self.refused("nowhere", arguments=["get", "nowhere", good, "-o", "-"], code=1)
        self.refused("nowhere", arguments=["put", "nowhere", good, "-"], stdin=b"x", code=1)
        self.refused(self.ns, arguments=["lookup", self.ns, good, "--tenant", "nobody"], code=1)

    def test_what_is_no_hash_is_named(self):
        good = block_hash("x").hex()
        for command in self.BY_HASHES:
            for bad in ("xyz", good[:-1], good[:-1] + "g"):
                self.refused("HASH 2", bad, "hex", arguments=[command, self.ns, good, bad])
            self.refused("hashes[1]", "32", arguments=[command, self.ns, good, good[:-2]])
            self.refused("HASH", "none given", arguments=[command, self.ns])
            self.refused("--hashes-file", "/none", arguments=[command, self.ns, "--hashes-file", "/none"])
            self.refused("-:2", "zz", arguments=[command, self.ns, "--hashes-file", "-"],
                         stdin=f"{good}\nzz\n".encode())
        for command in (["get", self.ns, "xyz", "-o", "-"], ["put", self.ns, "xyz", "-"]):
            self.refused("HASH", "xyz", arguments=command)
        self.refused("--parent", arguments=["put", self.ns, good, "-", "--parent", "xyz"])
        self.refused("PIN", arguments=["unpin", "xyz"])

    def test_more_hashes_than_one_call_takes_are_refused(self):
        lines = f"{block_hash('x').hex()}\n".encode() * 65_537
        self.refused("65536", arguments=["lookup", self.ns, "--hashes-file", "-"], stdin=lines)

    def test_other_bad_values_are_named(self):
        good = block_hash("x").hex()
        self.refused("--group", "15", arguments=["lookup", self.ns, good, "--group", "16"])
        self.refused("group", arguments=["lookup", self.ns, good, "--group", "1"])
        self.refused("shard", arguments=["get", self.ns, good, "-o", "-", "--shard", "1"])
        self.refused("/none/file", arguments=["put", self.ns, good, "/none/file"])
        self.refused("shard.bytes", arguments=["put", self.ns, good, "-"], stdin=b"x" * (BLOCK_BYTES + 1))
        self.refused("shard.bytes", arguments=["put", self.ns, good, "-"])
        self.put(["x"])
        self.refused("--output", "/none/file", arguments=["get", self.ns, good, "--output", "/none/file"])
        self.refused("--output", arguments=["get", self.ns, good])


class UnreachableTest(ControlCase):
    COMMANDS = [["status"], ["health"], ["stats"], ["namespaces"], ["config"], ["drain"], ["log-level", "info"],
                ["ls", "n"], ["get", "n", "00", "-o", "-"], ["put", "n", "00", "-"], ["unpin", "00"], ["watch", "n"],
                ["top"], ["top", "--once"], ["report"], ["export", "n", "/none/file"],
                *[[command, "n", "00"] for command in BadBlocksTest.BY_HASHES]]

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
    quarryctl_case.BINARY = sys.argv.pop(2)
    grpc_case.main(sys.argv)
