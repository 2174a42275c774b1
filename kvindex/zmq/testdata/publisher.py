"""A KV event publisher over the real libzmq, driven line by line from stdin.

It binds a PUB and a ROUTER socket as vLLM's ZmqEventPublisher does and prints
their ports. Each command is answered by "ok":

    send HEX    publish a payload under the next sequence number, and keep it
    lose HEX    keep it without publishing, as when the socket dropped it
    ring N      keep the last N payloads only
    old / new   layout of replay replies: without / with a topic frame
    deaf / hear do not answer / answer replay requests
    restart     close everything, bind the same ports, start from 0
    junk        publish messages that are no events
"""
import struct
import sys

import zmq

ctx = zmq.Context()
END = (-1).to_bytes(8, "big", signed=True)


def bind(pub_port, router_port):
    pub, router = ctx.socket(zmq.PUB), ctx.socket(zmq.ROUTER)
    for s in (pub, router):
        s.linger = 0
    pub.bind(f"tcp://127.0.0.1:{pub_port}")
    router.bind(f"tcp://127.0.0.1:{router_port}")
    return pub, router


def port(s):
    return int(s.last_endpoint.decode().rsplit(":", 1)[1])


pub, router = bind("*", "*")
ports = port(pub), port(router)
print(*ports, flush=True)

seq, kept, ring, topic, layout, deaf = 0, [], 10000, b"kv@test@m", "new", False


def reply(ident, *frames):
    router.send_multipart([ident, b"", *frames])


def serve():
    parts = router.recv_multipart()
    if len(parts) != 3 or deaf:
        return
    ident, _, start = parts
    for s, payload in list(kept):
        if s >= int.from_bytes(start, "big"):
            if layout == "new":
                reply(ident, topic, struct.pack(">Q", s), payload)
            else:
                reply(ident, struct.pack(">Q", s), payload)
    reply(ident, *((b"", END, b"") if layout == "new" else (END, b"")))


poller = zmq.Poller()
poller.register(0, zmq.POLLIN)
poller.register(router, zmq.POLLIN)
buffered = sys.stdin.buffer.raw
pending = b""
while True:
    events = dict(poller.poll())
    if router in events:
        serve()
    if 0 not in events:
        continue
    data = buffered.read(1 << 20)
    if not data:
        break
    pending += data
    while b"\n" in pending:
        line, pending = pending.split(b"\n", 1)
        cmd, _, arg = line.decode().partition(" ")
        if cmd in ("send", "lose"):
            payload = bytes.fromhex(arg)
            kept = (kept + [(seq, payload)])[-ring:]
            if cmd == "send":
                pub.send_multipart([topic, struct.pack(">Q", seq), payload])
            seq += 1
        elif cmd == "ring":
            ring = int(arg)
            kept = kept[-ring:]
        elif cmd in ("old", "new"):
            layout = cmd
        elif cmd in ("deaf", "hear"):
            deaf = cmd == "deaf"
        elif cmd == "junk":
            pub.send(b"one frame")
            pub.send_multipart([topic, b"short", b"\x90"])
            pub.send_multipart([topic, struct.pack(">Q", seq), b"", b"four"])
        elif cmd == "restart":
            poller.unregister(router)
            pub.close()
            router.close()
            seq, kept = 0, []
            for _ in range(100):
                try:
                    pub, router = bind(*ports)
                    break
                except zmq.ZMQError:
                    zmq.select([], [], [], 0.05)
            poller.register(router, zmq.POLLIN)
        print("ok", flush=True)
