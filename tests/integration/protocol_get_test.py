#!/usr/bin/python3
"""Gets and fetches at the wire: the exact bytes or a typed miss, under credit, deadlines,
cancels and leases.

Usage: protocol_get_test.py QUARRYD [unittest arguments]
"""

import protocol_case
import quarryd
import raw_session
from raw_session import hash_of, hashes_of, model_spec, payload_of

SIZE = 300_000  # five chunks, the last one short
CHUNK = 65536


class GetTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("gets", model_spec(shard_bytes=SIZE, exact=False))
        self.blocks = hashes_of(self.id(), 8)
        self.payloads = [payload_of(block, SIZE) for block in self.blocks]

    def stored_blocks(self):
        self.assertEqual(self.one.put(self.handle, self.blocks, self.payloads), [self.stored()] * len(self.blocks))

    def arrived(self, request):
        """The items that have arrived whole, once all that was started before has: another get
        of the session moves behind them on the only stream."""
        self.assertEqual(self.one.get(self.handle, self.blocks[:1]), self.payloads[:1])
        return {item for (of, item), got in self.one.items.items() if of == request and got.whole}

    # ---------------------------------------------------------------- bytes

    def test_ranges_are_of_the_payloads_bytes(self):
        self.stored_blocks()
        for offset, size in ((0, 0), (0, 1), (1, 1), (CHUNK - 1, 2), (CHUNK, CHUNK), (CHUNK - 1, CHUNK + 2),
                             (100, 3 * CHUNK), (4 * CHUNK + 5, 0), (SIZE - 1, 1), (1, SIZE - 1)):
            with self.subTest(offset=offset, size=size):
                end = offset + size if size else SIZE
                self.assertEqual(self.one.get(self.handle, self.blocks, offset=offset, size=size),
                                 [payload[offset:end] for payload in self.payloads])

    def test_a_range_beyond_a_shorter_payload_is_dropped(self):
        block = hash_of(self.id(), "short")
        self.one.put(self.handle, [block], [b"short"])
        self.stored_blocks()
        both = [block, self.blocks[0]]
        self.assertEqual(self.one.get(self.handle, both, offset=5, size=10), ["dropped", self.payloads[0][5:15]])
        self.assertEqual(self.one.get(self.handle, both, offset=2, size=3), [b"ort", self.payloads[0][2:5]])

    def test_each_item_of_a_get_ends_by_itself(self):
        self.stored_blocks()
        absent = ("miss", self.cause("NEVER_STORED"))
        asked = [hash_of("absent"), self.blocks[1], self.blocks[1], hash_of("absent"), self.blocks[0]]
        self.assertEqual(self.one.get(self.handle, asked),
                         [absent, self.payloads[1], self.payloads[1], absent, self.payloads[0]])

    def test_several_data_streams_share_a_get(self):
        for _ in range(3):
            self.one.add_stream()
        self.stored_blocks()
        self.assertEqual(self.one.get(self.handle, self.blocks * 4), self.payloads * 4)

    def test_sessions_over_the_unix_socket(self):
        path = f"/tmp/quarry-protocol-{self.daemon.pid}.sock"
        daemon = quarryd.Quarryd(protocol_case.BINARY, quarryd.private_flags(socket=path))
        self.addCleanup(daemon.kill)
        session = raw_session.Session(path)
        handle = session.open("unix")
        self.assertEqual(session.put(handle, self.blocks), [self.stored()] * 8)
        self.assertEqual(session.get(handle, self.blocks), [payload_of(block) for block in self.blocks])
        session.close()
        self.assertEqual(daemon.stop()[0], 0, daemon.log())

    # ---------------------------------------------------------------- in flight

    def in_flight(self):
        """Another session whose put of the first block is half-way."""
        other, handle = self.opened("gets", model_spec(shard_bytes=SIZE, exact=False))
        request = other.start_put(handle, self.blocks[:1], (), size=SIZE)
        other.wait(lambda: other.pulls, "the pull")
        first, rest = raw_session.data_frames(request, 0, self.payloads[0])
        other.data[0].sendall(first)
        return other, request, rest

    def test_a_block_whose_put_is_half_way_is_a_typed_miss(self):
        other, request, rest = self.in_flight()
        self.assert_miss(self.one, self.handle, self.blocks[0], self.cause("IN_FLIGHT"))
        reply = self.one.match(self.handle, self.blocks[:1])
        self.assertEqual(reply.chains[0].states, bytes([raw_session.types.BLOCK_STATE_IN_FLIGHT]))
        other.data[0].sendall(rest)
        self.assertEqual(other.end_put(request), [self.stored()])
        self.assertEqual(self.one.get(self.handle, self.blocks[:1]), self.payloads[:1])

    def test_a_get_that_waits_has_the_bytes_of_the_put(self):
        other, _, rest = self.in_flight()
        get = self.one.start_get(self.handle, self.blocks[:2], wait_in_flight=True)
        self.one.body("view", get_view=raw_session.T.GetView())
        self.assertFalse(self.one.items)
        other.data[0].sendall(rest)
        self.assertEqual(self.one.end_get(get, 2), [self.payloads[0], ("miss", self.cause("NEVER_STORED"))])

    def test_a_get_that_waits_learns_that_the_put_failed(self):
        other, request, _ = self.in_flight()
        get = self.one.start_get(self.handle, self.blocks[:1], wait_in_flight=True)
        self.one.body("view", get_view=raw_session.T.GetView())
        other.send(request, cancel=raw_session.T.Cancel())
        self.assertEqual(self.one.end_get(get, 1), [("miss", self.cause("REFUSED"))])

    def test_a_waiting_get_can_be_cancelled_and_has_a_deadline(self):
        other, request, rest = self.in_flight()
        get = self.one.start_get(self.handle, self.blocks[:1], wait_in_flight=True)
        self.one.send(get, cancel=raw_session.T.Cancel())
        self.assertEqual(self.one.end_get(get, 1), ["dropped"])
        get = self.one.start_get(self.handle, self.blocks[:1], wait_in_flight=True, deadline_ms=100)
        self.assertEqual(self.one.end_get(get, 1), ["dropped"])
        gone, handle = self.opened("gets", model_spec(shard_bytes=SIZE, exact=False))
        gone.start_get(handle, self.blocks[:1], wait_in_flight=True)
        gone.body("view", get_view=raw_session.T.GetView())
        gone.close()
        other.data[0].sendall(rest)
        self.assertEqual(other.end_put(request), [self.stored()])

    # ---------------------------------------------------------------- credit and ends

    def test_no_more_is_sent_than_the_credit_allows(self):
        self.stored_blocks()
        get = self.one.start_get(self.handle, self.blocks, credit_bytes=SIZE + 1)
        self.assertEqual(self.arrived(get), {0, 1})
        # 599,999 bytes beyond the credit have been started already.
        self.one.send(get, credit=raw_session.T.Credit(bytes=SIZE - 1))
        self.assertEqual(self.arrived(get), {0, 1})
        self.one.send(get, credit=raw_session.T.Credit(bytes=1))
        self.assertEqual(self.arrived(get), {0, 1, 2})
        for small in range(8):
            self.one.send(get, credit=raw_session.T.Credit(bytes=1000))
            self.assertEqual(self.arrived(get), {0, 1, 2}, small)
        self.one.send(get, credit=raw_session.T.Credit(bytes=2**64 - 1))
        self.one.send(get, credit=raw_session.T.Credit(bytes=2**64 - 1))
        self.assertEqual(self.one.end_get(get, 8), self.payloads)

    def test_what_waits_for_credit_is_dropped_by_a_cancel_or_the_deadline(self):
        self.stored_blocks()
        expected = [self.payloads[0], *["dropped"] * 7]
        get = self.one.start_get(self.handle, self.blocks, credit_bytes=1)
        self.assertEqual(self.arrived(get), {0})
        self.one.send(get, cancel=raw_session.T.Cancel())
        self.assertEqual(self.one.end_get(get, 8), expected)
        get = self.one.start_get(self.handle, self.blocks, credit_bytes=1, deadline_ms=1500)
        self.assertEqual(self.one.end_get(get, 8), expected)

    def test_a_thousand_cancels_in_a_row(self):
        blocks = hashes_of(self.id(), 2)
        payloads = [payload_of(block, 20_000) for block in blocks]
        self.one.put(self.handle, blocks, payloads)
        gets = []
        for _ in range(1000):
            gets.append(self.one.start_get(self.handle, blocks))
            self.one.send(gets[-1], cancel=raw_session.T.Cancel())
        for get in gets:
            for got, payload in zip(self.one.end_get(get, 2), payloads):
                self.assertIn(got, (payload, "dropped"))
        self.assertEqual(self.one.get(self.handle, blocks), payloads)

    def test_a_client_killed_mid_get_leaves_nothing(self):
        self.stored_blocks()
        for _ in range(5):
            other, handle = self.opened("gets", model_spec(shard_bytes=SIZE, exact=False), receive_buffer=1 << 16)
            other.start_get(handle, self.blocks * 100)
            other.body("get_progress", 7, get=raw_session.T.Get(
                handle=handle, runs=[raw_session.T.GetRun(hashes=hash_of("absent"))]))
            other.data[0].recv(100_000)
            other.close()
        self.assertEqual(self.one.get(self.handle, self.blocks), self.payloads)

    def test_a_get_may_outlive_its_lease(self):
        self.stored_blocks()
        lease = self.one.match(self.handle, self.blocks, lease_ms=60_000).lease
        get = self.one.start_get(self.handle, self.blocks, lease=lease, credit_bytes=1)
        self.assertEqual(self.arrived(get), {0})
        self.end_by_time(self.one, [lease])
        self.one.send(get, credit=raw_session.T.Credit(bytes=2**40))
        self.assertEqual(self.one.end_get(get, 8), self.payloads)

    def test_a_good_block_survives_a_report_of_corruption(self):
        self.stored_blocks()
        get = self.one.start_get(self.handle, self.blocks)
        self.assertEqual(self.one.end_get(get, 8), self.payloads)
        before = self.metrics()
        self.one.send(get, delivered=raw_session.T.Delivered(items=8, bytes=8 * SIZE, corrupt_items=[0, 7, 8, 2**31]))
        self.one.send(get, delivered=raw_session.T.Delivered(items=1, bytes=SIZE, corrupt_items=[1]))
        self.assertEqual(self.one.get(self.handle, self.blocks), self.payloads)
        after = self.metrics()
        self.assertEqual(after["quarry_delivered_items_total"] - before["quarry_delivered_items_total"], 9)
        self.assertEqual(after["quarry_corrupt_items_total"] - before["quarry_corrupt_items_total"], 5)
        self.assertEqual(after['quarry_misses_total{cause="corrupt"}'], 0)


class FetchTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("fetches", model_spec(shards=2))
        self.blocks = hashes_of(self.id(), 6)
        for shard in (0, 1):  # of the first four
            self.one.put(self.handle, self.blocks[:4], shard=shard)

    def fetch(self, shards=(0,), lease_ms=0, **fields):
        """The match reply, and the items that came: {item: bytes}."""
        T = raw_session.T
        match = T.Match(handle=self.handle, chains=[T.ChainPart(hashes=b"".join(self.blocks))], lease_ms=lease_ms)
        request = self.one.send(fetch_prefix=T.FetchPrefix(match=match, shards=shards, **fields))
        reply = self.one.answer(request)
        self.assertEqual(reply.WhichOneof("body"), "match_reply", reply)
        progress = self.one.answer(request).get_progress
        self.assertTrue(progress.done)
        self.assertFalse(progress.missed_items)
        # Whatever else is moved would come before the item of this get.
        self.one.get(self.handle, self.blocks[:1])
        items = {item: bytes(got.data) for (of, item), got in self.one.items.items() if of == request}
        return reply.match_reply, items

    def expected(self, blocks, shards=(0,)):
        return {block * len(shards) + place: payload_of(self.blocks[block], shard=shard)
                for block in range(blocks) for place, shard in enumerate(shards)}

    def test_what_is_usable_is_moved_and_nothing_else(self):
        for shards in ((0,), (1,), (0, 1), (1, 0)):
            reply, items = self.fetch(shards)
            self.assertEqual((reply.usable_tokens, reply.fetched_blocks), (64, 4))
            self.assertEqual((reply.first_miss, reply.first_miss_block), (self.cause("NEVER_STORED"), 4))
            self.assertEqual(items, self.expected(4, shards))
            self.assertEqual(reply.lease, b"")

    def test_max_blocks_bounds_what_is_moved(self):
        for most, moved in ((1, 1), (3, 3), (4, 4), (100, 4), (2**64 - 1, 4)):
            reply, items = self.fetch((0, 1), max_blocks=most)
            self.assertEqual((reply.fetched_blocks, reply.usable_tokens), (moved, 16 * moved))
            self.assertEqual(items, self.expected(moved, (0, 1)))

    def test_with_fewer_than_min_blocks_nothing_is_moved(self):
        for least, moved in ((4, 4), (5, 0), (2**64 - 1, 0)):
            reply, items = self.fetch(min_blocks=least, lease_ms=60_000 if moved == 0 else 0)
            self.assertEqual((reply.fetched_blocks, items), (moved, self.expected(moved)))
            self.assertEqual((reply.usable_tokens, reply.chains[0].end_usable, reply.lease), (16 * moved, moved, b""))
        reply, items = self.fetch(min_blocks=3, max_blocks=2)
        self.assertEqual((reply.fetched_blocks, reply.usable_tokens, items), (0, 0, {}))

    def test_a_fetch_may_take_a_lease(self):
        reply, _ = self.fetch(lease_ms=60_000)
        self.assertEqual(len(reply.lease), 16)
        self.assertEqual(self.metric("quarry_leases"), 1)
        self.one.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=reply.lease))

    def test_nothing_usable_moves_nothing(self):
        self.blocks = [hash_of(self.id(), "absent")]
        reply, items = self.fetch(lease_ms=60_000)
        self.assertEqual((reply.usable_tokens, reply.fetched_blocks, reply.lease, items), (0, 0, b"", {}))

    def test_a_touch_counts_and_says_nothing_about_what_is_there(self):
        chains = [raw_session.T.ChainPart(hashes=b"".join(self.blocks))]
        self.one.body("ack", touch=raw_session.T.Touch(handle=self.handle, chains=chains))


