"""How a rented node gives itself back when nobody is left who would: by the service's key for this one instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx

from ropeway.launch.vastai import API
from ropeway.smoke.environment import NodeSettings

TRIES: Final = 5
TIMEOUT_S: Final = 15.0
FIRST_PAUSE_S: Final = 2.0


def self_destruct(settings: NodeSettings, say: Callable[[str], None], sleep: Callable[[float], None]) -> bool:
    """Destroy this instance; where its key may not, stop it. False where neither was to be had.

    vast.ai gives every container CONTAINER_ID and CONTAINER_API_KEY; what that key allows is in no document we know.
    """
    if not settings.container_id or not settings.container_key:
        say("no CONTAINER_ID and CONTAINER_API_KEY: only this process ends, its machine may go on costing money")
        return False
    url = f"{settings.server.rstrip('/')}{API}/instances/{settings.container_id}/"
    headers = {"Authorization": f"Bearer {settings.container_key}"}
    pause_s = FIRST_PAUSE_S
    with httpx.Client(timeout=TIMEOUT_S, headers=headers, trust_env=url.startswith("https:")) as client:
        for _ in range(TRIES):
            try:
                status = client.request("DELETE", url, json={}).status_code
                if status in (401, 403):
                    status = client.put(url, json={"state": "stopped"}).status_code
            except httpx.HTTPError as error:
                say(f"this instance could not be destroyed yet: {type(error).__name__}")
            else:
                if status in (200, 404):
                    say("this instance has destroyed itself")
                    return True
                say(f"this instance could not be destroyed yet: status {status}")
            sleep(pause_s)
            pause_s *= 2
    return False
