"""Nodes that look after each other: membership, names, the node agent, and what talks to it.

`client.Agent` is how a program uses a cluster: an agent runs beside it as a process of its own, and is spoken to over a
Unix socket with JSON lines. Only `agent.py` and what it imports need the `iroh` extra.
"""
