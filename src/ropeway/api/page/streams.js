// The streams under way: the oldest few by name, the others by number.

import { el, mark, say } from "./dom.js";
import { count, plural, seconds } from "./format.js";

/** @typedef {import("./ring_state.js").Stream} Stream */

const SHOWN = 8;
const ORDER = { decoding: "decoding", entering: "entering", waiting: "waiting" };

export class Streams {
  /** @param {HTMLElement} box @param {HTMLElement} aside */
  constructor(box, aside) {
    this.aside = aside;
    this.empty = el("p", { class: "empty", text: "No stream is under way." });
    this.bar = el("div", { class: "stream-bar", "aria-hidden": "true" });
    this.segments = Object.keys(ORDER).map((state) => el("span", { "data-stream": state }));
    this.bar.append(...this.segments);
    this.list = el("ul", { class: "stream-list" });
    this.rest = el("p", { class: "aside" });
    box.append(this.empty, this.bar, this.list, this.rest);
  }

  /** @param {Stream[]} streams */
  update(streams) {
    const counts = Object.keys(ORDER).map((state) => streams.filter((stream) => stream.state === state).length);
    say(this.aside, streams.length
      ? Object.keys(ORDER).flatMap((state, i) => (counts[i] ? [`${count(counts[i])} ${state}`] : [])).join(", ") : "");
    this.empty.hidden = streams.length > 0;
    this.bar.hidden = streams.length === 0;
    counts.forEach((part, i) => this.segments[i].style.setProperty("flex-grow", String(part)));
    const shown = [...streams].sort((a, b) => rankOf(a) - rankOf(b) || b.ageS - a.ageS || a.id - b.id).slice(0, SHOWN);
    while (this.list.childElementCount > shown.length) this.list.lastElementChild?.remove();
    while (this.list.childElementCount < shown.length) this.list.append(row());
    shown.forEach((stream, i) => update(/** @type {HTMLElement} */ (this.list.children[i]), stream));
    const others = streams.length - shown.length;
    this.rest.hidden = others === 0;
    say(this.rest, others ? `and ${plural(others, "more stream")}` : "");
  }
}

/** Those that run come first, those that wait last. @param {Stream} stream */
function rankOf(stream) {
  return Object.keys(ORDER).indexOf(stream.state);
}

function row() {
  return el("li", { class: "stream" },
    el("span", { class: "stream-id" }), el("span", { class: "stream-state" }),
    el("span", { class: "stream-tokens" }), el("span", { class: "stream-age" }));
}

/** @param {HTMLElement} item @param {Stream} stream */
function update(item, stream) {
  const [id, state, tokens, age] = [...item.children];
  mark(item, "data-stream", stream.state);
  say(id, `#${stream.id}`);
  say(state, stream.state);
  const cached = stream.cachedTokens ? ` (${count(stream.cachedTokens)} cached)` : "";
  say(tokens, `${count(stream.promptTokens)}${cached} in, ${count(stream.produced)} out`);
  say(age, seconds(stream.ageS));
}
