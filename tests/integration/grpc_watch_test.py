#!/usr/bin/python3
"""Cache.Watch against a running daemon: numbers, snapshots, resuming, gaps.

Usage: grpc_watch_test.py QUARRYD [unittest arguments]
"""

import sys

import grpc

import grpc_case
import quarryd
from grpc_case import BLOCK_BYTES, GrpcCase, block_hash

# What the daemon's log of events keeps; a watcher further behind than that has a gap.
LOG_EVENTS = 16 << 10


class Watch:
    """A watch of a namespace, read event by event."""

    def __init__(self, case, stub=None, **fields):
        fields.setdefault("namespace", case.ns)
        self._kinds = case.C.WatchEvent
        self.call = (stub or case.cache).Watch(case.C.WatchRequest(**fields), timeout=quarryd.DEADLINE_S)
        self.call.initial_metadata()  # it listens now
        self.epoch = None
        self._events = []

    def next(self):
        while not self._events:
            message = next(self.call)
            assert self.epoch in (None, message.epoch)
            self.epoch = message.epoch
            self._events = list(message.events)
        return self._events.pop(0)

    def until(self, kind):
        """All events up to the first of that kind, which is the last."""
        events = [self.next()]
        while events[-1].kind != kind:
            events.append(self.next())
        return events

    def close(self):
        self.call.cancel()


class WatchCase(GrpcCase):
    def watch(self, **fields):
        watch = Watch(self, **fields)
        self.addCleanup(watch.close)
        return watch

    def remove(self, names):
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace=self.ns, hashes=[block_hash(n) for n in names]))


class EvictionTest(WatchCase):
    # Room for a few hundred blocks only.
    flags = {"memory": "160MiB"}

    def test_evictions_are_told_with_their_cause(self):
        watch = self.watch()
        self.put([f"{self.ns}{i}" for i in range(1000)], sums=False)
        removed = watch.until(self.C.WatchEvent.KIND_REMOVED)[-1]
        self.assertEqual(removed.cause, self.T.MISS_CAUSE_EVICTED)


