#!/usr/bin/python3
"""Small arenas, slow and greedy clients: what they cost, they cost themselves.

Usage: protocol_pressure_test.py QUARRYD [unittest arguments]
"""

import socket
import struct

import protocol_case
import quarryd
import raw_session
from raw_session import framed, hash_of, hashes_of, model_spec

MIB = 1 << 20
ARENA = 64 * MIB  # of the 128 MiB that the daemons here get
SIZE = 64 << 10
SMALL = {"memory": "128MiB"}
SESSION_BYTES_IN_FLIGHT = 8 * MIB
MANY_BYTES_IN_FLIGHT = 1024 * MIB


def bytes_of(block):
    return block * (SIZE // len(block))


class SmallArenaTest(protocol_case.ProtocolCase):

    flags = SMALL

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("small", model_spec(shard_bytes=SIZE))

    def put(self, blocks):
        return self.one.put(self.handle, blocks, [bytes_of(block) for block in blocks])

    def flood(self, name, times):
        """Puts `times` the arena; returns the blocks."""
        blocks = hashes_of(f"{self.id()} {name}", times * ARENA // SIZE)
        for begin in range(0, len(blocks), 256):
            part = blocks[begin:begin + 256]
            self.assertEqual(self.put(part), [self.stored()] * len(part))
        return blocks

    def release(self, lease):
        self.one.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=lease))

    def test_after_a_flood_every_byte_is_right_or_said_to_be_evicted(self):
        blocks = self.flood("flood", 3)
        evicted = ("miss", self.cause("EVICTED"))
        hits = 0
        for block, got in zip(blocks, self.one.get(self.handle, blocks)):
            if got != evicted:
                self.assertEqual(got, bytes_of(block))
                hits += 1
        self.assertGreater(hits, 0.9 * ARENA // SIZE)

    def test_an_arena_full_of_leased_blocks_refuses_and_loses_nothing(self):
        blocks = self.flood("leased", 1)
        reply = self.one.match(self.handle, blocks, lease_ms=60_000)
        leased = blocks[:reply.chains[0].end_usable]
        self.assertGreater(len(leased), 0.8 * ARENA // SIZE)
        # A fetch keeps what it moves by itself; only its lease needs room.
        rest = blocks[len(leased):len(leased) + 8]
        for lease_ms, fetched, limit in ((0, 8, raw_session.types.LEASE_LIMIT_UNSPECIFIED),
                                         (60_000, 0, raw_session.types.LEASE_LIMIT_BYTES)):
            T = raw_session.T
            match = T.Match(handle=self.handle, chains=[T.ChainPart(hashes=b"".join(rest))], lease_ms=lease_ms)
            fetch = self.one.send(fetch_prefix=T.FetchPrefix(match=match, shards=[0]))
            answer = self.one.answer(fetch).match_reply
            self.assertEqual((answer.fetched_blocks, answer.lease_limit), (fetched, limit))
            self.assertTrue(self.one.answer(fetch).get_progress.done)
        # The rest, which may not be leased, is taken by a put that does not get on.
        slow, handle = self.opened("small", model_spec(shard_bytes=SIZE))
        request = slow.start_put(handle, hashes_of(self.id() + " slow", 128), (), size=SIZE)
        slow.wait(lambda: request in slow.messages, "a refusal")
        self.assertEqual(slow.messages[request][0].put_progress.reasons[0],
                         raw_session.types.REFUSAL_REASON_NO_SPACE)

        late = hashes_of(self.id() + " late", 3)
        self.assertEqual(self.put(late), [self.refused("NO_SPACE")] * 3)
        self.assert_miss(self.one, self.handle, late[0], self.cause("REFUSED"))
        self.assertEqual(self.one.get(self.handle, leased, lease=reply.lease), [bytes_of(block) for block in leased])
        self.release(reply.lease)
        self.assertEqual(self.put(late), [self.stored()] * 3)

    def test_a_thousand_matches_never_fetched_are_evictable_once_their_leases_end(self):
        blocks = self.flood("matched", 1)[-512:]
        T = raw_session.T
        requests = []
        for i in range(1000):
            part = blocks[i % 496:i % 496 + 16]
            match = T.Match(handle=self.handle, chains=[T.ChainPart(hashes=b"".join(part))], lease_ms=60_000)
            requests.append(self.one.send(match=match))
        replies = [self.one.answer(request).match_reply for request in requests]
        self.assertEqual({reply.usable_tokens for reply in replies}, {16 * 16})
        leases = {reply.lease for reply in replies}
        self.assertEqual(len(leases), 1000)
        self.end_by_time(self.one, leases)
        self.flood("after", 2)
        self.assertEqual(set(self.one.get(self.handle, blocks)), {("miss", self.cause("EVICTED"))})

    def test_a_get_slower_than_its_lease_has_every_byte_through_a_flood(self):
        blocks = self.flood("slow", 1)[-256:]
        slow, handle = self.opened("small", model_spec(shard_bytes=SIZE))
        lease = slow.match(handle, blocks, lease_ms=60_000).lease
        get = slow.start_get(handle, blocks, lease=lease, credit_bytes=1)
        slow.wait(lambda: slow.items, "the first item")
        self.end_by_time(slow, [lease])
        self.flood("meanwhile", 2)
        slow.send(get, credit=raw_session.T.Credit(bytes=ARENA))
        self.assertEqual(slow.end_get(get, len(blocks)), [bytes_of(block) for block in blocks])

    def test_a_retained_block_is_kept_for_its_time(self):
        block = hash_of(self.id())
        request = self.one.start_put(self.handle, [block], [bytes_of(block)], size=SIZE, retain_ms=5000)
        self.assertEqual(self.one.end_put(request), [self.stored()])
        self.assertEqual(self.metric("quarry_leases"), 1)
        quarryd.wait_until(lambda: self.metric("quarry_leases") == 0, "the end of its time")

    def test_blocks_of_other_sizes_take_the_arena_over(self):
        self.flood("first", 1)
        for size in (4096, 20_000, 1_000_000):
            session, handle = self.opened(f"of {size}", model_spec(shard_bytes=size))
            blocks = hashes_of(self.id(), min(512, ARENA // 2 // size))
            self.assertEqual(session.put(handle, blocks, size=size), [self.stored()] * len(blocks))
            self.assertEqual(session.get(handle, blocks), [raw_session.payload_of(block, size) for block in blocks])


class SlowReaderTest(protocol_case.ProtocolCase):

    flags = SMALL

    def stalled(self, gets, items):
        """A session that asks for much and reads nothing of it."""
        session, handle = self.opened("slow readers", model_spec(shard_bytes=SIZE), receive_buffer=4096)
        session.reading = False
        for _ in range(gets):
            session.start_get(handle, self.blocks * (items // len(self.blocks)))
        return session

    def setUp(self):
        super().setUp()
        self.blocks = hashes_of("slow readers", 16)
        session, handle = self.opened("slow readers", model_spec(shard_bytes=SIZE))
        session.put(handle, self.blocks, [bytes_of(block) for block in self.blocks])
        self.reader, self.handle = session, handle

    def in_flight(self):
        return self.metric("quarry_transfer_in_flight_bytes")

    def test_a_client_that_stops_reading_costs_only_itself(self):
        with self.memory_grows_less_than(64 * MIB):
            session = self.stalled(gets=1000, items=16)
            session.body("view", get_view=raw_session.T.GetView())  # has been heard
            self.assertLessEqual(self.in_flight(), SESSION_BYTES_IN_FLIGHT)
            for _ in range(20):
                self.check_witness()
                self.assertEqual(self.reader.get(self.handle, self.blocks), [bytes_of(block) for block in self.blocks])
            self.assertGreater(self.in_flight(), SESSION_BYTES_IN_FLIGHT / 2)
        # When it reads again, all comes.
        gets = sorted(request for request, answers in session.messages.items() if answers)
        session.data[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        session.reading = True
        for get in gets[:3]:
            self.assertEqual(session.end_get(get, 16), [bytes_of(block) for block in self.blocks])

    def test_many_clients_that_stop_reading_do_not_stop_the_others(self):
        many = MANY_BYTES_IN_FLIGHT // SESSION_BYTES_IN_FLIGHT + 2
        for _ in range(many):
            self.stalled(gets=1, items=2 * SESSION_BYTES_IN_FLIGHT // SIZE)
        quarryd.wait_until(lambda: self.in_flight() > 0.9 * MANY_BYTES_IN_FLIGHT, "all of them stuck")
        self.assertLessEqual(self.in_flight(), many * SESSION_BYTES_IN_FLIGHT)
        self.check_witness()
        self.assertEqual(self.reader.get(self.handle, self.blocks), [bytes_of(block) for block in self.blocks])
        self.assertGreater(self.in_flight(), 0.9 * MANY_BYTES_IN_FLIGHT)  # they still are


class SlowListenerTest(protocol_case.ProtocolCase):

    flags = SMALL
    node_name = "n" * 253  # makes a view a long answer to a short question

    def questions(self, count):
        return b"".join(framed(raw_session.T.ClientMessage(request=1 + i, get_view=raw_session.T.GetView()))
                        for i in range(count))

    def listener(self):
        stream = raw_session.connect(self.daemon.transfer, receive_buffer=4096)
        self._sessions.append(stream)  # closed as they are
        raw_session.greet(stream, hello=raw_session.T.Hello(major=1))
        return stream

    def test_a_client_that_does_not_read_its_answers_is_cut_off(self):
        stream = self.listener()
        with self.memory_grows_less_than(96 * MIB):
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                for _ in range(50):
                    stream.sendall(self.questions(10_000))
        quarryd.wait_until(lambda: self.metric("quarry_sessions") == 1, "the session's end")

    def test_a_client_that_reads_slowly_does_not_make_the_daemon_grow(self):
        stream = self.listener()
        questions = self.questions(4000)
        stream.sendall(self.questions(1))
        answer, = struct.unpack("<I", stream.recv(4, 0x100))
        stream.recv(answer)
        behind = 8  # lots of questions whose answers have not been read: more than sockets hold
        for _ in range(behind):
            stream.sendall(questions)
        self.check_witness()
        with self.memory_grows_less_than(32 * MIB):
            for _ in range(60):
                left = 4000 * (answer + 4)
                while left > 0:
                    left -= len(stream.recv(min(left, 1 << 20)))
                stream.sendall(questions)


class HoardTest(protocol_case.ProtocolCase):
    """Requests of many items each, which never get on."""

    flags = SMALL

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("hoard")
        self.block = hash_of("hoard")
        self.most = self.one.limits.max_items

    def get_of_all(self, block, **fields):
        return raw_session.T.Get(handle=self.handle, runs=[raw_session.T.GetRun(hashes=block * self.most)], **fields)

    def test_items_under_way_in_a_session_are_bounded(self):
        self.one.put(self.handle, [self.block])
        with self.memory_grows_less_than(128 * MIB):
            requests = [self.one.send(get=self.get_of_all(self.block, credit_bytes=1)) for _ in range(20)]
            error = self.one.answer(requests[-1]).error
            self.assert_error(error, protocol_case.EXHAUSTED, "items")
        self.check_witness()
        self.one.reading = False


class WaitersTest(HoardTest):

    def test_items_under_way_in_a_session_are_bounded(self):
        # Each of these is cancelled at once, but what it waits for goes on.
        slow, handle = self.opened("hoard")
        slow.start_put(handle, [self.block], (), size=4096)
        slow.wait(lambda: slow.pulls, "the pull")
        with self.memory_grows_less_than(128 * MIB):
            for _ in range(10):
                request = self.one.send(get=self.get_of_all(self.block, wait_in_flight=True))
                self.one.send(request, cancel=raw_session.T.Cancel())
                self.one.end_get(request, self.most)


class RememberedGetsTest(HoardTest):

    def test_items_under_way_in_a_session_are_bounded(self):
        # A get that is over is remembered until the client has confirmed it.
        with self.memory_grows_less_than(64 * MIB):
            for _ in range(12):
                request = self.one.send(get=self.get_of_all(hash_of("absent")))
                self.one.end_get(request, self.most)


if __name__ == "__main__":
    protocol_case.main()
