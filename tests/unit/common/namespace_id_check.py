#!/usr/bin/env python3
"""Checks tests/data/namespace_ids.json against the rules as the headers state them.

Written from common/include/quarry/model_spec.h and common/namespace_id.h alone, so that
the vectors do not rest on the C++ code that they test. With --write, fills in the
expected values of the vectors instead.
"""

import argparse
import hashlib
import json
import sys

TEXT_FIELDS = ["engine", "layout", "model", "weights_revision", "adapter_digest", "kv_dtype", "quantization",
               "hash_scheme", "hash_seed"]
GROUP_FIELDS = ["kind", "tokens_per_block", "window_tokens", "shards", "shard_bytes", "exact_bytes"]


def line(name, value):
    if isinstance(value, bool):
        value = int(value)
    encoded = str(value).encode("utf-8")
    return name.encode() + b":" + str(len(encoded)).encode() + b":" + encoded + b"\n"


def canonical_form(spec):
    form = line("quarry-model-spec", 1)
    for field in TEXT_FIELDS + ["hash_bytes", "allow_short_hashes", "layers"]:
        form += line(field, spec[field])
    form += line("groups", len(spec["groups"]))
    for index, group in enumerate(spec["groups"]):
        for field in GROUP_FIELDS:
            form += line(f"groups[{index}].{field}", group[field])
    return form


def expected(vector):
    form = canonical_form(vector["spec"])
    identity = line("tenant", vector["tenant"]) + line("name", vector["name"]) + form
    return {
        "canonical_form": form.decode("utf-8"),
        "namespace_id": hashlib.sha256(identity).hexdigest(),
        "sibling_name": vector["name"] + "~" + hashlib.sha256(form).hexdigest()[:8],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vectors")
    parser.add_argument("--write", action="store_true", help="fill in the expected values")
    args = parser.parse_args()
    with open(args.vectors, encoding="utf-8") as file:
        document = json.load(file)
    if args.write:
        for vector in document["vectors"]:
            vector.update(expected(vector))
        with open(args.vectors, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=True)
            file.write("\n")
        return 0
    wrong = 0
    for index, vector in enumerate(document["vectors"]):
        for field, value in expected(vector).items():
            if vector[field] != value:
                print(f"vectors[{index}].{field}: {vector[field]!r}, must be {value!r}", file=sys.stderr)
                wrong += 1
    if not document["vectors"]:
        print("no vectors", file=sys.stderr)
        wrong += 1
    print(f"{len(document['vectors'])} vectors, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
