"""Weights where they are needed: a node reads only its layers' bytes of a checkpoint, wherever that lies.

`provide.py` is the file to open first.
"""
