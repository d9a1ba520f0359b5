// What stands across the page when all is not well: the ring is not whole, or the server does not answer.

import { el, mark, say } from "./dom.js";
import { plural, seconds } from "./format.js";

/** @typedef {import("./ring_state.js").Ring} Ring */
/** @typedef {import("./poll.js").Trouble} Trouble */
/** @typedef {{tone: "bad" | "warn" | "none", word: string, title: string, text: string, retry: boolean}} Telling */

/** @type {Record<string, Telling>} */
const STATES = {
  ready: { tone: "none", word: "Ready", title: "", text: "", retry: false },
  starting: { tone: "warn", word: "Starting", title: "The ring is starting.", text: "Requests get a 503 until every stage is ready.", retry: false },
  restarting: { tone: "bad", word: "Restarting", title: "The ring is not whole and is being restarted.", text: "Requests get a 503 until it is ready again.", retry: false },
  draining: { tone: "warn", word: "Draining", title: "The ring is draining.", text: "Requests under way finish; new ones are refused.", retry: false },
  failed: { tone: "bad", word: "Failed", title: "The ring has failed.", text: "It does not come back by itself: rank 0’s log says more.", retry: false },
  unknown: { tone: "warn", word: "Unknown", title: "The ring is in a state that this page does not know.", text: "", retry: false },
};

/** @param {Ring | null} ring @param {Trouble | null} trouble @returns {Telling} */
export function tell(ring, trouble) {
  if (trouble?.kind === "gone") return { tone: "bad", word: "No answer", title: "The server does not answer.", text: ring ? "The picture below is the last one that came." : "", retry: true };
  if (trouble?.kind === "key") return { tone: "none", word: "Locked", title: "", text: "", retry: false };
  if (trouble?.kind === "refused") return { tone: "bad", word: "Trouble", title: `The server answers with an error: ${trouble.detail}.`, text: "", retry: true };
  if (trouble) return { tone: "warn", word: "Trouble", title: "The server’s last answer could not be read.", text: ring ? "The picture below is the one before." : "", retry: true };
  if (!ring) return { tone: "none", word: "Connecting", title: "", text: "", retry: false };
  return STATES[ring.state];
}

export class Notice {
  /** @param {HTMLElement} box @param {HTMLElement} lamp @param {HTMLElement} word @param {() => void} onRetry */
  constructor(box, lamp, word, onRetry) {
    this.box = box;
    this.lamp = lamp;
    this.word = word;
    this.title = el("strong");
    this.text = el("span");
    this.detail = el("span", { class: "notice-detail" });
    this.count = el("p", { class: "notice-count" });
    this.button = el("button", { class: "button", type: "button", text: "Try now" });
    this.button.addEventListener("click", onRetry);
    box.append(el("p", { role: "alert", class: "notice-words" }, this.title, this.text, this.detail), this.count, this.button);
  }

  /** @param {Ring | null} ring @param {Trouble | null} trouble @param {{heardS: number, againS: number}} since */
  update(ring, trouble, since) {
    const { tone, word, title, text, retry } = tell(ring, trouble);
    say(this.word, word);
    mark(this.lamp, "data-tone", tone === "none" && word === "Ready" ? "good" : tone);
    mark(this.box, "data-tone", tone);
    this.box.hidden = tone === "none";
    say(this.title, title);
    say(this.text, text);
    say(this.detail, trouble ? "" : ring?.detail ?? "");
    this.detail.hidden = !this.detail.textContent;
    this.button.hidden = !retry;
    this.count.hidden = !retry;
    say(this.count, retry
      ? `${ring ? `Last heard ${seconds(Math.round(since.heardS))} ago. ` : ""}${since.againS > 0 ? `Trying again in ${plural(since.againS, "second")}.` : "Trying now."}`
      : "");
    document.title = tone === "none" && word !== "Locked" ? `Ropeway${ring ? ` – ${ring.model.id}` : ""}` : `${word} – Ropeway`;
  }
}
