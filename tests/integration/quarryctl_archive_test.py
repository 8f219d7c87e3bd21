#!/usr/bin/python3
"""quarryctl export and import, against a running quarryd.

Usage: quarryctl_archive_test.py QUARRYD QUARRYCTL [unittest arguments]
"""

import json
import os
import signal
import stat
import subprocess
import sys
import threading

import grpc_case
import quarryctl_case
import quarryd
from grpc_case import BLOCK_BYTES, block_hash, payload
from quarryctl_case import ControlCase, hexes


class ArchiveCase(ControlCase):
    def stats(self):
        """What an import would change."""
        stats = self.call(self.cache.Stats, self.C.StatsRequest())
        return (stats.blocks, stats.stored_shards, stats.used_bytes, sorted(n.name for n in stats.namespaces),
                [o.requests for o in stats.operations if o.operation == "put"])

    def put_some(self, count):
        names = [f"{self.ns}{i}" for i in range(count)]
        self.put(names)
        return names

    def export(self, ns=None):
        """Path of a new file, and what export says of it."""
        path = self.file("export", None)
        return path, self.json("export", ns or self.ns, path)

    def flush(self):
        self.ctl("namespaces", "flush", self.ns, "--yes")

    def bytes_of(self, path):
        with open(path, "rb") as file:
            return file.read()


class ArchiveTest(ArchiveCase):
    def test_what_was_exported_comes_back_byte_for_byte(self):
        names = self.put_some(40)
        path, said = self.export()
        self.assertEqual((said["blocks"], said["shards"], said["payload_bytes"], said["vanished_blocks"]),
                         (40, 40, 40 * BLOCK_BYTES, 0))
        depths = [b["depth"] for b in self.json("lookup", self.ns, *hexes(names))["blocks"]]
        self.flush()
        self.assertEqual(self.has(names), [False] * 40)
        said = self.json("import", path)
        self.assertEqual((said["namespace"], said["shards"], said["stored"], said["stored_bytes"], said["refused"]),
                         (self.ns, 40, 40, 40 * BLOCK_BYTES, 0))
        self.assertEqual(self.get(names)[0], {name: payload(name) for name in names})
        self.assertEqual([b["depth"] for b in self.json("lookup", self.ns, *hexes(names))["blocks"]], depths)
        again = self.json("import", path)
        self.assertEqual((again["stored"], again["already_there"]), (0, 40))

    def test_several_groups_and_shards_come_back_on_another_node(self):
        window = self.T.GroupSpec(kind=self.T.GROUP_KIND_WINDOW, tokens_per_block=16, window_tokens=64, shards=1,
                                  shard_bytes=70_000)
        full = self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=16, shards=3, shard_bytes=BLOCK_BYTES)
        spec = self.open("groups", groups=[full, window]).namespace.spec
        for shard in range(3):
            blocks = [(f"g{i}", payload(f"g{i}/{shard}", 150_000 + i)) for i in range(5)]
            self.call(self.cache.Put, self.put_parts(blocks, ns="groups", shard=shard))
        parts = list(self.put_parts([("w", b"w" * 70_000)], ns="groups"))
        parts[1].shard.group = 1
        self.call(self.cache.Put, iter(parts))
        path, said = self.export("groups")
        self.assertEqual((said["blocks"], said["shards"]), (6, 16))
        with quarryd.Quarryd(grpc_case.BINARY) as other:
            self.assertEqual(self.json("import", path, server=other.grpc)["stored"], 16)
            with grpc_case.grpc.insecure_channel(other.grpc, options=[("grpc.enable_http_proxy", 0)]) as channel:
                here, self.cache = self.cache, grpc_case.STUBS.cache_pb2_grpc.CacheStub(channel)
                try:
                    for shard in range(3):
                        got = self.get([f"g{i}" for i in range(5)], ns="groups", shard=shard)[0]
                        self.assertEqual(got, {f"g{i}": payload(f"g{i}/{shard}", 150_000 + i) for i in range(5)})
                    self.assertEqual(self.get(["w"], ns="groups", group=1)[0], {"w": b"w" * 70_000})
                    self.assertEqual(self.call(self.cache.Stats, self.C.StatsRequest()).namespaces[0].spec, spec)
                finally:
                    self.cache = here

    def test_a_namespace_without_blocks_has_a_file_too(self):
        path, said = self.export()
        self.assertEqual((said["blocks"], said["shards"]), (0, 0))
        self.assertRegex(self.ctl("import", path), r"(?m)^shards in the file +0$")

    def test_it_may_be_stored_under_another_name(self):
        self.put_some(2)
        path, _ = self.export()
        said = self.json("import", path, "--name", "another")
        self.assertEqual((said["namespace"], said["stored"]), ("another", 2))
        self.assertEqual(self.has([f"{self.ns}{i}" for i in range(2)], ns="another"), [True, True])

    def test_another_spec_under_the_name_is_refused_by_its_fields(self):
        self.put_some(1)
        path, _ = self.export()
        self.open("taken", kv_dtype="float16")
        before = self.stats()
        self.refused("kv_dtype", arguments=["import", path, "--name", "taken"])
        self.assertEqual(self.stats()[:4], before[:4])

    def test_incomplete_blocks_are_left_out_and_counted(self):
        self.open("halves", shards=2)
        self.call(self.cache.Put, self.put_parts([("half", b"x" * BLOCK_BYTES)], ns="halves"))
        _, said = self.export("halves")
        self.assertEqual((said["blocks"], said["incomplete_blocks"]), (0, 1))

    def test_the_file_is_replaced_when_it_is_complete_and_private(self):
        self.put_some(1)
        path = self.file("export", b"what was there before")
        self.ctl("export", self.ns, path)
        self.assertEqual(self.bytes_of(path)[:8], b"QRYBLKS\n")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["export"])

    def test_a_failed_export_leaves_what_was_there(self):
        path = self.file("export", b"what was there before")
        self.refused("nowhere", arguments=["export", "nowhere", path], code=1)
        self.assertEqual((self.bytes_of(path), os.listdir(os.path.dirname(path))),
                         (b"what was there before", ["export"]))
        self.refused("FILE", "/none/file", arguments=["export", self.ns, "/none/file"])
        self.refused("FILE", "not a file", arguments=["export", self.ns, "/dev/null"])
        self.refused("FILE", arguments=["export", self.ns])

    def test_a_full_disk_leaves_nothing(self):
        self.put_some(20)
        path = self.file("export", None)
        # A limit on the size of files stands for the end of the disk.
        result = subprocess.run(
            ["bash", "-c", 'ulimit -f 1000; trap "" XFSZ; exec "$@"', "bash", quarryctl_case.BINARY, "--server",
             self.daemon.grpc, "export", self.ns, path], env=quarryd.clean_environment(), capture_output=True,
            timeout=quarryd.DEADLINE_S, check=False)
        self.assertEqual((result.returncode, result.stdout), (3, b""), result.stderr)
        self.assertIn(b"File too large", result.stderr)
        self.assertEqual(os.listdir(os.path.dirname(path)), [])


