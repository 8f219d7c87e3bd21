"""What the tests of the gRPC services share: a daemon, stubs, namespaces, blocks, errors."""

import hashlib
import unittest

import grpc
import xxhash

import quarryd

CHUNK_BYTES = 64 << 10
BLOCK_BYTES = 200_000  # three full chunks and a part of one
HASH_BYTES = 32

STUBS = None
BINARY = ""


def block_hash(name):
    return hashlib.sha256(str(name).encode()).digest()


def payload(name, size=BLOCK_BYTES):
    """Bytes that follow from the block's name, no two chunks alike."""
    out = b"".join(hashlib.sha512(f"{name}/{i}".encode()).digest() for i in range(64))
    return (out * (size // len(out) + 1))[:size - 8] + len(str(name)).to_bytes(8, "little")


def chunk_sums(data):
    """XXH3-64 of every 64 KiB: as any language's xxhash makes them."""
    return [xxhash.xxh3_64_intdigest(data[i:i + CHUNK_BYTES]) for i in range(0, len(data), CHUNK_BYTES)]


def details_of(error):
    """The google.rpc detail of an RpcError, unpacked."""
    trailers = {key: value for key, value in error.trailing_metadata() or ()}
    status = STUBS.google_rpc_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0] and status.message == error.details(), status
    assert len(status.details) == 1, status
    name = status.details[0].type_url.rsplit(".", 1)[1]
    message = getattr(STUBS.google_rpc_pb2, name)()
    assert status.details[0].Unpack(message), status
    return message


class GrpcCase(unittest.TestCase):
    """One daemon for the class; every test has a namespace of its own, named after it."""

    flags = {}

    @classmethod
    def setUpClass(cls):
        cls.daemon = quarryd.Quarryd(BINARY, quarryd.private_flags(**cls.flags))
        cls.addClassCleanup(cls.daemon.kill)
        channel = cls.open_channel()
        cls.cache = STUBS.cache_pb2_grpc.CacheStub(channel)
        cls.admin = STUBS.admin_pb2_grpc.AdminStub(channel)
        cls.C, cls.A, cls.T = STUBS.cache_pb2, STUBS.admin_pb2, STUBS.types_pb2

    @classmethod
    def open_channel(cls, *options):
        # A proxy of the environment must not come between a test and its daemon.
        channel = grpc.insecure_channel(cls.daemon.grpc, options=[
            ("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 16 << 20), *options])
        cls.addClassCleanup(channel.close)
        return channel

    def setUp(self):
        self.ns = self.id().rsplit(".", 1)[1]
        self.open(self.ns)

    def call(self, method, request):
        return method(request, timeout=quarryd.DEADLINE_S)

    def spec(self, **override):
        group = self.T.GroupSpec(kind=self.T.GROUP_KIND_FULL, tokens_per_block=16, shards=override.pop("shards", 1),
                                 shard_bytes=BLOCK_BYTES)
        fields = dict(engine="test", model="m", kv_dtype="bfloat16", hash_scheme="sha256", hash_bytes=HASH_BYTES,
                      layers=1, groups=[group])
        fields.update(override)
        return self.T.ModelSpec(**fields)

    def open(self, name, **override):
        mismatch = override.pop("on_mismatch", 0)
        return self.call(self.cache.OpenNamespace, self.C.OpenNamespaceRequest(
            namespace=name, spec=self.spec(**override), on_mismatch=mismatch))

    def put_parts(self, blocks, ns=None, piece=70_000, sums=True, shard=0, **header):
        """PutRequests of a chain of (name, bytes)."""
        yield self.C.PutRequest(header=self.C.PutHeader(namespace=ns or self.ns, **header))
        parent = b""
        for depth, (name, data) in enumerate(blocks):
            yield self.C.PutRequest(shard=self.C.PutShard(
                hash=block_hash(name), parent=parent, depth=depth, bytes=len(data), shard=shard,
                chunk_sums=chunk_sums(data) if sums else []))
            for begin in range(0, len(data), piece):
                yield self.C.PutRequest(data=data[begin:begin + piece])
            parent = block_hash(name)

    def put(self, names, **options):
        blocks = [(name, payload(name)) for name in names]
        return self.call(self.cache.Put, self.put_parts(blocks, **options)).outcomes

    def get(self, names, ns=None, **fields):
        """The payload of each, or its miss's cause, and the sums of each."""
        data, sums = {}, {}
        request = self.C.GetRequest(namespace=ns or self.ns, hashes=[block_hash(n) for n in names], **fields)
        for part in self.call(self.cache.Get, request):
            name = names[part.item]
            if part.miss:
                data[name] = part.miss
                continue
            self.assertEqual(part.offset, fields.get("offset", 0) + len(data.get(name, b"")), "pieces are in order")
            if name not in data:
                sums[name] = list(part.chunk_sums)
            data[name] = data.get(name, b"") + part.data
        return data, sums

    def has(self, names, ns=None):
        response = self.call(self.cache.Lookup, self.C.LookupRequest(
            namespace=ns or self.ns, hashes=[block_hash(n) for n in names]))
        return [block.state == self.T.BLOCK_STATE_DRAM for block in response.blocks]

    def refused(self, code, method, request):
        """The error's google.rpc detail; its code is checked."""
        with self.assertRaises(grpc.RpcError) as caught:
            reply = self.call(method, request)
            if hasattr(reply, "__next__"):
                list(reply)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return details_of(caught.exception)

    def refuses_field(self, field, method, request, code=grpc.StatusCode.INVALID_ARGUMENT):
        violation = self.refused(code, method, request).field_violations[0]
        self.assertEqual(violation.field, field, violation.description)
        return violation.description


def main(argv):
    global STUBS, BINARY  # pylint: disable=global-statement
    BINARY = argv[1]
    STUBS = quarryd.generate_stubs()
    unittest.main(module="__main__", argv=[argv[0], *argv[2:]])
