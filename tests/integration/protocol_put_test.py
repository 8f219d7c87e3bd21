#!/usr/bin/python3
"""Puts at the wire: what is stored, what is refused and why, and that nothing of a put that
does not end well is ever seen or kept.

Usage: protocol_put_test.py QUARRYD [unittest arguments]
"""

import hashlib
import signal

import protocol_case
import quarryd
import raw_session
from raw_session import ABORT, HEADER, META, data_frames, hash_of, hashes_of, model_spec, payload_of

SIZE = 300_000  # two frames, five chunks
CHUNKS = 5


class PutTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("puts", model_spec(shard_bytes=SIZE))
        self.block = hash_of(self.id())
        self.payload = payload_of(self.block, SIZE)
        self.frames = None

    def pulled(self, session=None, handle=None, **options):
        """The request of a put whose item has been asked for, unless it has ended, and is not yet sent."""
        session = session or self.one
        request = session.start_put(handle or self.handle, [self.block], (), size=SIZE, **options)
        session.wait(lambda: (request, 0) in session.pulls or request in session.messages, "the pull")
        return request

    def other(self):
        return self.opened("puts", model_spec(shard_bytes=SIZE))

    def assert_storable(self, *causes):
        """Nothing of the block is there, and it can be put by another session."""
        session, handle = self.other()
        # Over as far as the client knows is not yet over at the daemon.
        session.get(handle, [self.block], wait_in_flight=True)
        self.assert_miss(session, handle, self.block, *(causes or (self.cause("REFUSED"),)))
        self.assertEqual(session.put(handle, [self.block], [self.payload]), [self.stored()])
        self.assertEqual(session.get(handle, [self.block]), [self.payload])

    def test_the_daemon_sums_what_comes_without_sums_and_checks_what_comes_with_them(self):
        self.assertEqual(self.one.put(self.handle, [self.block], [self.payload]), [self.stored()])
        request = self.one.start_get(self.handle, [self.block])
        self.one.wait(lambda: (request, 0) in self.one.items and self.one.items[request, 0].whole, "the item")
        item = self.one.items[request, 0]
        self.assertEqual((len(item.sums), item.payload_bytes, item.offset), (CHUNKS, SIZE, 0))

        # The same payload under another key has the same sums, and another root.
        wrong = list(item.sums)
        wrong[3] ^= 1
        for name, sums, root, outcome in (("right sums", item.sums, 0, self.stored()),
                                          ("a wrong sum", wrong, 0, self.refused("CHECKSUM")),
                                          ("a root of another key", item.sums, item.root, self.refused("CHECKSUM"))):
            with self.subTest(name):
                block = hash_of(self.id(), name)
                put = self.one.start_put(self.handle, [block], (), size=SIZE)
                self.one.wait(lambda put=put: (put, 0) in self.one.pulls, "the pull")
                self.one.send_item(put, 0, self.payload, sums=sums, root=root)
                self.assertEqual(self.one.end_put(put), [outcome])
                if outcome == self.stored():
                    self.assertEqual(self.one.get(self.handle, [block]), [self.payload])
                else:
                    self.assert_miss(self.one, self.handle, block, self.cause("REFUSED"))
                    self.assertEqual(self.one.put(self.handle, [block], [self.payload]), [self.stored()])

    def test_bytes_changed_under_way_are_refused(self):
        self.one.put(self.handle, [self.block], [self.payload])
        request = self.one.start_get(self.handle, [self.block])
        self.one.wait(lambda: (request, 0) in self.one.items and self.one.items[request, 0].whole, "the item")
        sums = self.one.items[request, 0].sums
        for position in (0, 65536, SIZE - 1):
            block = hash_of(self.id(), position)
            changed = bytearray(self.payload)
            changed[position] ^= 1
            put = self.one.start_put(self.handle, [block], (), size=SIZE)
            self.one.wait(lambda put=put: (put, 0) in self.one.pulls, "the pull")
            self.one.send_item(put, 0, bytes(changed), sums=sums)
            self.assertEqual(self.one.end_put(put), [self.refused("CHECKSUM")])

    def test_a_client_killed_mid_put_leaves_nothing(self):
        parts = data_frames(0, 0, self.payload)
        for name, sent in {"nothing": b"", "half a header": parts[0][:16], "half a frame": parts[0][:100_000],
                           "one frame of two": parts[0], "all but a byte": b"".join(parts)[:-1]}.items():
            with self.subTest(name):
                self.block = hash_of(self.id(), name)
                self.payload = payload_of(self.block, SIZE)
                before = self.used_bytes()
                session, handle = self.other()
                request = self.pulled(session, handle)
                self.assertGreater(self.used_bytes(), before)
                whole = b"".join(data_frames(request, 0, self.payload))
                session.data[0].sendall(whole[:len(sent)])
                session.close()
                quarryd.wait_until(lambda before=before: self.used_bytes() == before, "the memory back")
                self.assertEqual(self.metric("quarry_in_flight_puts"), 0)
                self.assert_storable()

    def test_either_stream_takes_the_other_with_it(self):
        for name in ("control", "data"):
            with self.subTest(name):
                session, handle = self.other()
                self.block = hash_of(self.id(), name)
                self.payload = payload_of(self.block, SIZE)
                self.pulled(session, handle)
                (session.control if name == "control" else session.data[0]).close()
                rest = session.data[0] if name == "control" else session.control
                while True:
                    try:
                        if not rest.recv(1 << 16):
                            break
                    except ConnectionResetError:
                        break
                self.assert_storable()

    def test_a_pull_that_is_never_answered_ends_by_the_deadline(self):
        before = self.used_bytes()
        request = self.pulled(deadline_ms=200)
        self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        self.assertEqual(self.used_bytes(), before)
        # What comes too late is thrown away, and the stream stays in step.
        self.one.send_item(request, 0, self.payload)
        self.assertEqual(self.one.put(self.handle, [hash_of(self.id(), 2)], [self.payload]), [self.stored()])
        self.assert_storable()

    def test_a_deadline_passes_within_an_item(self):
        request = self.pulled(deadline_ms=200)
        first, rest = data_frames(request, 0, self.payload)
        self.one.data[0].sendall(first + rest[:1000])
        self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        self.one.data[0].sendall(rest[1000:])
        self.assertEqual(self.one.put(self.handle, [hash_of(self.id(), 2)], [self.payload]), [self.stored()])
        self.assert_storable()

    def test_a_put_cancelled_at_every_stage(self):
        request = self.pulled()
        whole = b"".join(data_frames(request, 0, self.payload))
        stages = (0, 1, HEADER.size, HEADER.size + 8, HEADER.size + META.size, 70_000,
                  HEADER.size + META.size + (256 << 10), len(whole) - 1)
        self.one.send(request, cancel=raw_session.T.Cancel())
        self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        for stage in stages:
            with self.subTest(stage=stage):
                request = self.pulled()
                whole = b"".join(data_frames(request, 0, self.payload))
                self.one.data[0].sendall(whole[:stage])
                for _ in range(3):
                    self.one.send(request, cancel=raw_session.T.Cancel())
                self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
                self.one.data[0].sendall(whole[stage:])
        # Aborted by the client, whose own end of the item it is.
        for sent in (0, 1):
            request = self.pulled()
            self.one.data[0].sendall(b"".join(data_frames(request, 0, self.payload)[:sent]))
            self.one.data[0].sendall(HEADER.pack(ABORT, 0, request, 0, 0, 0))
            self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        self.assert_storable()

    def test_a_thousand_cancels_in_a_row(self):
        requests = []
        for i in range(1000):
            requests.append(self.one.start_put(self.handle, [hash_of(self.id(), i)], (), size=SIZE))
            self.one.send(requests[-1], cancel=raw_session.T.Cancel())
        for request in requests:
            self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        self.assertEqual(self.metric("quarry_in_flight_puts"), 0)
        self.assert_storable(self.cause("NEVER_STORED"))

    def test_an_item_of_another_size_than_offered_is_refused(self):
        for size in (1, SIZE - 1, SIZE + 1, 2 * SIZE):
            with self.subTest(size=size):
                request = self.pulled()
                self.one.send_item(request, 0, payload_of(self.block, size))
                self.assertEqual(self.one.end_put(request), [self.refused("WRONG_SIZE")])
        self.assert_storable()

    def test_of_two_puts_of_a_block_one_is_told_that_the_other_is_under_way(self):
        two, handle = self.other()
        request = self.pulled()
        self.assertEqual(two.put(handle, [self.block], [self.payload]), [self.refused("IN_FLIGHT")])
        self.one.send_item(request, 0, self.payload)
        self.assertEqual(self.one.end_put(request), [self.stored()])
        self.assertEqual(two.put(handle, [self.block], [b"x" * SIZE]), [self.already_there()])
        self.assertEqual(two.get(handle, [self.block]), [self.payload])

    def test_a_put_that_waits_learns_how_the_other_ended(self):
        for ends_well in (True, False):
            with self.subTest(ends_well=ends_well):
                self.block = hash_of(self.id(), ends_well)
                two, handle = self.other()
                request = self.pulled()
                waiting = two.start_put(handle, [self.block], [self.payload], wait_in_flight=True)
                two.body("view", get_view=raw_session.T.GetView())
                self.assertNotIn(waiting, two.messages)
                if ends_well:
                    self.one.send_item(request, 0, self.payload)
                else:
                    self.one.send(request, cancel=raw_session.T.Cancel())
                self.assertEqual(two.end_put(waiting), [self.already_there() if ends_well else self.stored()])
                self.assertEqual(self.one.end_put(request),
                                 [self.stored() if ends_well else self.refused("CANCELLED")])
                self.assertEqual(two.get(handle, [self.block]), [self.payload])

    def test_a_waiting_put_can_be_cancelled_and_has_a_deadline(self):
        request = self.pulled()
        two, handle = self.other()
        waiting = two.start_put(handle, [self.block], [self.payload], wait_in_flight=True)
        two.send(waiting, cancel=raw_session.T.Cancel())
        self.assertEqual(two.end_put(waiting), [self.refused("CANCELLED")])
        waiting = two.start_put(handle, [self.block], [self.payload], wait_in_flight=True, deadline_ms=100)
        self.assertEqual(two.end_put(waiting), [self.refused("CANCELLED")])
        self.one.send_item(request, 0, self.payload)
        self.assertEqual(self.one.end_put(request), [self.stored()])

    def test_one_block_twice_in_a_put(self):
        twice = [self.block, self.block]
        self.assertEqual(self.one.put(self.handle, twice, [self.payload] * 2),
                         [self.stored(), self.refused("IN_FLIGHT")])
        other = [hash_of(self.id(), 2)] * 2
        self.assertEqual(self.one.put(self.handle, other, [self.payload] * 2, wait_in_flight=True),
                         [self.stored(), self.already_there()])

    def test_many_clients_put_one_block_at_once(self):
        clients = [self.other() for _ in range(8)]
        requests = [session.start_put(handle, [self.block], [self.payload]) for session, handle in clients]
        ends = [session.end_put(request)[0] for (session, _), request in zip(clients, requests)]
        self.assertEqual(ends.count(self.stored()), 1, ends)
        self.assertTrue(set(ends) <= {self.stored(), self.already_there(), self.refused("IN_FLIGHT")}, ends)
        for session, handle in clients:
            self.assertEqual(session.get(handle, [self.block]), [self.payload])

    def test_a_block_is_complete_with_all_its_shards(self):
        session, handle = self.opened("sharded", model_spec(shards=2))
        incomplete = self.cause("INCOMPLETE")
        self.assertEqual(session.put(handle, [self.block]), [self.stored()])
        reply = session.match(handle, [self.block])
        self.assertEqual((reply.usable_tokens, reply.first_miss), (0, incomplete))
        self.assertEqual(reply.chains[0].states, bytes([raw_session.types.BLOCK_STATE_INCOMPLETE]))
        self.assertEqual(session.get(handle, [self.block]), [payload_of(self.block)])
        self.assertEqual(session.get(handle, [self.block], shard=1), [("miss", incomplete)])
        self.assertEqual(session.put(handle, [self.block], shard=1), [self.stored()])
        self.assertEqual(session.match(handle, [self.block]).usable_tokens, 16)
        self.assertEqual(session.get(handle, [self.block], shard=1), [payload_of(self.block, shard=1)])

    def test_a_larger_batch_than_may_be_reserved_at_once(self):
        blocks = hashes_of(self.id(), 200)
        payloads = [self.payload[i:] + self.payload[:i] for i in range(200)]
        self.assertEqual(self.one.put(self.handle, blocks, payloads), [self.stored()] * 200)
        self.assertEqual([hashlib.sha256(got).digest() for got in self.one.get(self.handle, blocks)],
                         [hashlib.sha256(payload).digest() for payload in payloads])

    def test_payloads_shorter_than_the_greatest(self):
        session, handle = self.opened("variable", model_spec(shard_bytes=SIZE, exact=False))
        sizes = (1, 4095, 4096, 65536, 65537, SIZE)
        blocks = hashes_of(self.id(), len(sizes))
        payloads = [payload_of(block, size) for block, size in zip(blocks, sizes)]
        self.assertEqual(session.put(handle, blocks, payloads), [self.stored()] * len(sizes))
        self.assertEqual(session.get(handle, blocks), payloads)

    def test_without_a_data_stream_a_put_is_refused_and_a_get_dropped(self):
        session, handle = self.opened("puts", model_spec(shard_bytes=SIZE), streams=0)
        self.assertEqual(session.put(handle, [self.block], [self.payload]), [self.refused("CANCELLED")])
        self.one.put(self.handle, [self.block], [self.payload])
        self.assertEqual(session.get(handle, [self.block]), ["dropped"])


