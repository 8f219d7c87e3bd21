#!/usr/bin/python3
"""Malformed, truncated and random bytes on control and data streams: they end the session
that sent them, store nothing, and cost nobody else anything.

Usage: protocol_frames_test.py QUARRYD [unittest arguments]
"""

import os
import random
import struct

import protocol_case
import raw_session
from raw_session import ABORT, DATA, HEADER, META, PULL, data_frames, framed, hash_of, payload_of

SIZE = 4096
MAX_SHARD_BYTES = 64 << 20


def meta_of(payload_bytes=SIZE, offset=0, size=SIZE, sums=0, rest=b""):
    return META.pack(0, payload_bytes, offset, size, 0, 0, sums, 0) + rest


def frame(kind=DATA, item=0, request=1, offset=0, payload=b"p" * SIZE, meta=None, payload_bytes=None, meta_bytes=None):
    """One frame, with header fields that may lie about what follows."""
    if meta is None:
        meta = meta_of() if kind == DATA and offset == 0 else b""
    return HEADER.pack(kind, item, request, offset, len(payload) if payload_bytes is None else payload_bytes,
                       len(meta) if meta_bytes is None else meta_bytes) + meta + payload


def seeded():
    """QUARRY_TEST_SEED repeats a run."""
    seed = int(os.environ.get("QUARRY_TEST_SEED", random.SystemRandom().getrandbits(32)))
    print(f"QUARRY_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


class ControlStreamTest(protocol_case.ProtocolCase):

    def assert_ended_by(self, data):
        session = self.session()
        session.control.sendall(data)
        session.wait_closed()

    def test_lengths_that_are_not_allowed_end_the_session(self):
        session = self.session()
        most = session.limits.max_message_bytes
        for length in (0, most + 1, 2**31, 2**32 - 1):
            with self.subTest(length=length):
                self.assert_ended_by(struct.pack("<I", length))
        self.assertEqual(session.match(session.open("lives"), [hash_of("a")] * 65536).usable_tokens, 0)

    def test_bytes_that_are_no_message_end_the_session(self):
        T = raw_session.T
        whole = T.ClientMessage(request=5, match=T.Match(handle=1, chains=[T.ChainPart(hashes=b"h" * 64)]))
        for data in (b"\xff" * 64, b"\0", b"\x08", b"\x12\x7f", whole.SerializeToString()[:-1],
                     b"\x22" + b"\x80" * 12, b"\x0b\x0c"):
            with self.subTest(data=data):
                self.assert_ended_by(framed(data))

    def test_the_end_is_explained_when_there_is_a_message_to_blame(self):
        session = self.session()
        session.control.sendall(framed(b"\x12\x7f"))
        session.wait_closed()
        self.assert_error(session.messages[0][0].error, protocol_case.INVALID, "malformed")

    def test_a_truncated_message_is_no_message(self):
        T = raw_session.T
        put = framed(T.ClientMessage(request=1, put=T.Put(handle=1, runs=[T.PutRun(hashes=hash_of("t"),
                                                                                   bytes=[SIZE])])))
        for cut in (1, 3, 4, 5, len(put) - 1):
            session, _ = self.opened("truncated")
            session.control.sendall(put[:cut])
            session.close()
        session, handle = self.opened("truncated")
        self.assert_miss(session, handle, hash_of("t"), self.cause("NEVER_STORED"))

    def test_a_message_may_come_byte_by_byte(self):
        session = self.session()
        for byte in framed(raw_session.T.ClientMessage(request=3, get_view=raw_session.T.GetView())):
            session.control.sendall(bytes([byte]))
        self.assertEqual(session.answer(3).WhichOneof("body"), "view")

    def test_one_who_stops_within_a_message_holds_nobody_up(self):
        session = self.session()
        session.control.sendall(struct.pack("<I", 4 << 20) + b"\x08")
        self.check_witness()
        self.assertFalse(session.closed)

    def test_connections_that_never_say_hello_hold_nobody_up(self):
        for start in (b"", b"QUAR", raw_session.PREFACE, raw_session.PREFACE + struct.pack("<I", 100) + b"x"):
            self.addCleanup(raw_session.connect(self.daemon.transfer).close)
            stream = raw_session.connect(self.daemon.transfer)
            self.addCleanup(stream.close)
            stream.sendall(start)
        self.check_witness()

    def test_a_first_message_has_to_be_short(self):
        # Whoever has not been let in may not make the daemon keep megabytes.
        with raw_session.connect(self.daemon.transfer) as stream:
            stream.sendall(raw_session.PREFACE + struct.pack("<I", 1 << 20))
            reply = raw_session.read_message(stream)
            self.assert_error(reply.error, protocol_case.INVALID, "first message", 1 << 20)
            self.assertIsNone(raw_session.read_message(stream))

    def test_random_bytes(self):
        rng = seeded()
        for _ in range(40):
            with raw_session.connect(self.daemon.transfer) as stream:
                stream.sendall((raw_session.PREFACE if rng.random() < 0.5 else b"") + rng.randbytes(rng.randrange(200)))
        for _ in range(40):
            session = self.session(streams=0)
            try:
                for _ in range(5):
                    session.control.sendall(framed(rng.randbytes(rng.randrange(1, 100))))
            except (BrokenPipeError, ConnectionResetError):
                pass  # ended already
            session.close()


class DataStreamTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        self.block = hash_of("data stream", self.id())

    def pulled(self):
        """A session that has been asked for the block."""
        session, handle = self.opened("frames")
        # The put of an ended session may still be on its way out.
        request = session.start_put(handle, [self.block], (), size=SIZE, wait_in_flight=True)
        session.wait(lambda: session.pulls, "the pull")
        return session, request

    def assert_not_stored(self):
        session, handle = self.opened("frames")
        session.get(handle, [self.block], wait_in_flight=True)
        self.assert_miss(session, handle, self.block, self.cause("NEVER_STORED"), self.cause("REFUSED"))

    def assert_ended_by(self, *frames):
        """Sent in place of a pulled item: the session ends, the item is not stored."""
        session, request = self.pulled()
        for part in frames:
            session.data[0].sendall(part(request) if callable(part) else part)
        session.wait_closed()
        self.assert_not_stored()

    def test_bad_headers_end_the_session(self):
        for bad in ({"kind": 0}, {"kind": 4}, {"kind": DATA | 1 << 8}, {"kind": 2**32 - 1},
                    {"kind": PULL, "payload": b""}, {"kind": ABORT, "payload_bytes": 1},
                    {"kind": ABORT, "payload": b"", "offset": 1}, {"kind": ABORT, "payload": b"", "meta_bytes": 64},
                    {"payload_bytes": 0}, {"payload_bytes": raw_session.MAX_FRAME_PAYLOAD + 1}, {"payload_bytes": 2**32 - 1},
                    {"offset": MAX_SHARD_BYTES}, {"offset": 2**64 - 1}, {"offset": 8, "meta_bytes": 64},
                    {"meta_bytes": 0}, {"meta_bytes": 32}, {"meta_bytes": 72}, {"meta_bytes": 2**32 - 32}):
            with self.subTest(**bad):
                self.assert_ended_by(lambda request, bad=bad: frame(request=request, **bad))

    def test_bad_metadata_ends_the_session(self):
        for bad in ({"payload_bytes": 0}, {"payload_bytes": MAX_SHARD_BYTES + 1}, {"size": 0}, {"offset": 1},
                    {"offset": 2**64 - 1, "size": 2}, {"size": 2**64 - 1}, {"sums": 1}, {"rest": bytes(32)},
                    {"sums": 2, "rest": bytes(32)}, {"sums": 2**61, "rest": bytes(32)}, {"sums": 2**64 - 1},
                    {"sums": 1, "rest": bytes(64)},
                    {"payload_bytes": 8192, "size": SIZE - 1}):
            with self.subTest(**bad):
                self.assert_ended_by(lambda request, bad=bad: frame(request=request, meta=meta_of(**bad)))

    def test_frames_that_continue_nothing_end_the_session(self):
        half = {"payload": b"p" * (SIZE // 2)}

        def begin(request):
            return frame(request=request, **half)

        self.assert_ended_by(lambda request: frame(request=request, offset=SIZE // 2, **half))
        self.assert_ended_by(begin, lambda request: frame(request=request, offset=SIZE // 2 + 1, **half))
        self.assert_ended_by(begin, lambda request: frame(request=request, offset=SIZE // 2 - 1, **half))
        self.assert_ended_by(begin, lambda request: frame(request=request, item=1, offset=SIZE // 2, **half))
        self.assert_ended_by(begin, lambda request: frame(request=request + 1, offset=SIZE // 2, **half))
        # Beyond the item's end, and after an abort.
        self.assert_ended_by(begin, lambda request: frame(request=request, offset=SIZE // 2, payload=b"p" * SIZE))
        self.assert_ended_by(begin, lambda request: frame(ABORT, request=request, payload=b""),
                             lambda request: frame(request=request, offset=SIZE // 2, **half))

    def test_a_stream_that_ends_within_a_frame_stores_nothing(self):
        whole = frame()
        for cut in (1, HEADER.size - 1, HEADER.size, HEADER.size + 8, HEADER.size + META.size, len(whole) - 1):
            with self.subTest(cut=cut):
                session, request = self.pulled()
                session.data[0].sendall(frame(request=request)[:cut])
                session.data[0].close()
                session.reading = False
                session.wait_closed()  # the control stream goes with it
                self.assert_not_stored()

    def test_items_that_nobody_asked_for_are_thrown_away(self):
        session, handle = self.opened("frames")
        other = hash_of("wanted", self.id())
        for request, item in ((0, 0), (1, 0), (2**64 - 1, 2**32 - 1)):
            session.send_item(request, item, payload_of(self.block))
            session.data[0].sendall(HEADER.pack(ABORT, item, request, 0, 0, 0))
        self.assertEqual(session.put(handle, [other]), [self.stored()])
        # Again, now that it is stored, with other bytes; and one beyond those of the put.
        session.send_item(session._next_request, 0, payload_of(self.block))  # pylint: disable=protected-access
        session.send_item(session._next_request, 1, payload_of(self.block))  # pylint: disable=protected-access
        self.assertEqual(session.get(handle, [other]), [payload_of(other)])
        self.assert_miss(session, handle, self.block, self.cause("NEVER_STORED"))

    def test_an_item_on_another_stream_than_it_was_asked_on_is_thrown_away(self):
        session, request = self.pulled()
        session.add_stream().sendall(b"".join(data_frames(request, 0, b"x" * SIZE)))
        for _ in range(2):
            session.body("view", get_view=raw_session.T.GetView())
        self.assertNotIn(request, session.messages)
        session.send_item(request, 0, payload_of(self.block))
        self.assertEqual(session.end_put(request), [self.stored()])
        handle = session.open("frames")
        self.assertEqual(session.get(handle, [self.block]), [payload_of(self.block)])

    def test_an_item_that_begins_again_is_refused(self):
        session, request = self.pulled()
        session.data[0].sendall(frame(request=request, payload=b"p" * 100))
        session.send_item(request, 0, payload_of(self.block))
        self.assertEqual(session.end_put(request), [self.refused("CANCELLED")])
        self.assert_not_stored()
        self.assertEqual(session.put(session.open("frames"), [self.block]), [self.stored()])

    def test_random_bytes(self):
        rng = seeded()
        for _ in range(40):
            session, _ = self.pulled()
            try:
                session.data[0].sendall(rng.randbytes(rng.randrange(1, 300)))
            except (BrokenPipeError, ConnectionResetError):
                pass  # ended already
            session.close()
        self.assert_not_stored()

    def test_flipped_bits(self):
        # A flip in the header or metadata ends the session, is refused, or is without
        # effect; one in the payload is what the client sent. What is stored is whole.
        rng = seeded()
        T = raw_session.T
        for round_number in range(60):
            block = hash_of("flipped", round_number)
            session, handle = self.opened("frames")
            request = session.start_put(handle, [block], (), size=SIZE)
            session.wait(lambda: session.pulls, "the pull")  # pylint: disable=cell-var-from-loop
            sent = bytearray(frame(request=request, payload=payload_of(block)))
            sent[rng.randrange(HEADER.size + META.size)] ^= 1 << rng.randrange(8)
            session.data[0].sendall(sent)
            session.send(request, cancel=T.Cancel())
            session.close()
            reader, handle = self.opened("frames")
            got, = reader.get(handle, [block])
            if isinstance(got, bytes):
                self.assertEqual(got, payload_of(block))
            reader.close()


if __name__ == "__main__":
    protocol_case.main()