class LeaseBoundsTest(FetchTest):
    """The same where leases may cover no more blocks than a fetch there takes."""

    flags = {"max-lease-blocks": "4", "max-leased-blocks": "5"}

    def test_the_answer_says_which_bound_shortened_a_lease(self):
        limit = raw_session.types.LEASE_LIMIT_BLOCKS
        self.one.put(self.handle, self.blocks[4:], shard=0)
        self.one.put(self.handle, self.blocks[4:], shard=1)
        first = self.one.match(self.handle, self.blocks, lease_ms=60_000)
        self.assertEqual((first.usable_tokens, first.lease_limit), (64, limit))
        second = self.one.match(self.handle, self.blocks, lease_ms=60_000)
        self.assertEqual((second.usable_tokens, second.lease_limit), (16, limit))
        refused = self.one.match(self.handle, self.blocks, lease_ms=60_000)
        self.assertEqual((refused.usable_tokens, refused.lease, refused.lease_limit), (0, b"", limit))
        reply, items = self.fetch(lease_ms=60_000)
        self.assertEqual((reply.fetched_blocks, items, reply.lease_limit), (0, {}, limit))
        # Without a lease nothing bounds it.
        reply, items = self.fetch()
        self.assertEqual((reply.fetched_blocks, items, reply.lease_limit), (6, self.expected(6), 0))
        for lease in (first.lease, second.lease):
            self.one.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=lease))


if __name__ == "__main__":
    protocol_case.main()
