#!/usr/bin/python3
"""quarry.v1.Cache against a running daemon, through stubs generated for Python.

Usage: grpc_cache_test.py QUARRYD [unittest arguments]
"""

import sys
import threading

import grpc

import grpc_case
from grpc_case import BLOCK_BYTES, CHUNK_BYTES, GrpcCase, block_hash, chunk_sums, payload

INVALID = grpc.StatusCode.INVALID_ARGUMENT


class NamespaceTest(GrpcCase):
    def test_the_same_spec_opens_the_same_namespace(self):
        self.assertEqual(self.open(self.ns).namespace.id, self.open(self.ns).namespace.id)

    def test_another_spec_is_refused_and_the_fields_are_named(self):
        request = self.C.OpenNamespaceRequest(namespace=self.ns, spec=self.spec(kv_dtype="fp8", layers=2))
        failure = self.refused(grpc.StatusCode.FAILED_PRECONDITION, self.cache.OpenNamespace, request)
        self.assertEqual({v.subject for v in failure.violations}, {"kv_dtype", "layers"})

    def test_another_spec_opens_a_sibling_on_request(self):
        opened = self.open(self.ns, kv_dtype="fp8", on_mismatch=self.C.OpenNamespaceRequest.ON_MISMATCH_SIBLING)
        self.assertEqual(list(opened.differing_fields), ["kv_dtype"])
        self.assertTrue(opened.namespace.name.startswith(self.ns) and opened.namespace.name != self.ns)

    def test_bad_specs_and_names_are_refused_by_field(self):
        def opening(**override):
            return self.C.OpenNamespaceRequest(namespace="other", spec=self.spec(**override))
        self.refuses_field("spec.hash_bytes", self.cache.OpenNamespace, opening(hash_bytes=65))
        self.refuses_field("spec.model", self.cache.OpenNamespace, opening(model=""))
        self.refuses_field("spec.groups[0].kind", self.cache.OpenNamespace, opening(groups=[self.T.GroupSpec()]))
        self.refuses_field("name", self.cache.OpenNamespace, self.C.OpenNamespaceRequest(spec=self.spec()))

    def test_an_unknown_namespace_is_not_found(self):
        for method, request in ((self.cache.Match, self.C.MatchRequest(namespace="none")),
                                (self.cache.Lookup, self.C.LookupRequest(namespace="none")),
                                (self.cache.Get, self.C.GetRequest(namespace="none")),
                                (self.cache.Touch, self.C.TouchRequest(namespace="none")),
                                (self.cache.Remove, self.C.RemoveRequest(namespace="none")),
                                (self.cache.List, self.C.ListRequest(namespace="none")),
                                (self.cache.Watch, self.C.WatchRequest(namespace="none"))):
            info = self.refused(grpc.StatusCode.NOT_FOUND, method, request)
            self.assertIn("none", info.description)


