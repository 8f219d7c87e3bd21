#!/usr/bin/python3
"""Leases: whose they are, how long they last, and tokens that are none.

Usage: protocol_leases_test.py QUARRYD [unittest arguments]
"""

import protocol_case
import raw_session
from protocol_case import INVALID, NOT_FOUND
from raw_session import hash_of, payload_of

LEASE_MS = 60_000


class LeaseTest(protocol_case.ProtocolCase):

    def setUp(self):
        super().setUp()
        self.one, self.handle = self.opened("leases")
        self.block = hash_of("leased")
        self.one.put(self.handle, [self.block])

    def errors_of(self, token):
        T = raw_session.T
        get = T.Get(handle=self.handle, runs=[T.GetRun(hashes=self.block)], lease=token)
        return [self.one.error(**body) for body in ({"get": get},
                                                    {"renew_lease": T.RenewLease(lease=token, lease_ms=1000)},
                                                    {"release_lease": T.ReleaseLease(lease=token)})]

    def test_a_wrong_token_is_refused(self):
        token = self.one.match(self.handle, [self.block], lease_ms=LEASE_MS).lease
        self.assertEqual(len(token), 16)
        for wrong in (bytes(16), token[:-1], token + b"x", token[:-1] + bytes([token[-1] ^ 1])):
            for error in self.errors_of(wrong):
                self.assert_error(error, NOT_FOUND, "lease")
        for body in ({"renew_lease": raw_session.T.RenewLease(lease_ms=1000)},
                     {"release_lease": raw_session.T.ReleaseLease()}):
            self.assert_error(self.one.error(**body), NOT_FOUND, "lease")
        self.assertEqual(self.metric("quarry_leases"), 1)
        self.one.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=token))
        for error in self.errors_of(token):
            self.assert_error(error, NOT_FOUND, "lease")

    def test_any_session_of_the_tenant_may_use_a_lease(self):
        token = self.one.match(self.handle, [self.block], lease_ms=LEASE_MS).lease
        self.one.close()
        other, handle = self.opened("leases")
        self.assertEqual(other.get(handle, [self.block], lease=token), [payload_of(self.block)])
        renewed = other.body("lease_reply", renew_lease=raw_session.T.RenewLease(lease=token, lease_ms=5000))
        self.assertEqual(renewed.lease_ms, 5000)
        released = other.body("lease_reply", release_lease=raw_session.T.ReleaseLease(lease=token))
        self.assertEqual(released.lease_ms, 0)

    def test_a_lease_is_of_one_namespace(self):
        token = self.one.match(self.handle, [self.block], lease_ms=LEASE_MS).lease
        T = raw_session.T
        get = T.Get(handle=self.one.open("another"), runs=[T.GetRun(hashes=self.block)], lease=token)
        self.assert_error(self.one.error(get=get), NOT_FOUND, "lease")
        self.one.body("lease_reply", release_lease=T.ReleaseLease(lease=token))  # which needs no namespace

    def test_lease_times_are_capped_and_end(self):
        reply = self.one.match(self.handle, [self.block], lease_ms=2**32 - 1)
        self.assertEqual(reply.lease_ms, self.one.limits.max_lease_ms)
        renew = raw_session.T.RenewLease(lease=reply.lease, lease_ms=2**32 - 1)
        self.assertEqual(self.one.body("lease_reply", renew_lease=renew).lease_ms, self.one.limits.max_lease_ms)
        renew.lease_ms = 0
        self.assert_error(self.one.error(renew_lease=renew), INVALID, "lease_ms")
        renew.lease_ms = 1
        self.one.body("lease_reply", renew_lease=renew)
        raw_session.quarryd.wait_until(lambda: self.metric("quarry_leases") == 0, "the lease's end")
        for error in self.errors_of(reply.lease):
            self.assert_error(error, NOT_FOUND, "lease")

    def test_nothing_usable_is_nothing_leased(self):
        reply = self.one.match(self.handle, [hash_of("absent")], lease_ms=LEASE_MS)
        self.assertEqual((reply.usable_tokens, reply.lease, reply.lease_ms), (0, b"", 0))
        self.assertEqual(self.metric("quarry_leases"), 0)


if __name__ == "__main__":
    protocol_case.main()
