"""A checkpoint's chat template: messages in, the prompt's text out, as transformers renders it.

The template is not trusted (sandbox.py); the messages are plain JSON values. Knows nothing of tokens.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2

from ropeway.serving.sandbox import Sandbox

SOURCE_LIMIT: Final = 1 << 20
"""Characters of the longest template taken."""

BUDGET: Final = 8_000_000
"""Characters that a rendering may make, and 32 times the size of what it is given."""

RENDER_LIMIT_S: Final = 10.0


class TemplateError(Exception):
    """The template cannot be used, or not for these messages; the text is for people.

    `refused` says that the template itself judged the messages (its `raise_exception`), so the request is to blame.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class ChatTemplate:
    """A compiled template. Thread-safe. Raises TemplateError, on loading and on rendering."""

    def __init__(
        self,
        source: str,
        bos: str = "",
        eos: str = "",
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        if len(source) > SOURCE_LIMIT:
            raise TemplateError(f"the chat template has {len(source)} characters, at most {SOURCE_LIMIT} are taken")
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._now = now
        self._lock = threading.Lock()
        self._sandbox = Sandbox()
        self._sandbox.globals |= {"raise_exception": _raise, "strftime_now": self._strftime_now}
        self._sandbox.filters["tojson"] = self._tojson
        try:
            tree = self._sandbox.metered(self._sandbox.parse(source))
            code = self._sandbox.compile(tree, name="chat template", filename="chat template")
            self._template = jinja2.Template.from_code(self._sandbox, code, self._sandbox.globals)
        except Exception as error:
            raise TemplateError(f"the chat template cannot be read: {_describe(error)}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text for `messages` (role, content, ...); `extra` are further variables (enable_thinking)."""
        given: dict[str, Any] = {**self._tokens, **(extra or {})}
        given |= {"messages": messages, "add_generation_prompt": add_generation_prompt, "tools": tools or None}
        given.setdefault("documents", None)
        with self._lock:
            try:
                self._sandbox.start(BUDGET + 32 * _size(given), RENDER_LIMIT_S)
                return "".join(self._template.generate(given))
            except TemplateError:
                raise
            except Exception as error:
                raise TemplateError(f"the chat template failed: {_describe(error)}") from error

    def _strftime_now(self, format: str) -> str:
        if len(format) > 100:
            raise TemplateError("the chat template asks for the date in a format of more than 100 characters")
        return self._now().strftime(format)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """transformers' filter of this name: no escaping for HTML."""
        self._sandbox.charge_for(value)
        if indent is not None and not 0 <= indent <= 16:
            raise TemplateError(f"the chat template indents JSON by {indent}")
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(text: object) -> NoReturn:
    """`raise_exception` of a template: it will not take these messages."""
    raise TemplateError(str(text), refused=True)


def _size(value: object) -> int:
    """Characters of a JSON value, about."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(key) + _size(inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return 1


def _describe(error: Exception) -> str:
    text = str(error) or "no reason given"
    line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    return f"{type(error).__name__}: {text[:500]}{line}"