class BytesTest(GrpcCase):
    def test_what_is_put_comes_back_byte_for_byte_with_its_sums(self):
        names = [f"{self.ns}{i}" for i in range(5)]
        outcomes = self.put(names)
        self.assertEqual({o.kind for o in outcomes}, {self.C.PutResponse.Outcome.KIND_STORED})
        data, sums = self.get(names)
        for name in names:
            self.assertEqual(data[name], payload(name))
            self.assertEqual(sums[name], chunk_sums(payload(name)))

    def test_a_payload_larger_than_a_piece_comes_in_order(self):
        # A piece and a part of one; a group of its own size.
        group = self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=16, shards=1, shard_bytes=4 << 20)
        self.open("large", groups=[group])
        data = payload("large", (3 << 20) + 12345)
        self.call(self.cache.Put, self.put_parts([("large", data)], ns="large", piece=1 << 20))
        self.assertEqual(self.get(["large"], ns="large")[0]["large"], data)

    def test_any_size_of_pieces_will_do(self):
        for piece in (1_000, CHUNK_BYTES, BLOCK_BYTES):
            name = f"{self.ns}{piece}"
            self.assertEqual(self.put([name], piece=piece)[0].kind, self.C.PutResponse.Outcome.KIND_STORED)
            self.assertEqual(self.get([name])[0][name], payload(name))

    def test_a_range_is_that_part_with_the_sums_of_the_chunks_it_touches(self):
        self.put([self.ns])
        data, sums = self.get([self.ns], offset=CHUNK_BYTES + 7, bytes=CHUNK_BYTES)
        self.assertEqual(data[self.ns], payload(self.ns)[CHUNK_BYTES + 7:2 * CHUNK_BYTES + 7])
        self.assertEqual(sums[self.ns], chunk_sums(payload(self.ns))[1:3])
        data, _ = self.get([self.ns], offset=BLOCK_BYTES - 3)
        self.assertEqual(data[self.ns], payload(self.ns)[-3:])

    def test_a_range_beyond_the_payload_is_out_of_range(self):
        self.put([self.ns])
        for offset, size in ((BLOCK_BYTES, 0), (BLOCK_BYTES - 3, 4), (0, BLOCK_BYTES + 1), (2**64 - 1, 2)):
            request = self.C.GetRequest(namespace=self.ns, hashes=[block_hash(self.ns)], offset=offset, bytes=size)
            self.refuses_field("offset", self.cache.Get, request, grpc.StatusCode.OUT_OF_RANGE)

    def test_misses_come_among_hits_with_their_causes(self):
        self.put([f"{self.ns}0", f"{self.ns}2"])
        names = [f"{self.ns}{i}" for i in range(3)]
        data, _ = self.get(names)
        self.assertEqual(data[names[1]], self.T.MISS_CAUSE_NEVER_STORED)
        self.assertEqual([data[names[0]], data[names[2]]], [payload(names[0]), payload(names[2])])

    def test_a_second_put_of_a_block_is_told_that_it_is_there(self):
        self.put([self.ns])
        self.assertEqual(self.put([self.ns])[0].kind, self.C.PutResponse.Outcome.KIND_ALREADY_THERE)

    def test_a_block_of_two_shards_is_complete_with_the_second(self):
        self.open("shards", shards=2)
        for shard in (0, 1):
            self.assertEqual(self.has(["s"], ns="shards"), [False])
            self.call(self.cache.Put, self.put_parts([("s", payload(f"s{shard}"))], ns="shards", shard=shard))
        self.assertEqual(self.has(["s"], ns="shards"), [True])
        for shard in (0, 1):
            self.assertEqual(self.get(["s"], ns="shards", shard=shard)[0]["s"], payload(f"s{shard}"))

    def test_bytes_that_do_not_fit_their_sums_are_refused(self):
        parts = list(self.put_parts([(self.ns, payload(self.ns))]))
        parts[3].data = b"x" + parts[3].data[1:]
        outcome = self.call(self.cache.Put, iter(parts)).outcomes[0]
        self.assertEqual(outcome.reason, self.T.REFUSAL_REASON_CHECKSUM)
        self.assertEqual(self.has([self.ns]), [False])
        self.assertEqual(self.put([self.ns])[0].kind, self.C.PutResponse.Outcome.KIND_STORED, "it can be offered again")

    def test_a_put_that_ends_early_publishes_what_was_whole_and_nothing_else(self):
        parts = list(self.put_parts([("whole", payload("whole")), ("part", payload("part"))]))
        description = self.refuses_field("data", self.cache.Put, iter(parts[:-1]))
        self.assertIn(str(BLOCK_BYTES), description)
        self.assertEqual(self.has(["whole", "part"]), [True, False])
        self.assertEqual(self.get(["part"])[0]["part"], self.T.MISS_CAUSE_REFUSED)

    def test_a_put_that_is_cancelled_gives_its_memory_back(self):
        before = self.call(self.cache.Stats, self.C.StatsRequest()).used_bytes
        parts = list(self.put_parts([(self.ns, payload(self.ns))]))
        stalled = threading.Event()

        def stall():
            yield from parts[:-1]
            stalled.wait(60)
        call = self.cache.Put.future(stall(), timeout=60)
        grpc_case.quarryd.wait_until(
            lambda: self.call(self.cache.Stats, self.C.StatsRequest()).used_bytes > before, "a slot is reserved")
        call.cancel()
        stalled.set()
        grpc_case.quarryd.wait_until(
            lambda: self.call(self.cache.Stats, self.C.StatsRequest()).used_bytes == before, "the slot is free again")
        self.assertEqual(self.has([self.ns]), [False])

    def test_messages_out_of_place_are_refused_by_field(self):
        header = self.C.PutRequest(header=self.C.PutHeader(namespace=self.ns))

        def shard(**override):
            fields = dict(hash=block_hash("x"), bytes=100)
            fields.update(override)
            return self.C.PutRequest(shard=self.C.PutShard(**fields))
        data = self.C.PutRequest(data=b"x" * 101)
        for field, parts in (("shard", [shard()]), ("header", []), ("header", [header, header]), ("data", [data]),
                             ("data", [header, shard(), data]), ("shard", [header, shard(), shard()]),
                             ("part", [self.C.PutRequest()]),
                             ("shard.hash", [header, shard(hash=b"x" * 31)]),
                             ("shard.parent", [header, shard(parent=b"x" * 33)]),
                             ("shard.bytes", [header, shard(bytes=0)]),
                             ("shard.bytes", [header, shard(bytes=BLOCK_BYTES + 1)]),
                             ("shard.group", [header, shard(group=1)]),
                             ("shard.shard", [header, shard(shard=1)]),
                             ("shard.chunk_sums", [header, shard(chunk_sums=[1, 2])])):
            self.refuses_field(field, self.cache.Put, iter(parts))

    def test_bad_gets_are_refused_by_field(self):
        def getting(**override):
            return self.C.GetRequest(namespace=self.ns, **{"hashes": [block_hash("x")], **override})
        for field, request in (("hashes", getting(hashes=[])), ("hashes[0]", getting(hashes=[b"short"])),
                               ("group", getting(group=1)), ("shard", getting(shard=1)),
                               ("hashes", getting(hashes=[block_hash("x")] * 65537))):
            self.refuses_field(field, self.cache.Get, request)
        self.refused(grpc.StatusCode.NOT_FOUND, self.cache.Get, getting(lease=b"no such lease"))

    def test_a_get_that_is_not_read_can_be_cancelled(self):
        names = [f"{self.ns}{i}" for i in range(100)]
        self.put(names)
        call = self.cache.Get(self.C.GetRequest(namespace=self.ns, hashes=[block_hash(n) for n in names] * 20),
                              timeout=60)
        next(call)
        call.cancel()
        self.assertEqual(self.get(names[:1])[0][names[0]], payload(names[0]), "the node serves on")


