#!/usr/bin/env python3
"""Usage: exported_symbols_test.py LIBRARY NM READELF

The client library lives inside engines, beside whatever they link: it must export its
public API and nothing else, and load none of the libraries that they bring in versions of
their own.
"""
import re
import subprocess
import sys

ALLOWED = re.compile(
    r"quarry::(Client|CompletionQueue|Lease|MemoryRegion|Namespace|SharedMemory)::[~\w=]+(\[abi:cxx11\])?\("
    r"|quarry::(CanonicalForm|DifferingFields|Name|Validate)(\[abi:cxx11\])?\(quarry::"
    r"|quarry::(TotalBytes|ValidateSegments)\(absl::"
)
REQUIRED = [
    "quarry::Client::Create(",
    "quarry::Client::GetAsync(",
    "quarry::CompletionQueue::Next(",
    "quarry::Lease::Attach(",
    "quarry::MemoryRegion::~MemoryRegion(",
    "quarry::Namespace::id",
    "quarry::Name(quarry::MissCause)",
    "quarry::CanonicalForm",
    "quarry::DifferingFields",
    "quarry::Validate(quarry::ModelSpec",
    "quarry::ValidateSegments(",
    "quarry::TotalBytes(",
]
FORBIDDEN = re.compile(r"lib(protobuf|grpc|gpr|uc[pst]|ucm|cuda|cudart|ssl|crypto|spdlog|fmt|prometheus)", re.I)


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    library, nm, readelf = sys.argv[1:]
    # "address type name"
    names = [line.split(" ", 2)[2] for line in lines(nm, "-D", "--defined-only", "-C", library)]
    failures = [f"exported: {name}" for name in names if not ALLOWED.match(name)]
    failures += [f"not exported: {name}" for name in REQUIRED if not any(n.startswith(name) for n in names)]
    needed = [m.group(1) for line in lines(readelf, "-d", library) if (m := re.search(r"NEEDED.*\[(.*)\]", line))]
    failures += [f"needs: {name}" for name in needed if FORBIDDEN.match(name)]
    if not any(name.startswith("libc.so") for name in needed):
        failures.append("readelf shows no needed libraries: " + ", ".join(needed))
    print("\n".join(failures) or f"{len(names)} symbols, needs {', '.join(needed)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
