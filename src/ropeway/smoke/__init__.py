"""`pp-smoke-run` and `pp-gpu-node`: rent machines, say hello through a ring over them, and give every one of them back.

Knows nothing of layers or rows; what a stage runs is a rank like any other.
"""
