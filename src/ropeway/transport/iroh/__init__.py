"""Streams and datagrams between nodes over iroh: QUIC with TLS 1.3, through home routers, by the key of a node.

Only `binding.py` and `endpoint.py` touch the `iroh` extra; `proof.py` and `streams.py` need no network. A ring is
carried by the agent's process: ranks speak to it over Unix sockets (`transport/switched.py`), in the same frames.
"""
