"""A jinja2 environment for templates out of files that nobody vouches for.

No attribute that begins with an underscore, nothing that changes what it is given, no loader, and a budget for all the
text and all the turns of a rendering. A budget cannot stop everything inside one process (one comparison of a cleverly
nested list may take long), but endless loops and recursion, doubled strings and padded numbers end in `SecurityError`.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEP: Final = 16
"""What a turn of a loop, a call or a value costs, in characters."""

INTEGER_BITS: Final = 4096
"""The largest integer that a product or a power may give."""

REFUSED_FILTERS: Final = frozenset(
    {"batch", "center", "filesizeformat", "pprint", "random", "slice", "urlize", "wordwrap", "xmlattr"}
)
"""Filters that pad, or that no chat template has a use for."""

REFUSED_METHODS: Final = frozenset({"center", "encode", "expandtabs", "ljust", "rjust", "translate", "zfill"})
"""Methods of strings, likewise."""

WIDE_FORMAT: Final = re.compile(r"%[^%a-zA-Z]*(?:\d{4}|\*)|:[^{}]*(?:\d{4}|\{)")
"""A width of four digits or more, or one that is itself an argument, in a % or a {} format."""


class Generation(Extension):
    """`{% generation %}`, which marks the assistant's text for training; here its body is all there is to it."""

    tags: set[str] = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment. One rendering at a time: `start` gives it its budget. Raises SecurityError where it refuses."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        self._left = 0
        self._until = 0.0
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            optimized=False,  # what folds constants would run without a budget
            finalize=pass_context(lambda _, value: self.printed(value)),
        )
        self.filters = {
            name: self._metered(name, fn) for name, fn in self.filters.items() if name not in REFUSED_FILTERS
        }
        del self.globals["lipsum"]

    def start(self, characters: int, seconds: float) -> None:
        """Begin a rendering that may make so many characters and take so many seconds."""
        self._left = characters
        self._until = time.monotonic() + seconds

    def charge(self, cost: int) -> None:
        """Take from the budget."""
        self._left -= cost
        if self._left < 0:
            raise SecurityError("it makes more text, or takes more turns, than any conversation needs")
        if time.monotonic() > self._until:
            raise SecurityError("it takes too long")

    def charge_for(self, value: object) -> None:
        """Take what writing a value out would cost, everything in it counted."""
        left = [value]
        while left:
            item = left.pop()
            self.charge(STEP + len(item) if isinstance(item, str) else STEP)
            if isinstance(item, Mapping):
                left.extend(item.keys())
                left.extend(item.values())
            elif isinstance(item, (list, tuple, set, frozenset)):
                left.extend(item)

    def printed(self, value: object) -> object:
        """What an expression writes (jinja2's finalize)."""
        self.charge_for(value)
        return value

    def joined(self, *values: object) -> str:
        """The operator ~."""
        self.charge_for(values)
        return "".join(map(str, values))

    def metered(self, tree: nodes.Template) -> nodes.Template:
        """The tree with a charge at the head of all that can run more than once, and with ~ as a call."""
        for node in list(tree.find_all(nodes.Stmt)):
            if not isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
                continue
            cost = STEP + sum(len(text.data) for text in node.find_all(nodes.TemplateData))
            node.body.insert(0, nodes.ExprStmt(_call("charge", [nodes.Const(cost)], node.lineno), lineno=node.lineno))
        _Joins().visit(tree)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (bytes, int, float)) or (isinstance(obj, str) and attr in REFUSED_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse at once; jinja2 itself would print nothing and go on."""
        raise SecurityError(f"it asks for the attribute {attribute!r} of a {type(obj).__name__}")

    def getitem(self, obj: Any, argument: Any) -> Any:
        value = super().getitem(obj, argument)
        if isinstance(argument, slice):
            self.charge(_length(value))
        return value

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and WIDE_FORMAT.search(value.__self__):
            raise SecurityError("it formats to a great width")
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            if operator in ("*", "**"):
                size = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * right
                if size > INTEGER_BITS:
                    raise SecurityError("it makes a number of more than a thousand digits")
        elif operator == "*":
            times = left if isinstance(left, int) else right if isinstance(right, int) else 1
            self.charge(max(0, times) * max(_length(left), _length(right)))
        elif operator == "+":
            self.charge(_length(left) + _length(right))
        elif operator == "%" and isinstance(left, str):
            self._judge("format", left, [right])
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(obj, "__name__", "")
        if isinstance(subject := getattr(obj, "__self__", None), str):
            self._judge(name, subject, [*args, *kwargs.values()])
        elif name == "format":  # jinja2's own wrapper of str.format
            self.charge_for([*args, *kwargs.values()])
        value = super().call(context, obj, *args, **kwargs)
        self.charge(_length(value))
        return value

    def _metered(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        passed = int(hasattr(fn, "jinja_pass_arg"))

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            values = [*args[passed + 1 :], *kwargs.values()]
            if name in ("indent", "round", "tojson", "truncate") and any(
                isinstance(value, int) and abs(value) > 1000 for value in values
            ):
                raise SecurityError(f"it gives the filter {name} a great number")
            self._judge(name, args[passed], values)
            value = fn(*args, **kwargs)
            self.charge(STEP + _length(value))
            return value

        return run

    def _judge(self, name: str, subject: object, args: list[Any]) -> None:
        """Charge beforehand for a filter or a method of strings that could make much out of little."""
        if name == "format" and isinstance(subject, str) and WIDE_FORMAT.search(subject):
            raise SecurityError("it formats to a great width")
        if name in ("join", "format", "string", "tojson"):
            self.charge_for([subject, *args])
        if name == "join":
            pieces, glue = (
                (args[0], subject) if isinstance(subject, str) and args else (subject, args[0] if args else "")
            )
            self.charge(_length(pieces) * _length(glue))
        if name == "replace" and len(args) >= 2:
            old, new = str(args[0]), str(args[1])
            self.charge((str(subject).count(old) if old else _length(subject) + 1) * _length(new))


class _Joins(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 (jinja2's name)
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)


def _call(name: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=line), args, [], None, None, lineno=line)


def _length(value: object) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 0
