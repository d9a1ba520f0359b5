"""Text for checks: as many words of plain prose as asked for, the same on every machine, read from nowhere."""

from __future__ import annotations

from collections.abc import Iterator

_PLACES = (
    "the valley station",
    "the quarry",
    "the saddle",
    "the lake",
    "the upper mast",
    "the village",
    "the old mill",
)
_LOADS = ("timber", "slate", "flour", "milk cans", "letters", "coal", "two bicycles", "a crate of apples", "salt")
_DEEDS = ("carried", "brought", "sent", "lowered", "hauled", "took", "moved")
_WEATHER = ("in fog", "before dawn", "under a clear sky", "against the wind", "after the storm", "at noon", "in snow")
_SENTENCES = (
    "On day {n} the ropeway {deed} {load} from {a} to {b} {weather}.",
    "Nobody at {a} saw how {load} reached {b}; it went {weather}, in cabin {n}.",
    "The engineer wrote down: {n} minutes from {a} to {b}, {load} {deed} {weather}.",
    "Between {a} and {b} the rope runs back to where it began, and {load} went with it {weather} on trip {n}.",
)


def sentences() -> Iterator[str]:
    """Sentences without end, none like another for a long time."""
    number = 0
    while True:
        number += 1
        yield _SENTENCES[number * 7 % len(_SENTENCES)].format(
            n=number,
            a=_PLACES[number * 5 % len(_PLACES)],
            b=_PLACES[(number * 3 + 1) % len(_PLACES)],
            load=_LOADS[number * 11 % len(_LOADS)],
            deed=_DEEDS[number * 13 % len(_DEEDS)],
            weather=_WEATHER[number * 17 % len(_WEATHER)],
        )


def passage(characters: int, skip: int = 0) -> str:
    """At least so many characters of prose, beginning after `skip` sentences."""
    found: list[str] = []
    length = 0
    for number, sentence in enumerate(sentences()):
        if number < skip:
            continue
        found.append(sentence)
        length += len(sentence) + 1
        if length >= characters:
            break
    return " ".join(found)