class QueryTest(GrpcCase):
    def match(self, names, **fields):
        chain = self.C.MatchChain(hashes=[block_hash(n) for n in names])
        return self.call(self.cache.Match, self.C.MatchRequest(namespace=self.ns, chains=[chain], **fields))

    def test_a_match_sees_what_was_put_over_grpc(self):
        names = [f"{self.ns}{i}" for i in range(4)]
        self.put(names[:3])
        matched = self.match(names, lease_ms=10_000)
        self.assertEqual(matched.usable_tokens, 3 * 16)
        self.assertEqual((matched.first_miss, matched.first_miss_block), (self.T.MISS_CAUSE_NEVER_STORED, 3))
        self.assertEqual(self.get(names[:1], lease=matched.lease)[0][names[0]], payload(names[0]))

    def test_who_opts_out_finds_and_stores_nothing_and_moves_no_counter(self):
        self.put([self.ns])
        counted = ("match_hashes", "match_hits", "misses", "refusals", "stored_shards")
        before = self.call(self.cache.Stats, self.C.StatsRequest())
        matched = self.match([self.ns, "other"], no_load=True)
        self.assertEqual((matched.usable_tokens, matched.first_miss), (0, self.T.MISS_CAUSE_OPTED_OUT))
        self.assertEqual(list(matched.chains[0].states), [self.T.BLOCK_STATE_ABSENT] * 2)
        outcomes = self.put(["fresh", self.ns], no_store=True)
        self.assertEqual([o.reason for o in outcomes], [self.T.REFUSAL_REASON_OPTED_OUT] * 2)
        after = self.call(self.cache.Stats, self.C.StatsRequest())
        for field in counted:
            self.assertEqual(getattr(after, field), getattr(before, field), field)
        self.assertEqual(self.has(["fresh"]), [False])

    def test_a_lookup_tells_that_a_block_is_not_for_ssds(self):
        self.put(["kept"], no_ssd=True)
        self.put(["other"])
        blocks = self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace=self.ns, hashes=[block_hash("kept"), block_hash("other")])).blocks
        self.assertEqual([block.no_ssd for block in blocks], [True, False])

    def test_a_lookup_tells_of_each_block_and_counts_nothing(self):
        names = [f"{self.ns}{i}" for i in range(3)]
        self.put(names[:2])
        self.match(names[:1], lease_ms=10_000)
        self.get(names[:2])  # so that there is a rate to estimate from
        before = self.call(self.cache.Stats, self.C.StatsRequest())
        blocks = self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace=self.ns, hashes=[block_hash(n) for n in names])).blocks
        after = self.call(self.cache.Stats, self.C.StatsRequest())
        self.assertEqual([b.state for b in blocks],
                         [self.T.BLOCK_STATE_DRAM, self.T.BLOCK_STATE_DRAM, self.T.BLOCK_STATE_ABSENT])
        self.assertEqual([b.depth for b in blocks[:2]], [0, 1])
        self.assertEqual([b.bytes for b in blocks], [BLOCK_BYTES, BLOCK_BYTES, 0])
        self.assertEqual([b.shards_there for b in blocks], [1, 1, 0])
        self.assertEqual([b.leases for b in blocks], [1, 0, 0])
        self.assertGreater(blocks[0].estimated_load_us, 0)
        self.assertEqual((blocks[2].miss, blocks[2].estimated_load_us), (self.T.MISS_CAUSE_NEVER_STORED, 0))
        self.assertEqual(list(before.misses), list(after.misses))
        self.assertEqual((before.match_hits, before.leases), (after.match_hits, after.leases))

    def test_what_is_removed_is_gone_though_leased_and_the_get_says_so(self):
        names = [f"{self.ns}{i}" for i in range(3)]
        self.put(names)
        lease = self.match(names, lease_ms=60_000).lease
        removed = self.call(self.cache.Remove, self.C.RemoveRequest(
            namespace=self.ns, hashes=[block_hash(n) for n in names[1:]] + [block_hash("never there")]))
        self.assertEqual(removed.removed, 2)
        data, _ = self.get(names, lease=lease)
        self.assertEqual(data, {names[0]: payload(names[0]), names[1]: self.T.MISS_CAUSE_RETIRED,
                                names[2]: self.T.MISS_CAUSE_RETIRED})
        self.assertEqual(self.put(names[1:2])[0].kind, self.C.PutResponse.Outcome.KIND_STORED)
        self.assertEqual(self.get(names[1:2])[0][names[1]], payload(names[1]))

    def test_a_touched_chain_outlives_others(self):
        self.put(["old"])
        self.call(self.cache.Touch, self.C.TouchRequest(namespace=self.ns, hashes=[block_hash("old")]))
        self.assertEqual(self.has(["old"]), [True])

    def list_all(self, page_size):
        token, names, pages = b"", [], 0
        while True:
            page = self.call(self.cache.List, self.C.ListRequest(namespace=self.ns, page_size=page_size,
                                                                 page_token=token))
            self.assertLessEqual(len(page.blocks), page_size)
            names += [block.hash for block in page.blocks]
            pages += 1
            token = page.next_page_token
            if not token:
                return names, pages

    def test_a_listing_has_every_block_once_whatever_the_page(self):
        names = [f"{self.ns}{i}" for i in range(50)]
        self.put(names)
        for page_size in (1, 7, 50, 10_000):
            listed, pages = self.list_all(page_size)
            self.assertEqual(sorted(listed), sorted(block_hash(n) for n in names))
            self.assertGreaterEqual(pages, 50 // page_size)

    def test_bad_listings_and_lookups_are_refused_by_field(self):
        self.refuses_field("page_size", self.cache.List, self.C.ListRequest(namespace=self.ns, page_size=10_001))
        self.refuses_field("page_token", self.cache.List, self.C.ListRequest(namespace=self.ns, page_token=b"x"))
        # A token that no page gave: an end of its own, and no harm.
        self.call(self.cache.List, self.C.ListRequest(namespace=self.ns, page_token=b"\xff" * 8))
        for method, request in ((self.cache.Lookup, self.C.LookupRequest), (self.cache.Touch, self.C.TouchRequest),
                                (self.cache.Remove, self.C.RemoveRequest)):
            self.refuses_field("hashes", method, request(namespace=self.ns))
            self.refuses_field("hashes[1]", method,
                               request(namespace=self.ns, hashes=[block_hash("x"), b"y" * 33]))
            self.refuses_field("group", method, request(namespace=self.ns, group=7, hashes=[block_hash("x")]))


if __name__ == "__main__":
    grpc_case.main(sys.argv)
