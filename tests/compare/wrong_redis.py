#!/usr/bin/python3
"""Stands in for redis-server: SET, GET and DEL, but a GET's last byte is another than was stored."""

import socketserver
import sys

VALUES = {}


class Connection(socketserver.StreamRequestHandler):

    def handle(self):
        while header := self.rfile.readline():
            parts = []
            for _ in range(int(header[1:])):
                length = int(self.rfile.readline()[1:])
                parts.append(self.rfile.read(length))
                self.rfile.read(2)
            self.wfile.write(self.answer(*parts))

    def answer(self, name, key, value=None):
        if name == b"SET":
            VALUES[key] = value
            return b"+OK\r\n"
        if name == b"DEL":
            return b":1\r\n" if VALUES.pop(key, None) is not None else b":0\r\n"
        stored = VALUES[key]
        return b"$%d\r\n%s%c\r\n" % (len(stored), stored[:-1], stored[-1] ^ 1)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Connection).serve_forever()
