"""Writes hashes.json: block hashes computed by python-xxhash, for hash_test.go.

    pip install xxhash && python hashes.py > hashes.json
"""
import json
import struct
import sys

import xxhash


def root(model, adapter, salt, block_size):
    b = b"warmroute/block/1" + struct.pack("<Q", block_size)
    for s in (model, adapter, salt):
        s = s.encode()
        b += struct.pack("<Q", len(s)) + s
    return xxhash.xxh3_64_intdigest(b)


def chain(parent, tokens, block_size):
    out = []
    for i in range(0, len(tokens) - block_size + 1, block_size):
        b = struct.pack("<Q", parent) + b"".join(struct.pack("<I", t) for t in tokens[i : i + block_size])
        parent = xxhash.xxh3_64_intdigest(b)
        out.append(parent)
    return out


def ids(n, start=0):
    return [(start + i * 7919) % 152064 for i in range(n)]


cases = []
for name, (model, adapter, salt), size, tokens in [
    ("no tokens", ("m", "", ""), 16, []),
    ("one token short of a block", ("m", "", ""), 16, ids(15)),
    ("exactly one block", ("m", "", ""), 16, ids(16)),
    ("two blocks and a rest", ("m", "", ""), 16, ids(37)),
    ("an adapter", ("m", "adapter-a", ""), 16, ids(32)),
    ("a salt", ("m", "", "adapter-a"), 16, ids(32)),
    ("an adapter and a salt", ("m", "a", "s"), 16, ids(32)),
    ("names that run together elsewhere", ("ma", "", ""), 16, ids(16)),
    ("multibyte names", ("模型", "ádapter", "🧂"), 16, ids(16)),
    ("blocks of one token", ("m", "", ""), 1, [0, 4294967295, 1]),
    ("blocks of 64", ("m", "", ""), 64, ids(130)),
    ("the largest block hashed in one piece", ("m", "", ""), 128, ids(256)),
    ("a larger block", ("m", "", ""), 129, ids(258)),
    ("a block of many pieces", ("m", "", ""), 1056, ids(1056, 5)),
]:
    r = root(model, adapter, salt, size)
    cases.append(
        {
            "name": name, "model": model, "adapter": adapter, "salt": salt, "block_size": size, "tokens": tokens,
            "root": f"{r:016x}", "hashes": [f"{h:016x}" for h in chain(r, tokens, size)],
        }
    )
json.dump(
    {"tool": f"xxhash {xxhash.VERSION} (libxxhash {xxhash.XXHASH_VERSION}), Python {sys.version.split()[0]}", "command": "python hashes.py > hashes.json", "cases": cases},
    sys.stdout, ensure_ascii=False,
)
print()
