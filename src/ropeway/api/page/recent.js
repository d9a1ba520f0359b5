// Chooses which finished request the timeline shows: the newest, until the reader picks one.

import { el, say } from "./dom.js";
import { millis, plural } from "./format.js";

/** @typedef {import("./ring_state.js").Finished} Finished */

export class Recent {
  /** @param {HTMLFieldSetElement} box @param {(request: Finished | null) => void} onChoice */
  constructor(box, onChoice) {
    this.box = box;
    this.onChoice = onChoice;
    /** @type {Finished[]} */
    this.requests = [];
    /** @type {number | null} the reader's choice */
    this.picked = null;
    box.addEventListener("change", (event) => {
      const id = Number(/** @type {HTMLInputElement} */ (event.target).value);
      this.picked = this.requests[0]?.id === id ? null : id;
      this.onChoice(this.chosen());
    });
  }

  /** @param {Finished[]} requests newest first */
  update(requests) {
    const same = requests.length === this.requests.length && requests.every((each, i) => keyOf(each) === keyOf(this.requests[i]));
    if (same) return;
    this.requests = requests;
    this.box.hidden = requests.length === 0;
    const chosen = this.chosen();
    const labels = new Map([...this.box.querySelectorAll("label")].map((label) => [label.dataset.key, label]));
    for (const [key, label] of labels) if (!requests.some((each) => keyOf(each) === key)) label.remove();
    requests.forEach((request, at) => {
      const label = labels.get(keyOf(request)) ?? choice(request);
      /** @type {HTMLInputElement} */ (label.firstChild).checked = request === chosen;
      const there = this.box.querySelectorAll("label")[at];
      if (there !== label) this.box.insertBefore(label, there ?? null);
    });
    this.onChoice(chosen);
  }

  chosen() {
    return this.requests.find((each) => each.id === this.picked) ?? this.requests[0] ?? null;
  }
}

/** Numbers begin anew when rank 0 does. @param {Finished} request */
function keyOf(request) {
  return `${request.id} ${request.totalMs} ${request.stages.length}`;
}

/** @param {Finished} request */
function choice(request) {
  const words = el("span", { class: "chip" }, el("span", { class: "chip-id", text: `#${request.id}` }), el("span", { class: "chip-note" }));
  say(/** @type {Node} */ (words.lastChild), `${plural(request.completionTokens, "token")}, ${millis(request.totalMs)}${request.finish ? `, ${request.finish}` : ""}`);
  return el("label", { "data-key": keyOf(request) }, el("input", { type: "radio", name: "recent", value: request.id }), words);
}
