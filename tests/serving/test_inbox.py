"""Requests between the front door's threads and the loop's: each leaves once, whatever comes together."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from ropeway.serving.chooser import Job
from ropeway.serving.inbox import End, Inbox
from ropeway.serving.sequence import Finish, SamplingParams
from ropeway.serving.service import (
    FailedEvent,
    GenerateEvent,
    GenerateRequest,
    QueueFull,
    RingUnavailable,
    TokenEvent,
)

REQUEST = GenerateRequest((1, 2, 3), 4, SamplingParams(seed=9), stop_ids=frozenset({7}), prompt_logprobs=True)


def nobody(_: GenerateEvent) -> None:
    raise AssertionError("no event was due")


def test_mail_comes_in_order_and_once() -> None:
    inbox = Inbox(2)
    first, second = inbox.submit(REQUEST, 1, nobody), inbox.submit(REQUEST, 1, nobody)
    inbox.end(first, Finish.STOP)
    assert inbox.wake.is_set()
    one, two, end = inbox.take()
    assert isinstance(one, Job)
    assert isinstance(two, Job)
    assert (one.sequence.id, two.sequence.id, end) == (first, second, End(first, Finish.STOP))
    assert first < second
    assert inbox.take() == []
    assert inbox.live == 2


def test_a_job_carries_what_the_request_asks() -> None:
    inbox = Inbox(2)
    inbox.submit(REQUEST, 1, nobody)
    (job,) = inbox.take()
    assert isinstance(job, Job)
    s = job.sequence
    assert (s.prompt, s.max_tokens, s.params) == (REQUEST.prompt, REQUEST.max_tokens, REQUEST.params)
    assert s.stop_ids == {7}
    assert s.every_row
    assert job.queued_ns > 0 == job.entered_ns


def test_the_queue_is_bounded_beside_those_that_run() -> None:
    inbox = Inbox(2)
    numbers = [inbox.submit(REQUEST, 3, nobody) for _ in range(5)]
    with pytest.raises(QueueFull, match="2 requests are waiting already") as caught:
        inbox.submit(REQUEST, 3, nobody)
    assert caught.value.retry_after_s > 0
    inbox.ended(numbers[1])
    inbox.submit(REQUEST, 3, nobody)
    assert inbox.live == 5


@pytest.mark.parametrize(
    ("field", "bad"), [("prompt", replace(REQUEST, prompt=())), ("max_tokens", replace(REQUEST, max_tokens=0))]
)
def test_what_no_ring_could_serve_is_refused_on_the_callers_thread(field: str, bad: GenerateRequest) -> None:
    inbox = Inbox(2)
    with pytest.raises(ValueError, match=f"^{field}: "):
        inbox.submit(bad, 1, nobody)
    assert inbox.live == 0


def test_ends_of_what_has_ended_are_let_be() -> None:
    inbox = Inbox(2)
    number = inbox.submit(REQUEST, 1, nobody)
    inbox.take()
    inbox.ended(number)
    inbox.ended(number)
    inbox.end(number, Finish.CANCELLED)
    inbox.end(99, Finish.CANCELLED)
    assert inbox.take() == []


def test_closing_tells_everyone_and_lets_nobody_in_until_it_opens() -> None:
    inbox = Inbox(4)
    told: list[tuple[int, GenerateEvent]] = []

    def hear(index: int, event: GenerateEvent) -> None:
        told.append((index, event))

    for index in range(3):
        inbox.submit(REQUEST, 1, partial(hear, index))
    inbox.close("rank 1 was lost")
    inbox.close("rank 1 was lost")
    assert told == [(index, FailedEvent("rank 1 was lost")) for index in range(3)]
    assert (inbox.live, inbox.take()) == (0, [])
    with pytest.raises(RingUnavailable, match="rank 1 was lost") as caught:
        inbox.submit(REQUEST, 1, nobody)
    assert caught.value.retry_after_s > 0
    inbox.open()
    assert inbox.submit(REQUEST, 1, nobody) == 3


def test_waiting_until_it_is_empty() -> None:
    inbox = Inbox(4)
    inbox.wait_empty(10)
    number = inbox.submit(REQUEST, 1, nobody)
    inbox.wait_empty(0.0)
    assert inbox.live == 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(inbox.wait_empty, 10)
        inbox.ended(number)
        waiting.result(5)
        inbox.submit(REQUEST, 1, lambda _: None)
        waiting = pool.submit(inbox.wait_empty, 10)
        inbox.close("gone")
        waiting.result(5)


def test_a_submit_that_meets_a_loss_is_refused_or_told() -> None:
    """Many threads submit while the inbox closes and opens: each request hears of its end just once."""
    inbox = Inbox(10_000)
    accepted: list[int] = []
    ended: Counter[int] = Counter()
    go, stop = threading.Barrier(5), threading.Event()

    def hear(index: int, _: GenerateEvent) -> None:
        ended.update([index])

    def submit(first: int) -> None:
        go.wait()
        for index in count(first, 4):
            if len(accepted) > 1000:
                return
            try:
                inbox.submit(REQUEST, 1, partial(hear, index))
            except RingUnavailable:
                continue
            accepted.append(index)

    def lose() -> None:
        go.wait()
        while not stop.is_set():
            inbox.open()
            for mail in inbox.take()[:1]:
                assert isinstance(mail, Job)
            inbox.close("lost")

    with ThreadPoolExecutor(5) as pool:
        losing = pool.submit(lose)
        for submitting in [pool.submit(submit, thread) for thread in range(4)]:
            submitting.result(60)
        stop.set()
        losing.result(20)
    assert ended == Counter(accepted)
    assert inbox.live == 0


def test_nothing_is_told_behind_the_last_event() -> None:
    inbox = Inbox(4)
    told: list[GenerateEvent] = []
    inbox.submit(REQUEST, 1, told.append)
    (job,) = inbox.take()
    assert isinstance(job, Job)
    first, last = TokenEvent(5), TokenEvent(6, None, Finish.STOP)
    assert inbox.tell(job, first)
    assert inbox.tell(job, last, last=True)
    assert not inbox.tell(job, first)
    inbox.close("gone")
    assert told == [first, last]
    assert inbox.live == 0


def test_who_is_told_of_its_end_has_left_already() -> None:
    inbox = Inbox(0)
    again: list[int] = []
    inbox.submit(REQUEST, 1, lambda _: again.append(inbox.submit(REQUEST, 1, nobody)))
    (job,) = inbox.take()
    assert isinstance(job, Job)
    assert inbox.tell(job, TokenEvent(6, None, Finish.STOP), last=True)
    assert again == [1]


def test_tokens_that_race_with_a_loss_come_before_it_or_not_at_all() -> None:
    for _ in range(100):
        inbox = Inbox(4)
        told: list[GenerateEvent] = []
        inbox.submit(REQUEST, 1, told.append)
        (job,) = inbox.take()
        assert isinstance(job, Job)
        go = threading.Barrier(2)

        def tokens(inbox: Inbox = inbox, job: Job = job, go: threading.Barrier = go) -> int:
            go.wait()
            return sum(inbox.tell(job, TokenEvent(token), last=token == 19) for token in range(20))

        def lose(inbox: Inbox = inbox, go: threading.Barrier = go) -> None:
            go.wait()
            inbox.close("lost")

        with ThreadPoolExecutor(2) as pool:
            heard, losing = pool.submit(tokens), pool.submit(lose)
            losing.result(10)
            tokens_heard = heard.result(10)
        assert told[:tokens_heard] == [TokenEvent(token) for token in range(tokens_heard)]
        assert told[tokens_heard:] == ([] if tokens_heard == 20 else [FailedEvent("lost")])
