"""From a judged body to what the service is asked: prompts, samplers, grammars. Not for an event loop."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropeway.api.bodies.chat import ChatBody, NamedTool, SchemaFormat, TextFormat
from ropeway.api.bodies.common import Generating
from ropeway.api.bodies.completions import MAX_REPLIES, CompletionBody
from ropeway.api.errors import ApiError, bad_request
from ropeway.api.front import Front
from ropeway.api.prompts import chat_prompt, check_length, check_tokens, text_prompt
from ropeway.api.tools.force import ToolFunction, calls_grammar
from ropeway.api.tools.reader import ToolReader
from ropeway.serving import grammar
from ropeway.serving.grammar import GrammarConstraint, GrammarError
from ropeway.serving.service import GenerateRequest

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Grammar:
    """A reply's grammar, and the field that it came from."""

    text: str
    param: str


@dataclass(frozen=True, slots=True)
class Job:
    """One API request as sequences: all choices of the first prompt, then of the next."""

    prompts: tuple[tuple[int, ...], ...]
    requests: tuple[GenerateRequest, ...]
    constraints: tuple[GrammarConstraint | None, ...]
    functions: tuple[ToolFunction, ...] = ()
    several_calls: bool = True

    def tool_reader(self, front: Front) -> ToolReader | None:
        """What finds a reply's tool calls; None where none may come."""
        names = [function.name for function in self.functions]
        return ToolReader(front.form, names, several=self.several_calls) if names else None


def chat_job(front: Front, body: ChatBody) -> Job:
    """What POST /v1/chat/completions asks for. Raises ApiError (400, 404)."""
    front.check_model(body.model)
    _check_chat(body)
    tools = [] if body.tool_choice == "none" else body.tools or []
    prompt = chat_prompt(front, body.messages, tools, body.chat_template_kwargs)
    check_length(front, prompt, "messages")
    functions = tuple(ToolFunction(tool.function.name, tool.function.parameters) for tool in tools)
    several = body.parallel_tool_calls is not False and not isinstance(body.tool_choice, NamedTool)
    return _job(
        front,
        body,
        [prompt],
        limit=body.limit,
        made=_chat_grammar(front, body, functions, several),
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        functions=functions,
        several=several,
    )


def completion_job(front: Front, body: CompletionBody) -> Job:
    """What POST /v1/completions asks for. Raises ApiError (400, 404)."""
    front.check_model(body.model)
    _check_common(body)
    if len(body.prompt) * body.choices > MAX_REPLIES:
        raise bad_request(f"Prompts times n is more than {MAX_REPLIES}.", "n")
    prompts: list[list[int]] = []
    for prompt in body.prompt:
        if not isinstance(prompt, str):
            check_tokens(front, prompt, "prompt")
        prompts.append(text_prompt(front, prompt) if isinstance(prompt, str) else prompt)
        check_length(front, prompts[-1], "prompt")
    made = None if body.grammar is None else _text_grammar(body.grammar)
    echoed = bool(body.echo) and body.logprobs is not None
    # A reply of no tokens still reads the prompt; its one token is never shown.
    limit = max(1, body.limit)
    return _job(front, body, prompts, limit=limit, made=made, top_logprobs=body.logprobs, echoed=echoed)


def _job(
    front: Front,
    body: Generating,
    prompts: Sequence[Sequence[int]],
    *,
    limit: int | None,
    made: Grammar | None,
    top_logprobs: int | None,
    echoed: bool = False,
    functions: tuple[ToolFunction, ...] = (),
    several: bool = True,
) -> Job:
    check_tokens(front, list(body.biases), "logit_bias")
    requests: list[GenerateRequest] = []
    constraints: list[GrammarConstraint | None] = []
    for prompt in prompts:
        room = front.service.context - len(prompt)
        seed = secrets.randbits(64)
        for choice in range(body.choices):
            constraint = None if made is None else _constraint(front, made)
            constraints.append(constraint)
            requests.append(
                GenerateRequest(
                    prompt=tuple(prompt),
                    max_tokens=room if limit is None else min(limit, room),
                    params=body.params(seed, choice),
                    penalties=body.penalties,
                    logit_bias=body.biases,
                    top_logprobs=top_logprobs,
                    prompt_logprobs=echoed,
                    stop_ids=front.service.tokenizer.end_tokens,
                    constraint=constraint,
                )
            )
    ids = tuple(tuple(prompt) for prompt in prompts)
    return Job(ids, tuple(requests), tuple(constraints), functions, several)


