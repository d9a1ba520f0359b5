"""What all routes share: the service, what was made once of its model, and the way to its thread and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from ropeway.api.bridge import Bridge
from ropeway.api.errors import ApiError, bad_request
from ropeway.api.metrics import Metrics
from ropeway.api.settings import Settings
from ropeway.api.tools.forms import MARKERS, form_of
from ropeway.api.transcript import TokenNames
from ropeway.serving.grammar import GrammarCompiler
from ropeway.serving.service import Service, Tokenizer
from ropeway.serving.text import ChatTemplate, TemplateError


class Front:
    """One server's state. Made once; its methods are called on the event loop or in a thread of it."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self.created = int(time.time())
        self.metrics = Metrics(service)
        self.grammars = GrammarCompiler(service.tokenizer)
        self.names = TokenNames(service.tokenizer)
        self.form = form_of(service.chat_template)
        self.markers = _control_tokens(service.tokenizer)
        self._template = _template(service)
        self._bridge: Bridge | None = None

    @property
    def bridge(self) -> Bridge:
        """The running event loop's."""
        loop = asyncio.get_running_loop()
        if self._bridge is None or self._bridge.loop is not loop:
            self._bridge = Bridge(loop)
        return self._bridge

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises ApiError (400) where there is none that can be used."""
        if isinstance(self._template, TemplateError):
            raise bad_request(f"This model cannot chat: {self._template}. Use /v1/completions.", "messages", None)
        return self._template

    def check_model(self, name: str | None) -> None:
        """Raises ApiError (404) for another model's name."""
        if name is not None and name != self.service.model_id:
            message = f"The model '{name[:200]}' does not exist here. This server has '{self.service.model_id}'."
            raise ApiError(404, "invalid_request_error", message, "model", "model_not_found")


def _template(service: Service) -> ChatTemplate | TemplateError:
    if not service.chat_template:
        return TemplateError("its checkpoint has no chat template")
    try:
        return ChatTemplate(service.chat_template, service.bos, service.eos)
    except TemplateError as error:
        return error


def _control_tokens(tokenizer: Tokenizer) -> Mapping[int, bytes]:
    """The markers of tool calls that are control tokens, which a tokenizer leaves out of text."""
    found: dict[int, bytes] = {}
    for marker in MARKERS:
        ids = tokenizer.tokenize(marker, add_special=False, parse_special=True)
        if len(ids) == 1 and not tokenizer.piece(ids[0]):
            found[ids[0]] = marker.encode()
    return found
