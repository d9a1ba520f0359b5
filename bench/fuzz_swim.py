"""Mutate packets into the decoder of membership, and into a member that lives; count what comes of it.

    python bench/fuzz_swim.py --seconds 600 --seed 1

Anything but a PacketError, an accepted packet that encodes to other bytes, a packet of ours above 1,200 bytes, or a
member that is not itself any more is a finding: it is printed with its bytes as hex, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections import Counter
from pathlib import Path

from ropeway.cluster.simulation import CLUSTER, World, node_id
from ropeway.cluster.swim import PacketError, State, Swim
from ropeway.cluster.swim.packets import PACKET_BYTES, decode_packet, encode_body, with_records
from ropeway.cluster.swim.records import encode_record
from ropeway.wire.capture import parse_hex

GOLDEN = Path(__file__).parents[1] / "tests" / "cluster" / "swim" / "golden"
INTERESTING = (0, 1, 2, 3, 0x3F, 0x40, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def corpus() -> list[bytes]:
    """The golden packets as ours, and what a real cluster said in a minute."""
    golden = [parse_hex(path.read_text()) for path in sorted(GOLDEN.glob("*.hex"))]
    ours = [raw[:8] + CLUSTER + raw[16:] for raw in golden]
    world = World(1)
    heard: list[bytes] = []
    original = World._deliver

    def listen(self: World, sender: bytes, island: int, label: str, packet: bytes) -> None:
        heard.append(packet)
        original(self, sender, island, label, packet)

    World._deliver = listen  # type: ignore[method-assign]
    labels = world.grow(6)
    world.act(labels[1], lambda swim, now: swim.register(now, "pp-entry"))
    world.stop(labels[2])
    world.run(60.0)
    World._deliver = original  # type: ignore[method-assign]
    return ours + heard


def mutate(draw: random.Random, raw: bytes, others: list[bytes]) -> bytes:
    """Change a few bytes, bits and words, cut, repeat, put in, or join with another packet."""
    out = bytearray(raw)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(out) + 1)
        match draw.randrange(7):
            case 0 if at < len(out):
                out[at] = draw.randrange(256)
            case 1 if at < len(out):
                out[at] ^= 1 << draw.randrange(8)
            case 2 if len(out) >= at + 4:
                struct.pack_into("<I", out, at, draw.choice((*INTERESTING, draw.getrandbits(32))))
            case 3:
                del out[at : at + draw.randrange(1, 40)]
            case 4:
                out[at:at] = draw.randbytes(draw.randrange(1, 40))
            case 5:
                out[at:at] = out[at : at + draw.randrange(1, 160)]
            case _:
                out[at:] = draw.choice(others)[at:]
    if draw.random() < 0.8:
        out[:5] = b"RSWM\x01"
        out[8:16] = CLUSTER
    return bytes(out)


def decode_again(raw: bytes) -> str:
    """Decode; what is accepted must encode to the same bytes."""
    packet = decode_packet(raw)
    again = with_records(encode_body(packet.cluster, packet.body), [encode_record(record) for record in packet.records])
    if again != raw:
        raise ValueError("accepted, but encodes differently")
    return f"accepted {type(packet.body).__name__}"


def hear(swim: Swim, now: float, sender: bytes, raw: bytes) -> str:
    """Let a member hear a packet, and look whether it is still itself."""
    try:
        swim.received(now, sender, raw)
        outcome = "heard"
    except PacketError as error:
        outcome = error.fault.label
    swim.tick(now)
    for send in swim.outgoing():
        if len(send.packet) > PACKET_BYTES:
            raise ValueError(f"a packet of {len(send.packet)} bytes")
        decode_packet(send.packet)
    swim.events()
    me = swim.member(swim.id)
    if me is None or me.state is not State.ALIVE or swim.next_at() < now:
        raise ValueError("the member is not itself any more")
    return outcome


def fuzz(seconds: float, seed: int) -> tuple[Counter[str], list[str], float]:
    """Run random cases for so many seconds."""
    draw = random.Random(seed)
    seeds = corpus()
    counts: Counter[str] = Counter()
    bad: list[str] = []
    slowest_s = 0.0
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and len(bad) < 20:
        world = World(draw.getrandbits(32))
        labels = world.grow(4)
        swim = world.nodes[labels[0]].swim
        senders = [node_id(label) for label in labels[1:]] + [bytes(32)]
        for _ in range(500):
            raw = mutate(draw, draw.choice(seeds), seeds)
            world.now += draw.random() * 0.3
            began = time.perf_counter()
            try:
                try:
                    counts[decode_again(raw)] += 1
                except PacketError:
                    counts["refused by form"] += 1
                counts[f"member: {hear(swim, world.now, draw.choice(senders), raw)}"] += 1
            except Exception as error:  # noqa: BLE001 - this is what the script looks for
                bad.append(f"{error!r}: {raw.hex()}")
                break
            slowest_s = max(slowest_s, time.perf_counter() - began)
    return counts, bad, slowest_s


def main() -> int:
    """Fuzz, print the counts, and give the exit status."""
    parser = argparse.ArgumentParser(description="Mutate packets into membership's decoder and into a live member.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts, bad, slowest_s = fuzz(options.seconds, options.seed)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    cases = sum(count for name, count in counts.items() if name.startswith("member: "))
    print(f"all: {cases} cases, slowest {slowest_s * 1e3:.1f} ms")
    for line in bad:
        print(f"FOUND {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