def _check_common(body: Generating) -> None:
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options is only taken with stream: true.", "stream_options")


def _check_chat(body: ChatBody) -> None:
    _check_common(body)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs is only taken with logprobs: true.", "top_logprobs")
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise bad_request("max_tokens and max_completion_tokens differ.", "max_completion_tokens")
    names = [tool.function.name for tool in body.tools or ()]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad_request(f"Two tools have the name '{twice}'.", "tools")
    if body.tools is None and body.tool_choice not in (None, "none"):
        raise bad_request("tool_choice is only taken with tools.", "tool_choice")
    if body.tools is None and body.parallel_tool_calls is not None:
        raise bad_request("parallel_tool_calls is only taken with tools.", "parallel_tool_calls")
    if isinstance(body.tool_choice, NamedTool) and body.tool_choice.function.name not in names:
        raise bad_request("tool_choice names a function that is not in tools.", "tool_choice.function.name")
    shaped = body.response_format is not None and not isinstance(body.response_format, TextFormat)
    if body.grammar is not None and shaped:
        raise bad_request("grammar and response_format exclude each other.", "grammar")
    if body.grammar is not None and body.tools and body.tool_choice != "none":
        raise bad_request("grammar and tools exclude each other, unless tool_choice is none.", "grammar")


def _chat_grammar(front: Front, body: ChatBody, functions: Sequence[ToolFunction], several: bool) -> Grammar | None:
    """Forced calls by tool_choice; else the reply's own grammar, with calls beside it where tools are given."""
    if body.grammar is not None:
        return _text_grammar(body.grammar)
    schema = _reply_schema(body)
    if not functions:
        return None if schema is None else _parts_grammar({"reply": schema}, "", "response_format")
    forced = body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)
    strict = any(tool.function.strict for tool in body.tools or ())
    if not forced and schema is None and not strict:
        return None
    if isinstance(body.tool_choice, NamedTool):
        functions = [function for function in functions if function.name == body.tool_choice.function.name]
    schemas, lark = calls_grammar(
        front.form,
        functions,
        front.grammars.literal,
        forced=forced,
        several=several,
        reply=None if forced else schema,
    )
    param = "tools" if forced or schema is None else "response_format"
    return _parts_grammar(schemas, lark, param)


def _reply_schema(body: ChatBody) -> Json | None:
    if body.response_format is None or isinstance(body.response_format, TextFormat):
        return None
    if isinstance(body.response_format, SchemaFormat):
        schema = body.response_format.json_schema.schema_
        return dict(grammar.ANY_JSON) if schema is None else schema
    return dict(grammar.JSON_OBJECT)


def _text_grammar(text: str) -> Grammar:
    try:
        return Grammar(grammar.from_text(text), "grammar")
    except GrammarError as error:
        raise _refused("grammar", error) from None


def _parts_grammar(schemas: dict[str, Json], lark: str, param: str) -> Grammar:
    try:
        return Grammar(grammar.from_parts(schemas, lark), param)
    except GrammarError as error:
        raise _refused(param, error) from None


def _constraint(front: Front, made: Grammar) -> GrammarConstraint:
    try:
        return front.grammars.constraint(made.text)
    except GrammarError as error:
        raise _refused(made.param, error) from None


def _refused(param: str, error: GrammarError) -> ApiError:
    what = "grammar" if param == "grammar" else "schema"
    return bad_request(f"Invalid {what} in '{param}': {error}.", param, f"invalid_{what}")
