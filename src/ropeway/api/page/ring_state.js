// The JSON of GET /v1/ring, judged: every field has its type and a sane bound afterwards, whatever came. Pure.

const STATES = ["starting", "ready", "restarting", "draining", "failed"];
const ACTIVITIES = ["waiting", "computing", "sending"];
const STREAM_STATES = ["waiting", "entering", "decoding"];
const KINDS = ["forward", "wait_rows", "wait_send"];
const MOST_STAGES = 64;
const MOST_STREAMS = 5000;
const MOST_RECENT = 8;
const MOST_SPANS = 20000;

/** @typedef {ReturnType<typeof readRing>} Ring */
/** @typedef {Ring["stages"][number]} Stage */
/** @typedef {Ring["streams"][number]} Stream */
/** @typedef {Ring["recent"][number]} Finished */
/** @typedef {{kind: string, start: number, end: number}} Span */

/** @param {unknown} value what JSON.parse gave; anything but an object is a TypeError */
export function readRing(value) {
  if (!isObject(value)) throw new TypeError("the ring's state is not an object");
  const model = object(value.model);
  const round = object(value.round);
  const overlap = object(value.overlap);
  const told = object(value.prediction);
  const cache = object(value.prompt_cache);
  const limits = object(value.queue);
  const slots = object(value.slots);
  const speed = object(value.throughput);
  return {
    state: STATES.includes(text(value.state)) ? text(value.state) : "unknown",
    detail: text(value.detail, 600),
    uptimeS: number(value.uptime_s),
    placement: text(value.placement, 80),
    sampler: value.sampler === "last" ? "last" : "first",
    model: {
      id: text(model.id, 160),
      layers: number(model.layers),
      hidden: number(model.hidden),
      context: number(model.context),
      checkpoint: text(model.checkpoint, 80),
    },
    stages: list(value.stages, MOST_STAGES).map(readStage).sort((a, b) => a.rank - b.rank),
    links: list(value.links, MOST_STAGES).map((link) => ({
      from: number(link.from),
      to: number(link.to),
      rowBytes: number(link.row_bytes),
    })),
    round: {
      number: number(round.number),
      rows: number(round.rows),
      parts: number(round.parts),
      lastMs: number(round.last_ms),
      perS: number(round.per_s),
      wireMs: number(round.wire_ms),
    },
    overlap: { atWork: number(overlap.at_work), possible: number(overlap.possible), efficiency: share(overlap.efficiency) },
    prediction: { predictedMs: number(told.predicted_ms), measuredMs: number(told.measured_ms), cause: text(told.cause, 400) },
    streams: list(value.streams, MOST_STREAMS).map(readStream),
    slots: { used: number(slots.used), total: number(slots.total) },
    queue: { waiting: number(limits.waiting), limit: number(limits.limit) },
    tokensPerS: number(speed.tokens_per_s),
    promptTokensPerS: number(speed.prompt_tokens_per_s),
    cache: {
      entries: number(cache.entries),
      bytes: number(cache.bytes),
      limitBytes: number(cache.limit_bytes),
      hits: number(cache.hits),
      misses: number(cache.misses),
      hitTokens: number(cache.hit_tokens),
    },
    recent: list(value.recent, MOST_RECENT).map(readFinished),
  };
}

/** @param {Record<string, unknown>} stage @param {number} at */
function readStage(stage, at) {
  const shares = object(stage.shares);
  return {
    rank: number(stage.rank, at),
    first: number(stage.first),
    end: number(stage.end),
    engine: text(stage.engine, 40),
    backend: text(stage.backend, 40),
    address: text(stage.address, 120),
    weightsBytes: number(stage.weights_bytes),
    embeds: stage.embeds === true,
    head: stage.head === true,
    loadMs: number(stage.load_ms),
    kvRows: number(stage.kv_rows),
    kvRowsUsed: number(stage.kv_rows_used),
    activity: ACTIVITIES.includes(text(stage.activity)) ? text(stage.activity) : "unknown",
    shares: {
      forward: share(shares.forward),
      wire: share(shares.wire),
      waiting: share(shares.waiting),
    },
    forwardMs: number(stage.forward_ms),
  };
}

/** @param {Record<string, unknown>} stream */
function readStream(stream) {
  return {
    id: number(stream.id),
    state: STREAM_STATES.includes(text(stream.state)) ? text(stream.state) : "waiting",
    promptTokens: number(stream.prompt_tokens),
    cachedTokens: number(stream.cached_tokens),
    produced: number(stream.produced),
    ageS: number(stream.age_s),
  };
}

/** @param {Record<string, unknown>} entry */
function readFinished(entry) {
  const timeline = object(entry.timeline);
  return {
    id: number(entry.id),
    finish: text(entry.finish, 40),
    promptTokens: number(entry.prompt_tokens),
    cachedTokens: number(entry.cached_tokens),
    completionTokens: number(entry.completion_tokens),
    queuedMs: number(entry.queued_ms),
    firstTokenMs: number(entry.first_token_ms),
    totalMs: number(entry.total_ms),
    rounds: number(timeline.rounds),
    stages: list(timeline.stages, MOST_STAGES)
      .map((stage, at) => ({ rank: number(stage.rank, at), spans: spans(stage.spans) }))
      .sort((a, b) => a.rank - b.rank),
  };
}

/** @param {unknown} value @returns {Span[]} */
function spans(value) {
  if (!Array.isArray(value)) return [];
  return value.slice(0, MOST_SPANS).flatMap((span) => {
    if (!Array.isArray(span) || !KINDS.includes(span[0])) return [];
    const start = number(span[1]);
    const end = number(span[2]);
    return end > start ? [{ kind: String(span[0]), start, end }] : [];
  });
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {unknown} value @returns {Record<string, unknown>} */
function object(value) {
  return isObject(value) ? value : {};
}

/** @param {unknown} value @param {number} most */
function list(value, most) {
  return Array.isArray(value) ? value.slice(0, most).filter(isObject) : [];
}

/** Every figure here counts or measures, so none is below 0. @param {unknown} value @param {number} [otherwise] */
function number(value, otherwise = 0) {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : otherwise;
}

/** @param {unknown} value */
function share(value) {
  return Math.min(1, number(value));
}

/** @param {unknown} value @param {number} [most] */
function text(value, most = 40) {
  return typeof value === "string" ? value.slice(0, most) : "";
}
