"""A cluster of processes on this machine: every member holds one TCP connection to the seed, over loopback.

The seed is the orchestrator. It says who is there and who has which name, and passes messages on. Both sides prove the
key of the ticket before anything else is read; a member is dead when its connection ends or nothing was heard for 6 s.
"""
