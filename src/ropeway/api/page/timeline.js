// Where one finished request's time went: a line a stage, its forwards and its waiting, and the same as a table.

import { el, mark, say, svg } from "./dom.js";
import { count, millis, percent, plural, rate } from "./format.js";
import { extent, phases, sums, ticks } from "./sums.js";

/** @typedef {import("./ring_state.js").Finished} Finished */

const LINE = 30;
const PHASES = 24;
const AXIS = 22;
const LONGEST = 24000;
/** A bar's height tells its kind as well as its colour does. @type {Record<string, number>} */
const HEIGHTS = { forward: 18, wait_send: 10, wait_rows: 4 };
/** @type {Record<string, string>} */
const NAMES = { forward: "computing", wait_rows: "waiting for rows", wait_send: "waiting to send" };

export class Timeline {
  /** @param {HTMLElement} box @param {HTMLElement} aside */
  constructor(box, aside) {
    this.aside = aside;
    this.empty = el("p", { class: "empty", text: "No request has finished yet." });
    this.names = el("div", { class: "lane-names", "aria-hidden": "true" });
    this.canvas = svg("svg", { class: "lanes", role: "img" });
    this.scroller = el("div", { class: "lane-scroll", tabindex: "0", role: "group", "aria-label": "Timeline, scrolls sideways when zoomed" }, this.canvas);
    this.table = el("table", { class: "sums" });
    this.further = this.zoomButton("Zoom out", "−", 0.5);
    this.closer = this.zoomButton("Zoom in", "+", 2);
    this.body = el("div", { class: "timeline-body", hidden: true },
      el("div", { class: "timeline-bar" }, legend(), el("div", { class: "zoom" }, this.further, this.closer)),
      el("div", { class: "lane-grid" }, this.names, this.scroller),
      this.table);
    /** @type {Finished | null} */
    this.request = null;
    this.zoom = 1;
    this.drawn = 0;
    box.append(this.empty, this.body);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** @param {Finished | null} request */
  show(request) {
    this.empty.hidden = request !== null;
    this.body.hidden = request === null;
    if (request !== this.request) {
      this.zoom = 1;
      this.drawn = 0;
    }
    this.request = request;
    if (!request) return say(this.aside, "");
    const { completionTokens: made, totalMs, firstTokenMs } = request;
    const decodeS = (totalMs - firstTokenMs) / 1000;
    say(this.aside, [
      `${plural(request.promptTokens, "prompt token")}${request.cachedTokens ? `, ${count(request.cachedTokens)} cached` : ""}`,
      `first token after ${millis(firstTokenMs)}`,
      made > 1 && decodeS > 0 ? `then ${rate((made - 1) / decodeS)} a second` : "",
      request.rounds ? plural(request.rounds, "round") : "",
    ].filter(Boolean).join("; "));
    this.draw();
  }

  draw() {
    const { request } = this;
    const space = this.scroller.clientWidth;
    if (!request || space < 40) return;
    const width = Math.min(Math.max(space, LONGEST), Math.floor(space * this.zoom));
    this.further.disabled = this.zoom <= 1;
    this.closer.disabled = space * this.zoom * 2 > LONGEST;
    if (width === this.drawn) return;
    this.drawn = width;
    const whole = extent(request);
    const height = PHASES + request.stages.length * LINE + AXIS;
    const x = (/** @type {number} */ ms) => (ms / whole) * width;
    this.names.replaceChildren(el("span", { class: "lane-name", text: "" }),
      ...request.stages.map((stage) => el("span", { class: "lane-name", text: `Rank ${stage.rank}` })));
    mark(this.canvas, "viewBox", `0 0 ${width} ${height}`);
    mark(this.canvas, "width", width);
    mark(this.canvas, "height", height);
    mark(this.canvas, "aria-label", `Request ${request.id}, ${millis(request.totalMs)} in all; the table below has the sums`);
    this.canvas.replaceChildren(
      ...grid(whole, width, height, x),
      ...phases(request).flatMap((phase) => band(phase, x)),
      ...request.stages.flatMap((stage, i) => lane(stage.spans, PHASES + i * LINE + LINE / 2, x)),
    );
    this.table.replaceChildren(...rows(request));
  }

  /** @param {string} label @param {string} sign @param {number} factor */
  zoomButton(label, sign, factor) {
    const button = el("button", { class: "button small", type: "button", "aria-label": label, text: sign });
    button.addEventListener("click", () => {
      const centre = (this.scroller.scrollLeft + this.scroller.clientWidth / 2) / this.scroller.scrollWidth;
      this.zoom = Math.max(1, this.zoom * factor);
      this.draw();
      this.scroller.scrollLeft = centre * this.scroller.scrollWidth - this.scroller.clientWidth / 2;
    });
    return button;
  }
}

function legend() {
  return el("ul", { class: "legend", "aria-hidden": "true" },
    ...Object.keys(HEIGHTS).map((kind) => el("li", {}, el("span", { class: "swatch", "data-kind": kind }), el("span", { text: NAMES[kind] }))));
}

/** @param {import("./ring_state.js").Span[]} spans @param {number} y @param {(ms: number) => number} x */
function lane(spans, y, x) {
  return ["wait_rows", "wait_send", "forward"].map((kind) => {
    const half = HEIGHTS[kind] / 2;
    const d = spans.filter((span) => span.kind === kind)
      .map(({ start, end }) => `M${x(start).toFixed(2)} ${y - half}H${x(end).toFixed(2)}v${half * 2}H${x(start).toFixed(2)}Z`).join("");
    return svg("path", { class: "bar", "data-kind": kind, d });
  });
}

/** @param {{name: string, start: number, end: number}} phase @param {(ms: number) => number} x */
function band(phase, x) {
  const [from, to] = [x(phase.start), x(phase.end)];
  const label = `${phase.name} ${millis(phase.end - phase.start)}`;
  const fits = to - from > label.length * 6.4 + 12;
  return [
    svg("path", { class: "phase", "data-phase": phase.name, d: `M${from + 0.5} ${PHASES - 5}H${Math.max(from + 1.5, to - 0.5)}` }),
    ...(fits ? [svg("text", { class: "phase-name", x: from + 3, y: PHASES - 11, text: label })] : []),
  ];
}

/** @param {number} whole @param {number} width @param {number} height @param {(ms: number) => number} x */
function grid(whole, width, height, x) {
  return ticks(whole, width / 110).flatMap((ms) => {
    const late = x(ms) > width - 44;
    return [
      svg("path", { class: "tick", d: `M${Math.max(0.5, x(ms)).toFixed(1)} ${PHASES - 4}V${height - AXIS + 4}` }),
      ...(late ? [] : [svg("text", { class: "tick-name", x: x(ms) + 2, y: height - 6, text: ms === 0 ? "0" : millis(ms) })]),
    ];
  });
}

/** @param {Finished} request */
function rows(request) {
  const head = el("thead", {}, el("tr", {}, ...["Stage", "Computing", "Waiting for rows", "Waiting to send", "Other"]
    .map((name) => el("th", { scope: "col", text: name }))));
  const body = el("tbody", {}, ...request.stages.map((stage) => {
    const { forward, waitRows, waitSend, other } = sums(stage.spans, request.totalMs);
    return el("tr", {}, el("th", { scope: "row", text: `Rank ${stage.rank}` }), ...[forward, waitRows, waitSend, other].map((ms) =>
      el("td", {}, el("span", { text: millis(ms) }), el("span", { class: "of", text: request.totalMs ? percent(ms / request.totalMs) : "" }))));
  }));
  return [el("caption", { class: "unseen", text: `Where request ${request.id} spent its ${millis(request.totalMs)}, by stage` }), head, body];
}
