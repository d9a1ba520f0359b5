"""Membership as a sans-IO core (SWIM with Lifeguard): no sockets, no clock, no randomness of its own.

Who drives it, such as the node agent over iroh's datagrams, does this (docs/membership.md, Driving it):

    me = Statement(my_key, start=wall_clock_ms, label=host, address=ticket)
    swim = Swim(me, cluster_8_bytes, WAN, Random(seed), now, seal)
    swim.join(now, [Contact(key, address), ...])   # from the ticket; tried again until somebody answers
    loop:
        wait for a datagram, or until swim.next_at()
        swim.received(now, key_of_the_connection, datagram)   # PacketError: close that connection with its name
        swim.tick(now)
        for send in swim.outgoing(): datagram to send.to, dialling send.address if need be; losing it is no error
        for event in swim.events(): act on it
    swim.leave(now); send what is outgoing, for a few gossip intervals

`now` is any clock in seconds that never runs backwards (`time.monotonic()`), the same in every call. The driver lets a
connection in only after it has proved the cluster's key, and passes the connection's own public key as the sender:
that is what ties a member to its name. Only `received` judges foreign bytes, and PacketError is all that it raises.
"""

from ropeway.cluster.swim.core import Swim
from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.events import (
    Died,
    Event,
    Forgotten,
    Joined,
    Left,
    NameGone,
    NameSet,
    Outlived,
    Recovered,
    Refused,
    Send,
    Suspected,
    Updated,
)
from ropeway.cluster.swim.timing import LAN, WAN, Timing
from ropeway.cluster.swim.values import Contact, Draws, Member, Seal, State, Statement, Unsealed

__all__ = [
    "LAN",
    "WAN",
    "Contact",
    "Died",
    "Draws",
    "Event",
    "Fault",
    "Forgotten",
    "Joined",
    "Left",
    "Member",
    "NameGone",
    "NameSet",
    "Outlived",
    "PacketError",
    "Recovered",
    "Refused",
    "Seal",
    "Send",
    "State",
    "Statement",
    "Suspected",
    "Swim",
    "Timing",
    "Unsealed",
    "Updated",
]
