"""The front door on rank 0: OpenAI-compatible routes over a Service. Knows nothing of engines or stages."""

from ropeway.api.app import create_app
from ropeway.api.server import open_listener, run_server
from ropeway.api.settings import Settings, read_api_keys

__all__ = ["Settings", "create_app", "open_listener", "read_api_keys", "run_server"]
