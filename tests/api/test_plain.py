"""The small routes: models, tokens, health, metrics, the ring."""

from __future__ import annotations

import openai
from prometheus_client.parser import text_string_to_metric_families

from api.live import Live


def test_models(client: openai.OpenAI, live: Live) -> None:
    assert [model.id for model in client.models.list()] == [live.service.model_id]
    model = client.models.retrieve(live.service.model_id)
    assert (model.object, model.owned_by) == ("model", "ropeway")
    assert live.ask("GET", f"/v1/models/{live.service.model_id}").json["context_length"] == live.service.context
    assert live.ask("GET", "/v1/models/other").error["code"] == "model_not_found"


def test_tokens_and_back(live: Live) -> None:
    text = "hello<|im_end|> é"
    answer = live.ask("POST", "/tokenize", {"prompt": text, "return_token_strs": True}).json
    assert answer["tokens"] == live.service.tokenizer.ids(text)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == live.service.context
    assert answer["token_strs"][:2] == ["hello", "<|im_end|>"]
    assert live.ask("POST", "/detokenize", {"tokens": answer["tokens"]}).json == {"prompt": text}


def test_messages_are_tokenized_as_a_chat_is(live: Live) -> None:
    messages = [{"role": "user", "content": "hi"}]
    live.chat("hi")
    answer = live.ask("POST", "/tokenize", {"messages": messages}).json
    assert tuple(answer["tokens"]) == live.service.requests[0].prompt
    bare = live.ask("POST", "/tokenize", {"messages": messages, "add_generation_prompt": False}).json
    assert bare["count"] < answer["count"]


def test_bad_tokens(live: Live) -> None:
    assert live.ask("POST", "/detokenize", {"tokens": [270]}).error["param"] == "tokens"
    assert live.ask("POST", "/detokenize", {"tokens": [-1]}).error["param"] == "tokens"
    assert live.ask("POST", "/tokenize", {}).status == 400
    assert live.ask("POST", "/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": ""}]}).status == 400
    assert live.ask("POST", "/tokenize", {"prompt": "x", "model": "other"}).status == 404


def test_the_ring(live: Live) -> None:
    assert live.ask("GET", "/v1/ring").json["throughput"]["tokens_per_s"] == 12.5


def test_metrics(live: Live) -> None:
    def figures() -> dict[str, float]:
        answer = live.ask("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.body.decode())
        samples = [sample for family in families for sample in family.samples]
        return {f"{s.name}{sorted(s.labels.values())}": s.value for s in samples if not s.name.endswith("_created")}

    before = figures()
    live.service.cached = 4
    live.service.reply = lambda _: live.service.tokenizer.ids("abc")
    live.chat(n=2)
    live.chat(max_tokens=2, stream=True)
    live.chat(n=0)
    after = figures()

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    prompt = len(live.service.requests[0].prompt)
    assert rise("ropeway_prompt_tokens_total[]") == 3 * prompt
    assert rise("ropeway_cached_prompt_tokens_total[]") == 12
    assert rise("ropeway_completion_tokens_total[]") == 4 + 4 + 2
    assert rise("ropeway_replies_total['stop']") == 2
    assert rise("ropeway_replies_total['length']") == 1
    assert rise("ropeway_http_requests_total['200', 'chat']") == 2
    assert rise("ropeway_http_requests_total['400', 'chat']") == 1
    assert rise("ropeway_time_to_first_token_seconds_count[]") == 3
    assert rise("ropeway_time_between_tokens_seconds_count[]") == 7
    assert after["ropeway_ready[]"] == 1
    assert after["ropeway_throughput_tokens_per_s[]"] == 12.5
    assert after["ropeway_prompt_cache_hits_total[]"] == 3
    assert after["ropeway_prompt_cache_entries[]"] == 1
    assert after["ropeway_stage_end['1']"] == 3
    assert after["ropeway_stage_share_forward['0']"] == 0.5
    assert after["ropeway_stage_share_wire['1']"] == 0.25
    assert after["ropeway_overlap_efficiency[]"] == 0.75
    assert after["ropeway_overlap_at_work[]"] == 1.5
    assert "ropeway_overlap_efficiency[]" not in before, "nothing was under way"
    assert after["ropeway_http_requests_in_flight[]"] == 1  # the one that asks
    live.service.lose_ring()
    assert figures()["ropeway_ready[]"] == 0
