// One turn of the conversation on the page: who, what was said (as text, never as markup), and a note on how it went.

import { el, say } from "./dom.js";
import { count, millis, plural, rate } from "./format.js";

/** @typedef {import("./completions.js").Piece} Piece */
/** @typedef {import("./completions.js").ReplyError} ReplyError */

/** @type {Record<string, string>} */
const ENDS = { length: "cut at the longest reply", tool_calls: "asked for a tool", content_filter: "filtered" };

export class Turn {
  /** @param {"user" | "assistant"} role @param {string} who @param {string} text */
  constructor(role, who, text) {
    this.role = role;
    this.words = document.createTextNode(text);
    this.note = el("p", { class: "turn-note" });
    this.trouble = el("div", { class: "trouble", hidden: true });
    this.item = el("li", { class: "turn", "data-role": role },
      el("h3", { class: "who", text: who }), el("p", { class: "said" }, this.words), this.trouble, this.note);
    this.began = 0;
    this.first = 0;
    this.pieces = 0;
    this.reason = "";
    /** @type {import("./completions.js").Usage} */
    this.usage = {};
  }

  get content() {
    return this.words.data;
  }

  /** A request goes out. */
  begin() {
    this.began = performance.now();
    this.trouble.hidden = true;
    this.item.dataset.phase = "asking";
    say(this.note, "");
  }

  /** @param {Piece} piece */
  take(piece) {
    if (piece.kind === "usage") this.usage = piece.usage;
    else if (piece.kind === "finish") this.reason = piece.reason;
    else {
      this.first ||= performance.now();
      this.pieces += 1;
      this.item.dataset.phase = "replying";
      this.words.appendData(piece.text);
    }
  }

  finish() {
    this.item.dataset.phase = "done";
    say(this.note, [this.speed(), this.prompt(), ENDS[this.reason] ?? ""].filter(Boolean).join("; "));
  }

  stopped() {
    this.item.dataset.phase = "stopped";
    this.trouble.hidden = true;
    say(this.note, ["Stopped by you", this.speed()].filter(Boolean).join("; "));
  }

  /** @param {ReplyError} error @param {() => void} again */
  fail(error, again) {
    this.item.dataset.phase = "failed";
    const button = el("button", { class: "button", type: "button", text: "Try again" });
    button.addEventListener("click", again);
    this.showTrouble(error, ...(error.kind === "refused" ? [] : [button]));
  }

  /** Waits as long as the server asked for, and says so. Throws where `signal` is used.
   * @param {ReplyError} error @param {AbortSignal} signal */
  async countDown(error, signal) {
    const left = el("p", { class: "trouble-count" });
    const now = el("button", { class: "button", type: "button", text: "Try now" });
    this.item.dataset.phase = "waiting";
    this.showTrouble(error, left, now);
    let waiting = true;
    now.addEventListener("click", () => (waiting = false));
    for (let s = error.afterS; s > 0 && waiting; s -= 1) {
      say(left, `Trying again in ${plural(s, "second")}.`);
      await second(signal, now);
    }
  }

  /** @param {ReplyError} error @param {...HTMLElement} more */
  showTrouble(error, ...more) {
    const { message, detail } = error;
    this.trouble.replaceChildren(el("p", { class: "trouble-title", text: message }),
      ...(detail ? [el("p", { class: "trouble-detail", text: detail })] : []), ...more);
    this.trouble.hidden = false;
  }

  speed() {
    if (!this.first) return "";
    const tokens = this.usage.completion_tokens ?? this.pieces;
    const spent = (performance.now() - this.first) / 1000;
    const pace = tokens > 1 && spent > 0 ? `, ${rate((tokens - 1) / spent)} a second` : "";
    return `${plural(tokens, "token")}${pace}; the first after ${millis(this.first - this.began)}`;
  }

  prompt() {
    const { prompt_tokens: read, prompt_tokens_details: details } = this.usage;
    if (typeof read !== "number") return "";
    const cached = details?.cached_tokens;
    return `prompt of ${count(read)}${cached ? `, ${count(cached)} of them cached` : ""}`;
  }
}

/** One second, or less where `button` is pressed. @param {AbortSignal} signal @param {HTMLElement} button */
function second(signal, button) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), 1000);
    button.addEventListener("click", () => (clearTimeout(timer), resolve(undefined)), { once: true });
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
