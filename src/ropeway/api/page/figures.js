// The row of figures: tokens a second with its last minute, prompts, rounds, slots, queue, prompt cache.

import { el, mark, say, svg } from "./dom.js";
import { bytes, count, millis, percent, plural, rate } from "./format.js";

/** @typedef {import("./ring_state.js").Ring} Ring */

const SAMPLES = 60;
const MOST_PIPS = 16;
const SPARK = { width: 132, height: 36 };

export class Figures {
  /** @param {HTMLElement} list a <dl> */
  constructor(list) {
    this.tokens = new Figure("Tokens a second", "tokens");
    this.prompt = new Figure("Reading prompts", "prompt");
    this.rounds = new Figure("Rounds a second", "rounds");
    this.slots = new Figure("Slots in use", "slots");
    this.queue = new Figure("In the queue", "queue");
    this.cache = new Figure("Prompt cache hits", "cache");
    /** @type {number[]} */
    this.history = [];
    this.line = svg("path", { class: "spark-line" });
    this.area = svg("path", { class: "spark-area" });
    this.dot = svg("circle", { class: "spark-dot", r: 2.5 });
    this.spark = svg("svg", { class: "spark", role: "img", viewBox: `0 0 ${SPARK.width} ${SPARK.height}` }, this.area, this.line, this.dot);
    this.pips = el("span", { class: "pips", "aria-hidden": "true" });
    this.fill = el("span", { class: "fill" });
    this.tokens.extra.append(this.spark);
    this.slots.extra.append(this.pips);
    this.cache.extra.append(el("span", { class: "gauge", "aria-hidden": "true" }, this.fill));
    const all = [this.tokens, this.prompt, this.rounds, this.slots, this.queue, this.cache];
    for (const each of all) each.show("–", "");
    list.append(...all.map((each) => each.box));
  }

  /** @param {Ring} ring @param {boolean} live */
  update(ring, live) {
    this.history.push(live ? ring.tokensPerS : 0);
    if (this.history.length > SAMPLES) this.history.shift();
    this.drawSpark();
    const busy = ring.streams.length;
    this.tokens.show(live ? rate(ring.tokensPerS) : "0", `over ${plural(busy, "stream")}`);
    this.tokens.add(live ? compared(ring) : "");
    this.prompt.show(live ? rate(ring.promptTokensPerS) : "0", "tokens a second");
    const wire = ring.round.wireMs > 0 ? `, ${millis(ring.round.wireMs)} on the wire` : "";
    this.rounds.show(live ? rate(ring.round.perS) : "0", ring.round.number ? `the last ${millis(ring.round.lastMs)}${wire}` : "none yet");
    const { atWork, efficiency } = ring.overlap;
    const share = percent(efficiency).replace(" ", "\u00a0");
    this.rounds.add(live && efficiency > 0 ? `${rate(atWork)} stages at work, ${share} of the ideal` : "");
    this.slots.show(count(ring.slots.used), `of ${count(ring.slots.total)}`);
    this.drawPips(ring.slots.used, ring.slots.total);
    this.queue.show(count(ring.queue.waiting), ring.queue.limit ? `room for ${count(ring.queue.limit)}` : "");
    const { hits, misses, hitTokens, entries, bytes: held, limitBytes } = ring.cache;
    const asked = hits + misses;
    this.cache.show(asked ? percent(hits / asked) : "–", asked
      ? `${count(hits)} of ${count(asked)}, ${count(hitTokens)} tokens spared`
      : "nothing asked yet");
    this.cache.add(`${plural(entries, "entry", "entries")}, ${bytes(held)} of ${bytes(limitBytes)}`);
    this.fill.style.setProperty("inline-size", `${limitBytes ? Math.min(100, (100 * held) / limitBytes) : 0}%`);
  }

  drawSpark() {
    const top = Math.max(1, ...this.history);
    const points = this.history.map((value, i) => [
      SPARK.width - 4 - (this.history.length - 1 - i) * ((SPARK.width - 8) / (SAMPLES - 1)),
      SPARK.height - 3 - (value / top) * (SPARK.height - 7),
    ]);
    const line = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const [firstX] = points[0];
    const [lastX, lastY] = points[points.length - 1];
    mark(this.line, "d", line);
    mark(this.area, "d", `${line}L${lastX.toFixed(1)} ${SPARK.height}L${firstX.toFixed(1)} ${SPARK.height}Z`);
    mark(this.dot, "cx", lastX.toFixed(1));
    mark(this.dot, "cy", lastY.toFixed(1));
    const now = this.history[this.history.length - 1];
    mark(this.spark, "aria-label", `Tokens a second in the last minute: now ${rate(now)}, at most ${rate(Math.max(...this.history))}`);
  }

  /** @param {number} used @param {number} total */
  drawPips(used, total) {
    const pips = Math.min(total, MOST_PIPS);
    while (this.pips.childElementCount > pips) this.pips.lastElementChild?.remove();
    while (this.pips.childElementCount < pips) this.pips.append(el("span", { class: "pip" }));
    const on = total > MOST_PIPS ? Math.ceil((used / total) * MOST_PIPS) : used;
    [...this.pips.children].forEach((pip, i) => mark(pip, "data-on", i < on ? "yes" : "no"));
  }
}

/** What a token takes against what the placement was predicted to take. @param {Ring} ring */
function compared(ring) {
  const { predictedMs, measuredMs, cause } = ring.prediction;
  if (!predictedMs) return "";
  return `${millis(measuredMs)} a token, ${millis(predictedMs)} predicted${cause ? `: ${cause}` : ""}`;
}

class Figure {
  /** @param {string} label @param {string} name */
  constructor(label, name) {
    this.value = el("span", { class: "value" });
    this.note = el("span", { class: "note" });
    this.more = el("span", { class: "note" });
    this.extra = el("span", { class: "extra" });
    this.box = el("div", { class: "figure", "data-figure": name }, el("dt", { text: label }),
      el("dd", {}, this.value, this.extra, this.note, this.more));
  }

  /** @param {string} value @param {string} note */
  show(value, note) {
    say(this.value, value);
    say(this.note, note);
  }

  /** @param {string} text */
  add(text) {
    say(this.more, text);
  }
}