class WatchTest(WatchCase):
    def test_what_is_stored_and_removed_is_told_in_order_with_rising_numbers(self):
        watch = self.watch()
        names = [f"{self.ns}{i}" for i in range(3)]
        self.put(names)
        self.remove(names[1:2])
        events = [watch.next() for _ in range(4)]
        E = self.C.WatchEvent
        self.assertEqual([e.kind for e in events], [E.KIND_STORED] * 3 + [E.KIND_REMOVED])
        self.assertEqual([e.hash for e in events], [block_hash(n) for n in names + names[1:2]])
        self.assertEqual([e.parent for e in events[:3]], [b"", block_hash(names[0]), block_hash(names[1])])
        self.assertEqual([e.depth for e in events[:3]], [0, 1, 2])
        self.assertEqual({(e.namespace, e.bytes, e.group) for e in events}, {(self.ns, BLOCK_BYTES, 0)})
        self.assertEqual({e.tier for e in events[:3]}, {self.T.BLOCK_STATE_DRAM})
        self.assertEqual(events[3].cause, self.T.MISS_CAUSE_RETIRED)
        numbers = [e.number for e in events]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_a_block_of_two_shards_is_told_once_when_it_is_complete(self):
        self.open("shards", shards=2)
        watch = self.watch(namespace="shards")
        for shard in (0, 1):
            self.call(self.cache.Put, self.put_parts([("s", b"x" * BLOCK_BYTES)], ns="shards", shard=shard))
        event = watch.next()
        self.assertEqual((event.hash, event.bytes), (block_hash("s"), 2 * BLOCK_BYTES))

    def test_one_namespace_or_all_of_the_tenant(self):
        self.open("other")
        one, all_of_them = self.watch(), self.watch(namespace="")
        self.put(["o"], ns="other")
        self.put(["mine"])
        self.assertEqual(one.next().hash, block_hash("mine"))
        self.assertEqual([all_of_them.next().namespace for _ in range(2)], ["other", self.ns])

    def test_a_snapshot_is_what_is_there_and_what_follows_comes_behind_it(self):
        names = [f"{self.ns}{i}" for i in range(20)]
        self.put(names)
        self.remove(names[:5])
        watch = self.watch(snapshot=True)
        *snapshot, _ = watch.until(self.C.WatchEvent.KIND_SNAPSHOT_END)
        self.assertEqual(sorted(e.hash for e in snapshot), sorted(block_hash(n) for n in names[5:]))
        self.assertEqual({e.number for e in snapshot}, {0})
        self.put(["later"])
        event = watch.next()
        self.assertEqual(event.hash, block_hash("later"))
        self.assertGreater(event.number, 0)

    def test_a_snapshot_of_nothing_ends_at_once(self):
        self.assertEqual(self.watch(snapshot=True).next().kind, self.C.WatchEvent.KIND_SNAPSHOT_END)

    def test_resuming_goes_on_behind_the_event_named(self):
        watch = self.watch()
        names = [f"{self.ns}{i}" for i in range(4)]
        self.put(names[:2])
        first = watch.next()
        watch.close()
        self.put(names[2:])
        again = self.watch(resume_epoch=watch.epoch, resume_after=first.number)
        self.assertEqual([again.next().hash for _ in range(3)], [block_hash(n) for n in names[1:]])

    def test_resuming_from_another_life_of_the_daemon_is_a_gap(self):
        watch = self.watch(resume_epoch=b"another", resume_after=5)
        self.assertEqual(watch.next().kind, self.C.WatchEvent.KIND_GAP)
        self.put([self.ns])
        self.assertEqual(watch.next().hash, block_hash(self.ns))

    def test_who_is_too_far_behind_is_told_how_much_is_lost(self):
        watch = self.watch()
        self.put(["first"])
        first = watch.next()
        watch.close()
        self.open("small", groups=[self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=1, shards=1,
                                                    shard_bytes=1)])
        blocks = [(f"tiny{i}", b"x") for i in range(LOG_EVENTS // 2 + 1)]
        self.call(self.cache.Put, self.put_parts(blocks, ns="small", sums=False))
        self.call(self.cache.Remove, self.C.RemoveRequest(namespace="small", hashes=[block_hash(n) for n, _ in blocks]))
        again = self.watch(resume_epoch=watch.epoch, resume_after=first.number)
        gap = again.next()
        self.assertEqual(gap.kind, self.C.WatchEvent.KIND_GAP)
        self.assertGreaterEqual(gap.lost, 2)
        self.put(["behind"])
        self.assertEqual(again.next().hash, block_hash("behind"))

    def test_a_watcher_that_does_not_read_costs_the_node_nothing(self):
        # Its side of the connection buffers 64 KiB and no more.
        narrow = self.open_channel(("grpc.http2.lookahead_bytes", 64 << 10), ("grpc.http2.bdp_probe", 0))
        idle = self.watch(stub=grpc_case.STUBS.cache_pb2_grpc.CacheStub(narrow), namespace="")
        watch = self.watch()
        self.open("small", groups=[self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=1, shards=1,
                                                    shard_bytes=1)])
        before = self.resident_bytes()
        for turn in range(2):
            blocks = [(f"tiny{turn}/{i}", b"x") for i in range(LOG_EVENTS)]
            self.call(self.cache.Put, self.put_parts(blocks, ns="small", sums=False))
            self.call(self.cache.Remove,
                      self.C.RemoveRequest(namespace="small", hashes=[block_hash(n) for n, _ in blocks]))
        self.assertLess(self.resident_bytes() - before, self.most_growth())
        self.put(["seen"])
        while watch.next().hash != block_hash("seen"):
            pass
        self.assertEqual(idle.until(self.C.WatchEvent.KIND_GAP)[-1].kind, self.C.WatchEvent.KIND_GAP)

    @staticmethod
    def most_growth():
        with open(grpc_case.BINARY, "rb") as binary:
            program = binary.read()
        # Sanitizers keep freed memory for a while, and have memory beside memory.
        return 1 << 30 if b"__asan_init" in program or b"__tsan_init" in program else 48 << 20

    def resident_bytes(self):
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10

    def test_bad_watches_are_refused_by_field(self):
        self.refuses_field("snapshot", self.cache.Watch,
                           self.C.WatchRequest(namespace=self.ns, snapshot=True, resume_epoch=b"x"))
        watch = self.watch()
        self.put([self.ns])
        watch.next()
        self.refuses_field("resume_after", self.cache.Watch, self.C.WatchRequest(
            namespace=self.ns, resume_epoch=watch.epoch, resume_after=2**63))
        self.refused(grpc.StatusCode.NOT_FOUND, self.cache.Watch, self.C.WatchRequest(namespace="none"))


if __name__ == "__main__":
    grpc_case.main(sys.argv)
