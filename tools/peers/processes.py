"""Child processes of a comparison: started, talked to, and stopped one by one."""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

START_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 600
STOP_TIMEOUT_S = 30
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1


class CannotRun(Exception):
    """A system that could not be started, or that failed; says why."""


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_private_network():
    """Moves this process, and what it starts from now on, to a network of its own: loopback alone."""
    if _libc.unshare(CLONE_NEWNET) != 0:
        raise CannotRun(f"a network namespace of its own is refused ({os.strerror(ctypes.get_errno())}): run as root")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        siocgifflags, siocsifflags, iff_up = 0x8913, 0x8914, 1
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, siocgifflags, request))[1]
        fcntl.ioctl(any_socket, siocsifflags, struct.pack("16sh14x", b"lo", flags | iff_up))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Child:
    """A process with pipes to its stdin and stdout; stderr goes to a file."""

    def __init__(self, command, log, environment=None):
        self._name = os.path.basename(command[0])
        self._log = log
        with open(log, "ab") as stderr:
            try:
                # pylint: disable=consider-using-with, subprocess-popen-preexec-fn
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                                 env={**os.environ, **(environment or {})},
                                                 preexec_fn=_die_with_parent)
            except OSError as error:
                raise CannotRun(f"{self._name}: {error}") from error
        self.pid = self._process.pid

    def log_tail(self):
        with open(self._log, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:].strip()

    def fail(self, what):
        raise CannotRun(f"{self._name} {what}; its last words: {self.log_tail() or 'none'}")

    def read_line(self, timeout_s):
        # The pipe is read line by line by nobody else, and its programs write whole lines.
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            self.fail(f"said nothing within {timeout_s} s")
        line = self._process.stdout.readline().decode()
        if not line:
            self.fail(f"ended with status {self._process.wait()}")
        return line.rstrip("\n")

    def ask(self, command):
        """One command to a load program, and its answer."""
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.fail("is gone")
        return json.loads(self.read_line(ANSWER_TIMEOUT_S))

    def wait_for_port(self, port):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self.fail(f"ended with status {self._process.returncode}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        self.fail(f"does not listen on port {port}")

    def cpu_s(self):
        """User and system time of all its threads so far."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """By the end of its input; a server also gets SIGTERM, and what stays is killed."""
        self._process.stdin.close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
