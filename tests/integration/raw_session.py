"""A small client of the session protocol for tests: it says exactly what it is told to.

One thread; what the daemon sends is taken in while something is waited for. The modules
of generated messages are set by load_stubs().
"""

import hashlib
import select
import socket
import struct
import time

import quarryd

PREFACE = b"QUARRY1\n"
HEADER = struct.Struct("<IIQQII")  # type, item, request, offset, payload_bytes, meta_bytes
META = struct.Struct("<8Q")        # root, payload, range offset, range bytes, two edge sums, number of sums, 0
DATA, PULL, ABORT = 1, 2, 3
MAX_FRAME_PAYLOAD = 1 << 20

T = types = None  # transfer_pb2, types_pb2


def load_stubs():
    # pylint: disable=global-statement
    global T, types
    stubs = quarryd.generate_stubs()
    T, types = stubs.transfer_pb2, stubs.types_pb2


def hash_of(*parts):
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


def hashes_of(name, count):
    return [hash_of(name, index) for index in range(count)]


def payload_of(block_hash, size=4096, shard=0):
    """What a test stores under a key: follows from it, and is never the same twice."""
    return hashlib.shake_128(block_hash + bytes([shard])).digest(size)


def model_spec(shard_bytes=4096, shards=1, exact=True, groups=None, **fields):
    group = types.GroupSpec(kind=types.GROUP_KIND_FULL, tokens_per_block=16, shards=shards, shard_bytes=shard_bytes,
                            exact_bytes=exact)
    values = {"engine": "test", "model": "m", "kv_dtype": "bfloat16", "hash_scheme": "sha256", "hash_bytes": 32,
              "layers": 1, "groups": groups or [group]}
    values.update(fields)
    return types.ModelSpec(**values)


def framed(message):
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack("<I", len(data)) + data


def data_frames(request, item, payload, sums=(), root=0, frame_bytes=256 << 10):
    """The frames of a whole item; without sums, the daemon computes them."""
    meta = META.pack(root, len(payload), 0, len(payload), 0, 0, len(sums), 0) + struct.pack(f"<{len(sums)}Q", *sums)
    meta += bytes(-len(meta) % 32)
    frames = []
    for offset in range(0, len(payload), frame_bytes):
        part = payload[offset:offset + frame_bytes]
        first = meta if offset == 0 else b""
        frames.append(HEADER.pack(DATA, item, request, offset, len(part), len(first)) + first + part)
    return frames


class Closed(Exception):
    """The daemon has closed a stream of the session."""


class Item:
    """One item as it arrives on a data stream."""

    def __init__(self, meta):
        self.root, self.payload_bytes, self.offset, self.bytes, *_ = META.unpack(meta[:META.size])
        self.sums = struct.unpack_from(f"<{META.unpack_from(meta)[6]}Q", meta, META.size)
        self.data = bytearray()

    @property
    def whole(self):
        return len(self.data) == self.bytes


def connect(address, receive_buffer=None):
    if address.startswith("/"):
        stream = socket.socket(socket.AF_UNIX)
        target = address
    else:
        host, port = address.rsplit(":", 1)
        stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        target = (host.strip("[]"), int(port))
    if receive_buffer:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    stream.settimeout(quarryd.DEADLINE_S)
    stream.connect(target)
    return stream


