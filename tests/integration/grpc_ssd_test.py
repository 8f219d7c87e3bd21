#!/usr/bin/env python3
"""The gRPC services on a node with an SSD tier.

usage: grpc_ssd_test.py QUARRYD
"""

import sys
import tempfile
import unittest

import grpc

import grpc_case
import quarryd
from grpc_case import block_hash, payload

# Twice what the arena holds.
BLOCKS = 1000
AT_ONCE = 20


class GrpcSsdTest(grpc_case.GrpcCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="quarry-test-", dir="/var/tmp")
        cls.addClassCleanup(directory.cleanup)
        cls.flags = {"ssd-dir": directory.name, "ssd-size": "3GiB"}
        super().setUpClass()

    def fill(self):
        """Puts BLOCKS blocks, no faster than the SSD takes them, and returns their names."""
        names = [f"{self.ns}/{i}" for i in range(BLOCKS)]
        for first in range(0, BLOCKS, AT_ONCE):
            self.put(names[first:first + AT_ONCE])
            quarryd.wait_until(self.has_room, "room for the next blocks")
        return names

    def has_room(self):
        samples = self.daemon.samples()
        arena = samples['quarry_arena_bytes{tier="dram"}']
        # A 32nd of it is for what comes from the SSD.
        room = arena * 31 / 32 - samples['quarry_used_bytes{tier="dram"}']
        return room + samples["quarry_ready_bytes"] >= AT_ONCE * grpc_case.BLOCK_BYTES * 1.1

    def lookup(self, names):
        return self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace=self.ns, hashes=[block_hash(name) for name in names])).blocks

    def test_what_memory_has_no_room_for_comes_back_byte_for_byte(self):
        names = self.fill()
        states = [block.state for block in self.lookup(names)]
        self.assertGreater(states.count(self.T.BLOCK_STATE_SSD), BLOCKS // 4)
        for first in range(0, BLOCKS, 100):
            got, _ = self.get(names[first:first + 100])
            for name in names[first:first + 100]:
                self.assertEqual(got[name], payload(name), name)
        cold = next(block for block in self.lookup(names) if block.state == self.T.BLOCK_STATE_SSD)
        self.assertGreater(cold.estimated_load_us, 0)

    def test_warm_brings_blocks_to_memory(self):
        names = self.fill()[:10]
        self.assertEqual({block.state for block in self.lookup(names)}, {self.T.BLOCK_STATE_SSD})
        answer = self.call(self.admin.Warm, self.A.WarmRequest(
            namespace=self.ns, hashes=[block_hash(name) for name in names]))
        self.assertEqual(answer.in_dram, len(names))
        quarryd.wait_until(lambda: {b.state for b in self.lookup(names)} == {self.T.BLOCK_STATE_DRAM}, "warm blocks")

    def test_a_match_brings_what_a_get_will_follow_for(self):
        names = self.fill()[:10]
        request = self.C.MatchRequest(namespace=self.ns, lease_ms=60_000, prefetch_shards=[0], chains=[
            self.C.MatchChain(hashes=[block_hash(name) for name in names])])
        self.assertEqual(set(self.call(self.cache.Match, request).chains[0].states), {self.T.BLOCK_STATE_SSD})
        quarryd.wait_until(lambda: {b.state for b in self.lookup(names)} == {self.T.BLOCK_STATE_DRAM}, "warm blocks")
        request.prefetch_shards.append(7)
        self.refuses_field("prefetch_shards[1]", self.cache.Match, request)

    def test_a_get_of_cold_blocks_can_be_cancelled(self):
        names = self.fill()
        stream = self.cache.Get(self.C.GetRequest(namespace=self.ns, hashes=[block_hash(name) for name in names]))
        next(stream)
        stream.cancel()
        with self.assertRaises(grpc.RpcError):
            for _ in stream:
                pass
        got, _ = self.get(names[:1])
        self.assertEqual(got[names[0]], payload(names[0]))

    def test_removed_blocks_are_gone_on_the_ssd_too(self):
        names = self.fill()[:10]
        self.call(self.cache.Remove, self.C.RemoveRequest(
            namespace=self.ns, hashes=[block_hash(name) for name in names]))
        got, _ = self.get(names)
        self.assertEqual({got[name] for name in names}, {self.T.MISS_CAUSE_RETIRED})

    def test_a_flushed_namespace_is_empty_and_can_be_filled_again(self):
        names = self.fill()
        self.call(self.admin.FlushNamespace, self.A.FlushNamespaceRequest(namespace=self.ns))
        got, _ = self.get(names[:10])
        self.assertTrue(all(isinstance(value, int) for value in got.values()), got)
        self.put(names[:10])
        got, _ = self.get(names[:10])
        self.assertEqual(got[names[3]], payload(names[3]))


if __name__ == "__main__":
    grpc_case.main(sys.argv)
