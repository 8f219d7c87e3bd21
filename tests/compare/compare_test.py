#!/usr/bin/python3
"""tools/compare: that it works and says the truth, also where a system is missing or wrong.

Usage: compare_test.py BUILD_DIR CASE
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compare(build, *arguments, environment=None):
    result = subprocess.run([sys.executable, ROOT / "tools/compare", "--build", build, "--quick", "--json", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
                            env={**os.environ, **(environment or {})})
    print(result.stdout, result.stderr)
    return result.returncode, json.loads(result.stdout or "null"), result.stderr


def check_redis(build):
    code, report, _ = compare(build, "--peers", "redis")
    assert code == 0 and report["failures"] == []
    check_figures(report, "redis", ("put", "get", "exists"))


def check_blobdb(build):
    """Also gets before puts, and a directory that is left as it was found."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as disk:
        code, report, _ = compare(build, "--peers", "blobdb", "--ssd-dir", disk, "--ops", "get,put,exists")
        assert os.listdir(disk) == []
    assert code == 0 and report["failures"] == []
    check_figures(report, "blobdb", ("get", "put"))


def check_blobdb_nowhere(build):
    code, report, said = compare(build, "--peers", "blobdb", "--ssd-dir", "/no/such/folder")
    assert code == 1 and report["results"] == []
    assert "blobdb: not compared: --ssd-dir: /no/such/folder is not there or not writable" in said, said


def check_blobdb_wrong_bytes(build):
    """A load program whose blocks were changed on their way from the disk says so."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        program = pathlib.Path(build) / "tools/peers/peer-load-blobdb"
        sizes = ["--block", "65536", "--blocks", "64", "--batch", "4", "--connections", "2", "--hashes", "16"]
        load = subprocess.Popen([program, "--dir", scratch, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)

        def ask(command):
            load.stdin.write(command + "\n")
            load.stdin.flush()
            return json.loads(load.stdout.readline())

        try:
            assert json.loads(load.stdout.readline()) == {"ready": True}
            for command in ("prepare put", "run", "check", "prepare get"):
                answer = ask(command)
                assert answer["errors"] == 0 and answer.get("wrong", 0) == 0, (command, answer)
            # Every value is in a blob file: there, one byte becomes another.
            blobs = [path for path in pathlib.Path(scratch).iterdir() if path.suffix == ".blob"]
            assert sum(path.stat().st_size for path in blobs) > 64 * 65536
            with open(blobs[0], "r+b") as blob:
                blob.seek(65536 // 2)
                byte = blob.read(1)
                blob.seek(65536 // 2)
                blob.write(bytes([byte[0] ^ 1]))
            answer = ask("run")
            assert answer["errors"] > 0 and "BlobDB: Corruption" in answer["first_error"], answer
            # What did not come is not taken for right.
            assert ask("check")["wrong"] > 0
        finally:
            load.stdin.close()
            load.wait(30)


def check_figures(report, peer, ops):
    seen = [(result["op"], result["block_bytes"]) for result in report["results"]]
    assert seen == [(op, block) for block in (64 << 10, 2 << 20) for op in ops], seen
    for result in report["results"]:
        rate = "queries_per_s" if result["op"] == "exists" else "gb_per_s"
        for name in ("quarry", peer):
            figures = result[name]
            assert figures[rate] > 0 and 0 < figures["p50_us"] <= figures["p99_us"], figures
            assert figures["errors"] == 0 and figures["wrong"] == 0
        # The median lies among what it is the median of.
        assert min(result["rate_ratios"]) <= result["rate_ratio"] <= max(result["rate_ratios"])
        assert len(result["rate_ratios"]) == report["pairs"] == 2


def check_redis_missing(build):
    """Without the program on its path it says so and fails; a report comes all the same."""
    with tempfile.TemporaryDirectory() as empty:
        code, report, said = compare(build, "--peers", "redis", environment={"PATH": empty})
    assert code == 1 and report["results"] == []
    assert "redis: not compared: redis-server is not installed" in said, said


def check_mooncake_missing(build):
    """Where the wheel cannot be installed or loaded it says what failed; nothing is asked of the network."""
    with tempfile.TemporaryDirectory() as scratch:
        # The same programs, without the virtual environment of earlier runs.
        for name in ("server", "tools"):
            os.symlink(pathlib.Path(build) / name, pathlib.Path(scratch) / name)
        code, report, said = compare(scratch, "--peers", "mooncake",
                                     environment={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": scratch})
    assert code == 1 and report["results"] == []
    assert "mooncake: not compared: cannot install mooncake-transfer-engine-non-cuda" in said, said


def check_wrong_bytes(build):
    """A Redis that answers with other bytes than were stored, of the right length, is found out."""
    with tempfile.TemporaryDirectory() as scratch:
        fake = pathlib.Path(scratch) / "redis-server"
        shutil.copy(ROOT / "tests/compare/wrong_redis.py", fake)
        fake.chmod(0o755)
        code, report, said = compare(build, "--peers", "redis", "--ops", "get", "--block", "64KiB",
                                     environment={"PATH": f"{scratch}:{os.environ['PATH']}"})
    figures = report["results"][0]["redis"]
    # One byte of every block, in every pair's round.
    assert figures["errors"] == 0 and figures["wrong"] == 2 * (32 << 20) // (64 << 10), figures
    assert report["results"][0]["quarry"]["wrong"] == 0
    assert code == 1 and "redis, get of 65536 bytes: 0 errors, 1024 wrong bytes" in said, said


if __name__ == "__main__":
    globals()[f"check_{sys.argv[2]}"](sys.argv[1])