def read_message(stream):
    """One message in a frame, None when the daemon closes instead."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
        wanted = 4 if len(data) < 4 else 4 + struct.unpack_from("<I", data)[0]
        try:
            part = stream.recv(wanted - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            return None
        data += part
    return T.ServerMessage.FromString(data[4:])


def greet(stream, **body):
    """Sends the preface and one message; returns the answer, or None."""
    stream.sendall(PREFACE + framed(T.ClientMessage(request=1, **body)))
    return read_message(stream)


class Session:
    """A control stream and data streams.

    messages: answers not yet taken, by request. items: what arrives, by (request, item).
    sources: what is sent when it is pulled, by (request, item). pulls: asked for, without
    a source. Each of `data` is a socket.
    """

    def __init__(self, address, streams=1, receive_buffer=None, **hello):
        self.messages, self.items, self.sources, self.pulls = {}, {}, {}, []
        self.reading = True  # of data streams
        self.closed = False
        self._next_request = 100
        self._address = address
        self._receive_buffer = receive_buffer
        self._in = {}
        self._receiving = {}
        self.data = []
        self.control = connect(address)
        reply = greet(self.control, hello=T.Hello(**{"major": 1, "client": "raw_session", **hello}))
        assert reply is not None and reply.WhichOneof("body") == "hello_reply", reply
        self.hello = reply.hello_reply
        self.limits = self.hello.limits
        self._in[self.control] = bytearray()
        for _ in range(streams):
            self.add_stream()

    def add_stream(self):
        stream = connect(self._address, self._receive_buffer)
        reply = greet(stream, data_hello=T.DataHello(major=1, session=self.hello.session))
        assert reply is not None and reply.WhichOneof("body") == "hello_reply", reply
        self._in[stream] = bytearray()
        self.data.append(stream)
        return stream

    def close(self):
        for stream in [self.control, *self.data]:
            stream.close()
        self.closed = True

    # ---------------------------------------------------------------- control

    def request(self):
        self._next_request += 1
        return self._next_request

    def send(self, request=None, **body):
        request = self.request() if request is None else request
        self.control.sendall(framed(T.ClientMessage(request=request, **body)))
        return request

    def ask(self, request=None, **body):
        return self.answer(self.send(request, **body))

    def answer(self, request):
        self.wait(lambda: self.messages.get(request), f"an answer to request {request}")
        return self.messages[request].pop(0)

    def body(self, kind, request=None, **body):
        """Asks, and returns the answer's body, which must be of that kind."""
        reply = self.ask(request, **body)
        assert reply.WhichOneof("body") == kind, reply
        return getattr(reply, kind)

    def error(self, request=None, **body):
        return self.body("error", request, **body)

    def open(self, name, spec=None, sibling=False):
        message = T.OpenNamespace(name=name, spec=spec or model_spec(), sibling_on_mismatch=sibling)
        return self.body("namespace_reply", open_namespace=message).handle

    def match(self, handle, hashes, lease_ms=0, **fields):
        chain = T.ChainPart(hashes=b"".join(hashes))
        return self.body("match_reply", match=T.Match(handle=handle, chains=[chain], lease_ms=lease_ms, **fields))

    # ---------------------------------------------------------------- transfers

    def start_put(self, handle, hashes, payloads=None, shard=0, size=4096, **fields):
        """Offers the blocks; pulled are the payloads, none of them where payloads is ()."""
        request = self.request()
        sizes = [size] if payloads is None or payloads == () else [len(payload) for payload in payloads]
        if payloads is None:
            payloads = [payload_of(block_hash, size, shard) for block_hash in hashes]
        self.sources.update({(request, item): payload for item, payload in enumerate(payloads)})
        run = T.PutRun(shard=shard, hashes=b"".join(hashes), bytes=sizes)
        return self.send(request, put=T.Put(handle=handle, runs=[run], **fields))

    def end_put(self, request):
        """(outcome, reason) of each item."""
        ends = {}
        while True:
            reply = self.answer(request)
            assert reply.WhichOneof("body") == "put_progress", reply
            progress = reply.put_progress
            for item, outcome, reason in zip(progress.items, progress.outcomes, progress.reasons):
                assert item not in ends, f"item {item} was answered twice"
                ends[item] = (outcome, reason)
            if progress.done:
                return [ends[item] for item in range(len(ends))]

    def put(self, handle, hashes, payloads=None, **options):
        return self.end_put(self.start_put(handle, hashes, payloads, **options))

    def start_get(self, handle, hashes, shard=0, offset=0, size=0, **fields):
        run = T.GetRun(shard=shard, hashes=b"".join(hashes), offset=offset, bytes=size)
        return self.send(get=T.Get(handle=handle, runs=[run], **fields))

    def end_get(self, request, count):
        """Of each item its bytes, or ("miss", cause), or "dropped"."""
        ends, done = {}, False

        def complete():
            nonlocal done
            for reply in self.messages.pop(request, []):
                assert reply.WhichOneof("body") == "get_progress", reply
                progress = reply.get_progress
                done = done or progress.done
                ends.update({item: ("miss", cause) for item, cause in zip(progress.missed_items, progress.causes)})
                ends.update({item: "dropped" for item in progress.dropped_items})
            for item in range(count):
                if item not in ends and (request, item) in self.items and self.items[request, item].whole:
                    ends[item] = bytes(self.items.pop((request, item)).data)
            return done and len(ends) == count

        self.wait(complete, f"the end of get {request}")
        return [ends[item] for item in range(count)]

    def get(self, handle, hashes, **options):
        return self.end_get(self.start_get(handle, hashes, **options), len(hashes))

    def send_item(self, request, item, payload, **options):
        for frame in data_frames(request, item, payload, **options):
            self.data[0].sendall(frame)

    # ---------------------------------------------------------------- reading

    def wait(self, condition, what, timeout=quarryd.DEADLINE_S):
        """Takes in what comes until `condition()` is true; returns what it returned."""
        deadline = time.monotonic() + timeout
        while True:
            result = condition()
            if result:
                return result
            if self.closed:
                raise Closed(what)
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout} s: {what}")
            self._take_in(0.1)

    def wait_closed(self):
        """Until the daemon has closed a stream."""
        self.wait(lambda: self.closed, "the session's end")

    def _take_in(self, timeout):
        streams = [self.control, *(self.data if self.reading else [])]
        for stream in select.select(streams, [], [], timeout)[0]:
            try:
                part = stream.recv(1 << 20)
            except ConnectionResetError:
                part = b""
            if not part:
                self.closed = True
                continue
            self._in[stream] += part
            if stream is self.control:
                self._take_messages()
            else:
                self._take_frames(stream)

    def _take_messages(self):
        data = self._in[self.control]
        begin = 0
        while len(data) - begin >= 4:
            size, = struct.unpack_from("<I", data, begin)
            if len(data) - begin < 4 + size:
                break
            message = T.ServerMessage.FromString(bytes(data[begin + 4:begin + 4 + size]))
            self.messages.setdefault(message.request, []).append(message)
            begin += 4 + size
        del data[:begin]

    def _take_frames(self, stream):
        data = self._in[stream]
        begin = 0
        while len(data) - begin >= HEADER.size:
            kind, item, request, offset, size, meta_size = HEADER.unpack_from(data, begin)
            end = begin + HEADER.size + meta_size + size
            if len(data) < end:
                break
            if kind == PULL:
                self._pulled(stream, request, item)
            else:
                assert kind == DATA, kind
                meta = bytes(data[begin + HEADER.size:begin + HEADER.size + meta_size])
                self._landed((request, item), offset, meta, data[end - size:end])
            begin = end
        del data[:begin]

    def _pulled(self, stream, request, item):
        payload = self.sources.pop((request, item), None)
        if payload is None:
            self.pulls.append((request, item))
            return
        for frame in data_frames(request, item, payload):
            stream.sendall(frame)

    def _landed(self, key, offset, meta, payload):
        if offset == 0:
            assert key not in self.items, f"item {key} came twice"
            self.items[key] = Item(meta)
        assert offset == len(self.items[key].data), "frames out of order"
        self.items[key].data += payload
