"""Placement: facts of the machines in, a layout out. Measure, cut the model where it is fastest, never pass a limit.

All of it is pure (the standard library, no clock, no sockets) but what measures: calibration, machine and probe.
"""