class LimitsTest(ArchiveCase):
    # Room for some 480 blocks.
    flags = {"memory": "160MiB"}

    def test_the_ends_of_an_imported_chain_leave_first(self):
        names = self.put_some(300)
        path, _ = self.export()
        self.flush()
        self.assertEqual(self.json("import", path)["stored"], 300)
        self.put([f"flood{i}" for i in range(330)])
        left = self.has(names)
        kept = left.count(True)
        self.assertTrue(0 < kept < 300, kept)
        self.assertEqual(left, [True] * kept + [False] * (300 - kept))


class HalfWayTest(ArchiveCase):
    flags = {"memory": "192MiB"}

    def half_way(self):
        """An export that was stopped before its file was complete, and the folder of that."""
        path = self.file("export", None)
        folder = os.path.dirname(path)
        export = subprocess.Popen(
            [quarryctl_case.BINARY, "--server", self.daemon.grpc, "--json", "export", self.ns, path],
            env=quarryd.clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(export.wait)
        self.addCleanup(export.kill)
        while not os.listdir(folder) and export.poll() is None:
            pass
        export.send_signal(signal.SIGSTOP)
        return export, folder

    def test_a_signal_leaves_nothing(self):
        self.put_some(300)
        export, folder = self.half_way()
        self.assertNotIn("export", os.listdir(folder))
        export.send_signal(signal.SIGTERM)
        export.send_signal(signal.SIGCONT)
        output, error = export.communicate(timeout=quarryd.DEADLINE_S)
        self.assertEqual((export.returncode, output), (3, b""), error)
        self.assertIn(b"interrupted: no file was written", error)
        self.assertEqual(os.listdir(folder), [])

    def test_blocks_that_vanish_are_counted_and_left_out(self):
        names = self.put_some(300)
        export, folder = self.half_way()
        self.assertNotIn("export", os.listdir(folder))
        self.ctl("rm", self.ns, *hexes(names[-10:]))
        export.send_signal(signal.SIGCONT)
        output, error = export.communicate(timeout=quarryd.DEADLINE_S)
        self.assertEqual((export.returncode, error), (0, b""))
        said = json.loads(output)
        self.assertEqual((said["blocks"], said["vanished_blocks"], said["shards"]), (290, 10, 290))
        self.flush()
        self.assertEqual(self.json("import", os.path.join(folder, "export"))["stored"], 290)
        self.assertEqual(self.has(names), [True] * 290 + [False] * 10)


class RefusalTest(ArchiveCase):
    def test_what_the_node_refuses_is_counted_by_reason(self):
        names = self.put_some(3)
        path, _ = self.export()
        self.flush()
        finish = threading.Event()
        self.addCleanup(finish.set)

        def half_way():
            parts = list(self.put_parts([(names[0], payload(names[0]))]))
            yield from parts[:-1]
            finish.wait(quarryd.DEADLINE_S)
            yield parts[-1]

        under_way = self.cache.Put.future(half_way())
        quarryd.wait_until(lambda: self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace=self.ns, hashes=[block_hash(names[0])])).blocks[0].state == self.T.BLOCK_STATE_IN_FLIGHT,
                           "a put under way")
        said = self.json("import", path, code=1)
        self.assertEqual((said["stored"], said["refused"], said["refusals"]),
                         (2, 1, [{"reason": "in_flight", "count": 1}]))
        finish.set()
        self.assertEqual([o.kind for o in under_way.result(quarryd.DEADLINE_S).outcomes],
                         [self.C.PutResponse.Outcome.KIND_STORED])


