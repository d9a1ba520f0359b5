// Arithmetic on a finished request's timeline. Pure.

/** @typedef {import("./ring_state.js").Finished} Finished */
/** @typedef {import("./ring_state.js").Span} Span */

/** Milliseconds a kind of span took, and what is left of the whole. @param {Span[]} spans @param {number} totalMs */
export function sums(spans, totalMs) {
  const of = (/** @type {string} */ kind) =>
    spans.reduce((sum, span) => sum + (span.kind === kind ? span.end - span.start : 0), 0);
  const forward = of("forward");
  const waitRows = of("wait_rows");
  const waitSend = of("wait_send");
  return { forward, waitRows, waitSend, other: Math.max(0, totalMs - forward - waitRows - waitSend) };
}

/** How long the request was, even where its last span ends later. @param {Finished} request */
export function extent(request) {
  const ends = request.stages.map((stage) => stage.spans.reduce((most, span) => Math.max(most, span.end), 0));
  return Math.max(request.totalMs, ...ends, 1);
}

/** Round figures for an axis, 0 first. @param {number} until @param {number} about how many */
export function ticks(until, about) {
  const rough = until / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? 10 * power;
  return Array.from({ length: Math.floor(until / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** The phases of a request, in order; those of no length left out. @param {Finished} request */
export function phases(request) {
  const queued = Math.min(request.queuedMs, request.totalMs);
  const first = Math.min(Math.max(queued, request.firstTokenMs), request.totalMs);
  return [
    { name: "queued", start: 0, end: queued },
    { name: "prompt", start: queued, end: first },
    { name: "reply", start: first, end: request.totalMs },
  ].filter((phase) => phase.end > phase.start);
}
