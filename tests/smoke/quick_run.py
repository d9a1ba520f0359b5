"""`pp-smoke-run` as a service on loopback may be asked: no pause between two requests, short ones before tries."""

from __future__ import annotations

from functools import partial

from ropeway.cli import smoke_run
from ropeway.launch import vastai
from ropeway.launch.vastai import VastAi
from ropeway.smoke import cleanup
from ropeway.smoke.renting import Pace

if __name__ == "__main__":
    setattr(smoke_run, "VastAi", partial(VastAi, gap_s=0.0, create_gap_s=0.0))  # noqa: B010 (not exported)
    setattr(smoke_run, "Pace", partial(Pace, retry_s=0.2))  # noqa: B010
    setattr(cleanup, "PAUSE_S", 0.2)  # noqa: B010
    setattr(vastai, "LOG_POLL_S", 0.1)  # noqa: B010
    smoke_run.main()