class BadFilesTest(ArchiveCase):
    def setUp(self):
        super().setUp()
        self.put_some(3)
        self.good = self.bytes_of(self.export()[0])
        self.flush()
        quarryd.wait_until(lambda: self.stats()[0] == 0, "the memory of what was flushed")

    def changes_nothing(self, content, *parts):
        before = self.stats()
        path = self.file("bad", content)
        self.refused("FILE", path, *parts, arguments=["import", path])
        self.assertEqual(self.stats(), before)

    def test_a_truncated_file_stores_nothing(self):
        for kept in (0, 7, 8, 15, 100, len(self.good) // 2, len(self.good) - 1):
            self.changes_nothing(self.good[:kept], "cut off" if kept >= 8 else "not a file that quarryctl export")

    def test_a_changed_file_stores_nothing(self):
        for at in (20, 300, len(self.good) // 2, len(self.good) - 20):
            changed = bytearray(self.good)
            changed[at] ^= 1
            self.changes_nothing(bytes(changed), "changed")
        self.changes_nothing(self.good + b"x", "more behind the end")

    def test_a_foreign_file_stores_nothing(self):
        self.changes_nothing(b"PNG" * 1000, "not a file that quarryctl export")
        newer = self.good[:8] + (2).to_bytes(4, "little") + self.good[12:]
        self.changes_nothing(newer, "written by a newer quarryctl: format version 2, this one reads 1")

    def test_what_is_no_file_is_named(self):
        self.refused("FILE", "/none/file", "No such file", arguments=["import", "/none/file"])
        folder = self.folder()
        self.refused("FILE", folder, "is not a file", arguments=["import", folder])
        self.refused("FILE", arguments=["import"])

    def test_bad_names_are_named_with_their_bounds(self):
        path = self.file("good", self.good)
        self.refused("--name", "1 byte", arguments=["import", path, "--name", ""])
        before = self.stats()
        self.refused("name", "256", arguments=["import", path, "--name", "n" * 257])
        self.assertEqual(self.stats(), before)

    def test_the_file_is_judged_before_the_node_is_asked(self):
        path = self.file("bad", self.good[:-1])
        self.refused("cut off", arguments=["import", path], server="127.0.0.1:1")


class DrainedTest(ArchiveCase):
    def test_a_drained_node_takes_nothing(self):
        self.put_some(1)
        path, _ = self.export()
        self.ctl("drain")
        self.refused("drain", arguments=["import", path], code=3)
        self.daemon.send(signal.SIGKILL)


if __name__ == "__main__":
    quarryctl_case.BINARY = sys.argv.pop(2)
    grpc_case.main(sys.argv)
