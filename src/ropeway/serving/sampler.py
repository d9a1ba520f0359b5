"""From one row of logits to a token id, in numpy. Functions of their arguments alone.

The order is llama.cpp's usual one: logit bias, penalties, top-k, top-p, min-p, temperature, draw. So top-p and min-p
judge the probabilities before the temperature. Equal logits rank by token id, the lowest first. A draw depends on the
seed and the position in the reply, never on what else is in the batch. The row is f32, shape [vocabulary]; -inf marks
a token that is not allowed. Every function raises ValueError for a row with NaN or with no token left.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropeway.serving.sequence import SamplingParams

Row = npt.NDArray[np.float32]
Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Probs = npt.NDArray[np.float64]

BLOCK = 128
"""Values a block when the largest few are looked for."""

FIRST_TRY = 256
"""Tokens ranked at first when top-p has no top-k to bound it; eight times as many at each further try."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that may be drawn and their probabilities, which sum to 1."""

    ids: Ids
    probs: Probs


def choose(row: Row, params: SamplingParams, position: int) -> int:
    """The token for `position` of the reply (0 for its first token).

    Drafts are verified by choosing at each position and comparing, so a reply is the same with drafts and without.
    """
    if params.temperature == 0.0:
        return greedy(row)
    return draw(candidates(row, params), uniform(params.seed, position))


def verify(
    rows: Rows, drafts: Items[int], params: SamplingParams, position: int, stop_ids: Container[int] = ()
) -> list[int]:
    """The tokens from `position` on: the drafts that are chosen in any case, and the token after them.

    `rows` has shape [1 + len(drafts), vocabulary]: row i is what follows the first i drafts, so it means something
    while those are what was chosen. Ends with a stop token too.
    """
    chosen: list[int] = []
    for row, draft in zip(rows, (*drafts, None), strict=True):
        token = choose(row, params, position + len(chosen))
        chosen.append(token)
        if token != draft or token in stop_ids:
            break
    return chosen


def greedy(row: Row) -> int:
    """The most likely token, the lowest id among equals."""
    best = int(row.argmax())
    _judge_top(row[best])
    return best


def candidates(row: Row, params: SamplingParams) -> Candidates:
    """What the filters leave of a row: most likely first with top-k or top-p, else in order of id."""
    if params.temperature == 0.0:
        return Candidates(np.array([greedy(row)]), np.ones(1))
    top = float(_judge_top(row.max()))
    ids = _top_k_and_top_p(row, top, params)
    if params.min_p > 0.0:
        ids = ids[row[ids] >= np.float32(top + math.log(params.min_p))]
    weights = _weights(row[ids], top, params.temperature)
    weights /= weights.sum()
    return Candidates(ids, weights)


def draw(among: Candidates, point: float) -> int:
    """The token at `point`, in [0, 1), of the cumulated probabilities."""
    # Two steps, a block and then a token in it, because a running sum over a whole vocabulary is what would cost most.
    starts = np.arange(0, among.ids.size, BLOCK)
    blocks = np.add.reduceat(among.probs, starts).cumsum()
    wanted = point * float(blocks[-1])
    block = int(np.searchsorted(blocks[:-1], wanted, side="right"))
    before = float(blocks[block - 1]) if block else 0.0
    inside = slice(block * BLOCK, (block + 1) * BLOCK)
    sums = among.probs[inside].cumsum()
    last = int(np.flatnonzero(among.probs[inside])[-1])
    return int(among.ids[inside][min(int(np.searchsorted(sums, wanted - before, side="right")), last)])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the two alone: 53 bits of Philox-4x64, key the seed, counter the position."""
    return uniforms(seed, position, 1)[0]


def uniforms(seed: int, position: int, count: int) -> list[float]:
    """`count` independent numbers in [0, 1) for one position; the first is `uniform`'s."""
    bits = np.random.Philox(key=_words(seed, 0), counter=_words(0, position, 0, 0))
    return [float(word >> 11) * 2.0**-53 for word in bits.random_raw(count).tolist()]


