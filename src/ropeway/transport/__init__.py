"""The only room with sockets: a ring of ranks over TCP, or over anything that gives stream sockets.

`join` brings a rank into its ring; `Ring` is all that the rest of the project sees.
"""

from ropeway.transport.config import RingConfig
from ropeway.transport.ending import RingEnded, RingLost, RingStopped
from ropeway.transport.figures import Traffic, Waits
from ropeway.transport.ring import Ring, join

__all__ = ["Ring", "RingConfig", "RingEnded", "RingLost", "RingStopped", "Traffic", "Waits", "join"]
