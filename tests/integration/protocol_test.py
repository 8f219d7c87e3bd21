#!/usr/bin/python3
"""Versions, handshakes, and well-formed messages with bad values: each is answered by an
error that names what is wrong, and costs nothing else.

Usage: protocol_test.py QUARRYD [unittest arguments]
"""

import hashlib

import protocol_case
import raw_session
from protocol_case import EXHAUSTED, FAILED_PRECONDITION, INVALID, NOT_FOUND, UNAUTHENTICATED, UNIMPLEMENTED
from raw_session import framed, greet, hash_of, hashes_of, model_spec, payload_of


class HandshakeTest(protocol_case.ProtocolCase):

    def greeted(self, **body):
        stream = raw_session.connect(self.daemon.transfer)
        self.addCleanup(stream.close)
        return greet(stream, **body)

    def test_another_major_version_is_refused_by_a_message_that_names_both(self):
        for major, minor in ((0, 9), (2, 3), (1000, 0)):
            for body in ({"hello": raw_session.T.Hello(major=major, minor=minor)},
                         {"data_hello": raw_session.T.DataHello(major=major, minor=minor)}):
                self.assert_error(self.greeted(**body).error, FAILED_PRECONDITION, f"{major}.{minor}", "1.0")

    def test_a_newer_minor_version_works_at_the_lower_one(self):
        session = self.session(minor=7)
        self.assertEqual((session.hello.major, session.hello.minor), (1, 0))
        self.assertEqual(len(session.hello.session), 16)
        block = hash_of("minor")
        handle = session.open("minor")
        self.assertEqual(session.put(handle, [block]), [self.stored()])

    def test_a_credential_is_refused_where_none_is_known(self):
        reply = self.greeted(hello=raw_session.T.Hello(major=1, credential=b"secret-token"))
        self.assert_error(reply.error, UNAUTHENTICATED, "credential")
        self.assertNotIn("secret-token", reply.error.message + self.daemon.log())

    def test_an_overlong_client_name_is_refused(self):
        self.assert_error(self.greeted(hello=raw_session.T.Hello(major=1, client="c" * 257)).error, INVALID,
                          "hello.client", 257, 256)
        self.session(client="c" * 256)

    def test_the_first_message_must_be_a_hello(self):
        self.assert_error(self.greeted(get_view=raw_session.T.GetView()).error, FAILED_PRECONDITION, "hello")
        self.assert_error(self.greeted().error, FAILED_PRECONDITION, "hello")

    def test_a_wrong_preface_is_cut_off(self):
        for preface in (b"QUARRY2\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"quarry1\n"):
            with raw_session.connect(self.daemon.transfer) as stream:
                stream.sendall(preface + framed(raw_session.T.ClientMessage(hello=raw_session.T.Hello(major=1))))
                self.assertIsNone(raw_session.read_message(stream))

    def test_a_data_stream_needs_the_sessions_secret(self):
        session = self.session()
        secret = session.hello.session
        for wrong in (b"", secret[:-1], secret + b"x", bytes(16), secret[:-1] + bytes([secret[-1] ^ 1])):
            reply = self.greeted(data_hello=raw_session.T.DataHello(major=1, session=wrong))
            self.assert_error(reply.error, NOT_FOUND, "session")
        closed = self.session()
        closed.close()
        self.wait_for_sessions(2)
        reply = self.greeted(data_hello=raw_session.T.DataHello(major=1, session=closed.hello.session))
        self.assert_error(reply.error, NOT_FOUND, "session")

    def wait_for_sessions(self, count):
        raw_session.quarryd.wait_until(lambda: self.metric("quarry_sessions") == count, f"{count} sessions")

    def test_data_streams_are_bounded(self):
        session, handle = self.opened("streams")
        for _ in range(session.limits.max_data_streams - 1):
            session.add_stream()
        with raw_session.connect(self.daemon.transfer) as stream:
            reply = greet(stream, data_hello=raw_session.T.DataHello(major=1, session=session.hello.session))
            self.assert_error(reply.error, EXHAUSTED, "max_data_streams", session.limits.max_data_streams)
            self.assertIsNone(raw_session.read_message(stream))
        blocks = hashes_of("streams", 64)
        self.assertEqual(session.put(handle, blocks), [self.stored()] * 64)
        self.assertEqual(session.get(handle, blocks), [payload_of(block) for block in blocks])

    def test_hellos_within_a_session_are_refused(self):
        session = self.session()
        self.assert_error(session.error(hello=raw_session.T.Hello(major=1)), FAILED_PRECONDITION, "hello")
        data_hello = raw_session.T.DataHello(major=1, session=session.hello.session)
        self.assert_error(session.error(data_hello=data_hello), FAILED_PRECONDITION, "data_hello")
        session.open("still there")

    def test_an_unknown_message_is_unimplemented_and_the_session_lives(self):
        session = self.session()
        newer = b"\x08\x07" + b"\xa2\x1f\x03new"  # request 7, field 500
        session.control.sendall(framed(newer))
        self.assert_error(session.answer(7).error, UNIMPLEMENTED, "1.0")
        self.assert_error(session.error(), UNIMPLEMENTED)
        session.open("still there")

    def test_unknown_fields_are_passed_over(self):
        session = self.session()
        message = raw_session.T.ClientMessage(request=9, open_namespace=raw_session.T.OpenNamespace(
            name="newer fields", spec=model_spec())).SerializeToString()
        session.control.sendall(framed(message + b"\xa0\x1f\x05"))  # and field 500, a number
        self.assertEqual(session.answer(9).WhichOneof("body"), "namespace_reply")


class NamespaceTest(protocol_case.ProtocolCase):

    def open_error(self, session, name="n", **spec):
        message = raw_session.T.OpenNamespace(name=name, spec=model_spec(**spec))
        return session.error(open_namespace=message)

    def test_a_handle_that_is_not_open_is_named(self):
        session, handle = self.opened("handles")
        T = raw_session.T
        chain, block = [T.ChainPart(hashes=hash_of("h"))], hash_of("h")
        for wrong in (0, handle + 1, 2**32 - 1):
            for body in ({"match": T.Match(handle=wrong, chains=chain)},
                         {"get": T.Get(handle=wrong, runs=[T.GetRun(hashes=block)])},
                         {"put": T.Put(handle=wrong, runs=[T.PutRun(hashes=block, bytes=[4096])])},
                         {"touch": T.Touch(handle=wrong, chains=chain)},
                         {"fetch_prefix": T.FetchPrefix(match=T.Match(handle=wrong, chains=chain), shards=[0])}):
                self.assert_error(session.error(**body), NOT_FOUND, "handle", wrong)

    def test_another_spec_is_refused_by_naming_the_fields_or_opens_a_sibling(self):
        first, first_handle = self.opened("shared", model_spec(weights_revision="a"))
        block = hash_of("shared")
        self.assertEqual(first.put(first_handle, [block]), [self.stored()])

        second = self.session()
        other = model_spec(weights_revision="b", kv_dtype="fp8", shard_bytes=8192)
        error = second.error(open_namespace=raw_session.T.OpenNamespace(name="shared", spec=other))
        fields = ["weights_revision", "kv_dtype", "groups[0].shard_bytes"]
        self.assert_error(error, FAILED_PRECONDITION, "shared", *fields)
        self.assertEqual(list(error.differing_fields), fields)

        reply = second.body("namespace_reply", open_namespace=raw_session.T.OpenNamespace(
            name="shared", spec=other, sibling_on_mismatch=True))
        self.assertRegex(reply.name, r"^shared~[0-9a-f]{8}$")
        self.assertEqual(list(reply.differing_fields), fields)
        again = first.body("namespace_reply", open_namespace=raw_session.T.OpenNamespace(name=reply.name, spec=other))
        self.assertEqual((again.id, list(again.differing_fields)), (reply.id, []))
        self.assert_miss(second, reply.handle, block, self.cause("NEVER_STORED"))
        self.assertEqual(first.get(first_handle, [block]), [payload_of(block)])

    def test_bad_names_and_specs_are_refused_by_field(self):
        session = self.session()
        for name in ("", "n" * 257, "line\nbreak"):
            self.assert_error(self.open_error(session, name), INVALID, "name")
        # What no protobuf library would send, nor read in a list of namespaces.
        message = raw_session.T.ClientMessage(request=session.request(), open_namespace=raw_session.T.OpenNamespace(
            name="not~text", spec=model_spec()))
        session.control.sendall(framed(message.SerializeToString().replace(b"not~text", b"not\xfftext")))
        self.assert_error(session.answer(message.request).error, INVALID, "name", "UTF-8")
        group = raw_session.types.GroupSpec
        for part, spec in {"hash_bytes": {"hash_bytes": 0}, "15": {"hash_bytes": 15}, "65": {"hash_bytes": 65},
                           "model": {"model": ""}, "groups": {"groups": [group(kind=1, tokens_per_block=1)] * 17},
                           "shards": {"shards": 257}, "shard_bytes": {"shard_bytes": (64 << 20) + 1},
                           "tokens_per_block": {"groups": [group(kind=1, shards=1, shard_bytes=1)]},
                           "window_tokens": {"groups": [group(kind=2, tokens_per_block=16, shards=1,
                                                              shard_bytes=1)]}}.items():
            self.assert_error(self.open_error(session, **spec), INVALID, part)
        self.assert_error(self.open_error(session, hash_bytes=65, allow_short_hashes=True), INVALID, "hash_bytes")
        session.open("short", model_spec(hash_bytes=1, allow_short_hashes=True))

    def test_open_namespaces_of_a_session_are_bounded(self):
        session = self.session(streams=0)
        most = session.limits.max_namespaces
        requests = [session.send(open_namespace=raw_session.T.OpenNamespace(name=f"many-{i}", spec=model_spec()))
                    for i in range(most)]
        handles = [session.answer(request).namespace_reply.handle for request in requests]
        self.assertEqual(handles, list(range(1, most + 1)))
        self.assert_error(self.open_error(session, "one more"), EXHAUSTED, "namespaces", most)
        self.assertEqual(session.open("many-7"), handles[7])  # an open one may be opened again

    def test_the_view_is_this_node(self):
        view = self.session().body("view", get_view=raw_session.T.GetView())
        self.assertEqual(list(view.nodes), ["raw-node"])
        self.assertEqual(view.digest, hashlib.sha256(b"raw-node\n").digest())


class ValueTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        spec = model_spec(shards=2, shard_bytes=8192)
        self.one, self.handle = self.opened("values", spec)
        self.hashes = hash_of("v0") + hash_of("v1")

    def chain(self, **fields):
        return raw_session.T.ChainPart(**{"hashes": self.hashes, **fields})

    def run_errors(self, code, *parts, **fields):
        """A run with these fields is refused in get and put."""
        T = raw_session.T
        get = T.GetRun(**{"hashes": self.hashes, **fields})
        put = T.PutRun(**{"hashes": self.hashes, "bytes": [8192], **fields})
        good = {"hashes": hash_of("good")}
        self.assert_error(self.one.error(get=T.Get(handle=self.handle, runs=[T.GetRun(**good), get])), code,
                          "runs[1]", *parts)
        self.assert_error(self.one.error(put=T.Put(handle=self.handle, runs=[T.PutRun(bytes=[8192], **good), put])),
                          code, "runs[1]", *parts)

    def chain_errors(self, code, *parts, touch=True, **fields):
        """A chain with these fields is refused in match, fetch and touch."""
        T = raw_session.T
        match = T.Match(handle=self.handle, chains=[self.chain(**fields)])
        self.assert_error(self.one.error(match=match), code, "chains[0]", *parts)
        # The shards are checked first, and against the group.
        self.assert_error(self.one.error(fetch_prefix=T.FetchPrefix(match=match, shards=[0])), code, *parts)
        if touch:
            body = T.Touch(handle=self.handle, chains=[self.chain(**fields)])
            self.assert_error(self.one.error(touch=body), code, "chains[0]", *parts)

    def test_hashes_of_a_wrong_length(self):
        for size in (15, 31, 33, 65):
            self.run_errors(INVALID, "hashes", size, 32, hashes=b"x" * size)
            self.chain_errors(INVALID, "hashes", size, 32, hashes=b"x" * size)
        self.run_errors(INVALID, "hashes", hashes=b"")
        for size in (15, 31, 64):
            body = raw_session.T.PutRun(hashes=self.hashes, bytes=[8192], parent=b"p" * size)
            self.assert_error(self.one.error(put=raw_session.T.Put(handle=self.handle, runs=[body])), INVALID,
                              "runs[0].parent", size)

    def test_nothing_asked_for(self):
        T = raw_session.T
        self.assert_error(self.one.error(get=T.Get(handle=self.handle)), INVALID, "runs")
        self.assert_error(self.one.error(put=T.Put(handle=self.handle)), INVALID, "runs")
        match = T.Match(handle=self.handle)
        self.assert_error(self.one.error(match=match), INVALID, "chains")
        self.assert_error(self.one.error(fetch_prefix=T.FetchPrefix(match=match, shards=[0])), INVALID, "chains")
        match.chains.append(self.chain())
        self.assert_error(self.one.error(fetch_prefix=T.FetchPrefix(match=match)), INVALID, "shards")

    def test_groups_and_shards_out_of_range(self):
        self.run_errors(INVALID, "group", 1, group=1)
        self.chain_errors(INVALID, "group", 4000000000, group=4000000000)
        self.run_errors(INVALID, "shard", 2, shard=2)
        match = raw_session.T.Match(handle=self.handle, chains=[self.chain()])
        fetch = raw_session.T.FetchPrefix(match=match, shards=[1, 2])
        self.assert_error(self.one.error(fetch_prefix=fetch), INVALID, "shards[1]", 2)
        match = raw_session.T.Match(handle=self.handle, chains=[self.chain(), self.chain()])
        self.assert_error(self.one.error(match=match), INVALID, "chains[1].group", "twice")

    def test_a_chain_that_begins_beyond_the_local_hit(self):
        self.chain_errors(INVALID, "first_block", 1, first_block=1, touch=False)
        self.chain_errors(INVALID, "first_block", first_block=2**63, touch=False)
        match = raw_session.T.Match(handle=self.handle, chains=[self.chain()], local_tokens=2**60)
        self.assert_error(self.one.error(match=match), INVALID, "local_tokens")

    def test_payload_lengths_that_the_spec_does_not_allow(self):
        T = raw_session.T

        def error(handle, *sizes):
            return self.one.error(put=T.Put(handle=handle, runs=[T.PutRun(hashes=self.hashes, bytes=sizes)]))

        for size in (0, 1, 8191, 8193, 2**40):
            self.assert_error(error(self.handle, size), INVALID, "bytes", size, 8192)
            self.assert_error(error(self.handle, 8192, size), INVALID, "bytes", size, 8192)
        for sizes in ((), (8192,) * 3):
            self.assert_error(error(self.handle, *sizes), INVALID, "bytes", len(sizes))
        variable = self.one.open("variable", model_spec(shard_bytes=8192, exact=False))
        for size in (0, 8193):
            self.assert_error(error(variable, size), INVALID, "bytes", size, 8192)

    def test_ranges_beyond_the_shard(self):
        for offset, size in ((8192, 0), (8192, 1), (0, 8193), (8191, 2), (1, 8192), (2**64 - 1, 2), (2, 2**64 - 1)):
            run = raw_session.T.GetRun(hashes=self.hashes, offset=offset, bytes=size)
            error = self.one.error(get=raw_session.T.Get(handle=self.handle, runs=[run]))
            self.assert_error(error, INVALID, "runs[0]", "offset", 8192)

    def test_batches_beyond_the_limit(self):
        T = raw_session.T
        most = self.one.limits.max_items
        half, other = hash_of("many") * (most // 2), hash_of("many") * (most // 2 + 1)
        get = T.Get(handle=self.handle, runs=[T.GetRun(hashes=half), T.GetRun(hashes=other)])
        self.assert_error(self.one.error(get=get), INVALID, most + 1, most)
        put = T.Put(handle=self.handle, runs=[T.PutRun(hashes=hashes, bytes=[8192]) for hashes in (half, other)])
        self.assert_error(self.one.error(put=put), INVALID, most + 1, most)
        match = T.Match(handle=self.handle, chains=[T.ChainPart(hashes=half + other)])
        self.assert_error(self.one.error(match=match), INVALID, most)
        self.assert_error(self.one.error(touch=T.Touch(handle=self.handle, chains=match.chains)), INVALID, most)
        match = T.Match(handle=self.handle, chains=[T.ChainPart(hashes=other)])  # two shards each
        self.assert_error(self.one.error(fetch_prefix=T.FetchPrefix(match=match, shards=[0, 1])), INVALID, most)
        self.assertEqual(self.one.match(self.handle, [half, half]).usable_tokens, 0)

    def test_request_numbers_that_are_0_or_in_use(self):
        T = raw_session.T
        waiting = self.one.start_put(self.handle, [hash_of("waits")], (), size=8192)
        bodies = {"get": T.Get(handle=self.handle, runs=[T.GetRun(hashes=self.hashes)]),
                  "put": T.Put(handle=self.handle, runs=[T.PutRun(hashes=self.hashes, bytes=[8192])]),
                  "match": T.Match(handle=self.handle, chains=[self.chain()]),
                  "touch": T.Touch(handle=self.handle, chains=[self.chain()]),
                  "get_view": T.GetView(),
                  "fetch_prefix": T.FetchPrefix(match=T.Match(handle=self.handle, chains=[self.chain()]), shards=[0])}
        for name, body in bodies.items():
            for request in (0, waiting):
                with self.subTest(message=name, request=request):
                    self.assert_error(self.one.error(request, **{name: body}), INVALID, "request", request)
        self.one.wait(lambda: self.one.pulls, "the pull")
        self.one.send_item(waiting, 0, payload_of(hash_of("waits"), 8192))
        self.assertEqual(self.one.end_put(waiting), [self.stored()])

    def test_priorities_above_7(self):
        T = raw_session.T
        for name, body in {"get": T.Get(handle=self.handle, runs=[T.GetRun(hashes=self.hashes)], priority=8),
                           "put": T.Put(handle=self.handle, runs=[T.PutRun(hashes=self.hashes, bytes=[8192])],
                                        priority=2**32 - 1),
                           "fetch_prefix": T.FetchPrefix(match=T.Match(handle=self.handle, chains=[self.chain()]),
                                                         shards=[0], priority=8)}.items():
            self.assert_error(self.one.error(**{name: body}), INVALID, "priority", body.priority, 7)

    def test_requests_under_way_are_bounded(self):
        most = self.one.limits.max_requests
        requests = [self.one.start_put(self.handle, [hash_of("under way", i)], (), size=8192) for i in range(most)]
        get = raw_session.T.Get(handle=self.handle, runs=[raw_session.T.GetRun(hashes=self.hashes)])
        self.assert_error(self.one.error(get=get), EXHAUSTED, most)
        for request in requests:
            self.one.send(request, cancel=raw_session.T.Cancel())
        for request in requests:
            self.assertEqual(self.one.end_put(request), [self.refused("CANCELLED")])
        self.assertEqual(self.one.get(self.handle, [hash_of("v0")]), [("miss", self.cause("NEVER_STORED"))])

    def test_what_is_over_may_be_cancelled_credited_and_confirmed(self):
        T = raw_session.T
        for request in (0, 5, 2**64 - 1):
            self.one.send(request, cancel=T.Cancel())
            self.one.send(request, credit=T.Credit(bytes=2**64 - 1))
            self.one.send(request, delivered=T.Delivered(items=1, bytes=1, corrupt_items=[0, 2**32 - 1]))
        self.one.body("view", get_view=T.GetView())
        self.assertEqual([request for request, left in self.one.messages.items() if left], [])


if __name__ == "__main__":
    protocol_case.main()