def largest(row: Row, count: int) -> Ids:
    """The ids of the `count` largest values, largest first, the lowest id first among equals."""
    count = min(count, row.size)
    blocks = row.size // BLOCK
    floor = None
    if count <= blocks:
        # The count-th largest of the blocks' maxima: at least `count` values of the row reach it.
        maxima = row[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        floor = np.partition(maxima, blocks - count)[blocks - count]
        ids = np.flatnonzero(row >= floor)
    if floor is None or ids.size > max(4 * count, 4 * BLOCK):
        ids = np.flatnonzero(row >= np.partition(row, row.size - count)[row.size - count])
    return _ranked(row, ids)[:count]


def log_probs(row: Row) -> Probs:
    """Log-softmax of a row in f64, shape [vocabulary]."""
    wide = row.astype(np.float64)
    wide -= _judge_top(row.max())
    return wide - math.log(float(np.exp(wide).sum()))


def top_log_probs(row: Row, count: int) -> list[tuple[int, float]]:
    """The `count` most likely tokens with their log-probabilities, most likely first."""
    logs = log_probs(row)
    return [(int(token), float(logs[token])) for token in largest(row, count)] if count else []


def with_bias(row: Row, bias: Mapping[int, float]) -> Row:
    """The row with `bias[token]` added (OpenAI's logit_bias)."""
    if not bias:
        return row
    changed = row.copy()
    changed[list(bias)] += np.array(list(bias.values()), dtype=np.float32)
    return changed


def with_repetition_penalty(row: Row, seen: Ids, penalty: float) -> Row:
    """The row with each token of `seen` (prompt and reply) less likely: above 0 divided, else multiplied by `penalty`.

    From CTRL (arXiv 1909.05858), as llama.cpp and transformers have it; 1.0 changes nothing.
    """
    if penalty == 1.0 or not seen.size:
        return row
    ids = np.unique(seen)
    values = row[ids]
    changed = row.copy()
    changed[ids] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return changed


def with_count_penalties(row: Row, reply: Ids, presence: float, frequency: float) -> Row:
    """The row minus `presence` and `frequency` times its count for each token of the reply so far (OpenAI)."""
    if (presence == 0.0 and frequency == 0.0) or not reply.size:
        return row
    ids, counts = np.unique(reply, return_counts=True)
    changed = row.copy()
    changed[ids] -= (presence + frequency * counts).astype(np.float32)
    return changed


def _judge_top(top: np.float32) -> np.float32:
    if np.isnan(top):
        raise ValueError("logits: not a number")
    if np.isinf(top):
        raise ValueError(f"logits: the largest is {top}, so there is nothing to choose from")
    return top


def _words(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


def _ranked(row: Row, ids: Ids) -> Ids:
    """Ascending ids put in order of their values, largest first; stable, so that equals keep the order of their ids."""
    order: Ids = ids[np.argsort(-row[ids], kind="stable")]
    return order


def _top_k_and_top_p(row: Row, top: float, params: SamplingParams) -> Ids:
    """What top-k and then top-p leave, ranked; the smallest set whose share of what top-k left reaches `top_p`."""
    if 0 < params.top_k < row.size:
        ids = largest(row, params.top_k)
        sums = _weights(row[ids], top).cumsum()
        return ids[: _reaching(sums, params.top_p * sums[-1])] if params.top_p < 1.0 else ids
    if params.top_p == 1.0:
        return np.arange(row.size)
    wanted = params.top_p * float(_weights(row, top).sum())
    tried = FIRST_TRY
    while True:
        ids = largest(row, tried)
        size = _reaching(_weights(row[ids], top).cumsum(), wanted)
        if size <= ids.size or ids.size == row.size:
            return ids[:size]
        tried *= 8


def _weights(values: Row, top: float, temperature: float = 1.0) -> Probs:
    """exp((values - top) / temperature), taken in f32 (good to about 1e-6) because f64 costs fifteen times as much."""
    scaled = values - np.float32(top)
    if temperature != 1.0:
        scaled /= np.float32(temperature)
    weights: Probs = np.exp(scaled, out=scaled).astype(np.float64)
    return weights


def _reaching(sums: Probs, wanted: float) -> int:
    """How many values it takes to reach `wanted`; one more than there are where all of them do not."""
    return int(np.searchsorted(sums, wanted, side="left")) + 1