class DrainTest(protocol_case.ProtocolCase):

    def test_a_drain_finishes_what_is_under_way_and_refuses_the_rest(self):
        daemon = quarryd.Quarryd(protocol_case.BINARY, quarryd.private_flags())
        self.addCleanup(daemon.kill)
        session = raw_session.Session(daemon.transfer)
        self.addCleanup(session.close)
        handle = session.open("drain")
        blocks = hashes_of("drain", 2)
        session.put(handle, blocks[:1])
        request = session.start_put(handle, blocks[1:], (), size=4096)
        session.wait(lambda: session.pulls, "the pull")

        daemon.send(signal.SIGTERM)
        session.wait(lambda: 0 in session.messages, "the word that it drains")
        self.assertEqual(session.messages[0][0].WhichOneof("body"), "draining")
        T = raw_session.T
        bodies = {"put": T.Put(handle=handle, runs=[T.PutRun(hashes=blocks[0], bytes=[4096])]),
                  "get": T.Get(handle=handle, runs=[T.GetRun(hashes=blocks[0])]),
                  "match": T.Match(handle=handle, chains=[T.ChainPart(hashes=blocks[0])]),
                  "open_namespace": T.OpenNamespace(name="late", spec=model_spec())}
        for name, body in bodies.items():
            with self.subTest(name):
                self.assert_error(session.error(**{name: body}), protocol_case.UNAVAILABLE, "draining")
        with raw_session.connect(daemon.transfer) as late:
            reply = raw_session.greet(late, hello=T.Hello(major=1))
            self.assert_error(reply.error, protocol_case.UNAVAILABLE, "draining")
        session.send_item(request, 0, payload_of(blocks[1]))
        self.assertEqual(session.end_put(request), [self.stored()])
        session.wait_closed()
        self.assertEqual(daemon.wait()[0], 0, daemon.log())
        self.assertIn("drained", daemon.log())

    def test_a_drain_does_not_wait_for_ever(self):
        daemon = quarryd.Quarryd(protocol_case.BINARY, [*quarryd.private_flags(), "--drain-timeout", "200ms"])
        self.addCleanup(daemon.kill)
        session = raw_session.Session(daemon.transfer)
        self.addCleanup(session.close)
        session.start_put(session.open("drain"), hashes_of("drain", 1), (), size=4096)
        session.wait(lambda: session.pulls, "the pull")
        self.assertEqual(daemon.stop()[0], 0, daemon.log())
        self.assertIn("cut off", daemon.log())


if __name__ == "__main__":
    protocol_case.main()
