#!/usr/bin/env python3
"""Encode texts with the tokenizer of examples/models/tiny and print tiny.jsonl.

usage: make_tiny.py > tiny.jsonl        needs: pip install tokenizers==0.23.2

The texts are those of encode.jsonl and, as hexadecimal bytes under "hex", some that are not UTF-8: these are decoded
with errors="replace" before they are encoded.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, __version__

HERE = pathlib.Path(__file__).resolve().parent
NOT_UTF8 = [
    b"\xff", b"a\xffb", b"\x80\x80\x80", b"caf\xe9 au lait", b"\xc3", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x99", b"\xf0\x9f\x99\x82\xf0\x9f",
    b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb9\x82", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"<|im_start|>\xfe\xff<|im_end|>",
    b"\xe4\xbd\xa0\xe5\xa5", b"x\xcc\x81\xccy", b"\xe0\x80\xaf", b"\xf0\x80\x80\x80", b"ok \xc3\xa9\xc3 \xa9",
]

if __version__ != "0.23.2":
    sys.exit(f"make_tiny.py: tokenizers {__version__}, want 0.23.2")
tok = Tokenizer.from_file(str(HERE.parents[2] / "examples/models/tiny/tokenizer.json"))
seen = dict.fromkeys(json.loads(line)["text"] for line in (HERE / "encode.jsonl").open(encoding="utf-8"))
for text in seen:
    print(json.dumps({"text": text, "ids": tok.encode(text, add_special_tokens=False).ids}))
for data in NOT_UTF8:
    text = data.decode("utf-8", errors="replace")
    print(json.dumps({"hex": data.hex(), "ids": tok.encode(text, add_special_tokens=False).ids}))
