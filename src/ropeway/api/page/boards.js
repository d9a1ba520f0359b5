// A board under every station: what the stage holds and what it does now. This is also the picture's text for
// people who do not see it.

import { el, mark, say } from "./dom.js";
import { bytes, count, millis, percent } from "./format.js";

/** @typedef {import("./ring_state.js").Stage} Stage */

const WORDS = { waiting: "waiting", computing: "computing", sending: "sending", unknown: "not known" };

export class Boards {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    /** @type {Board[]} */
    this.boards = [];
  }

  /** @param {Stage[]} stages @param {boolean} live */
  update(stages, live) {
    while (this.boards.length > stages.length) this.boards.pop()?.item.remove();
    while (this.boards.length < stages.length) {
      const board = new Board();
      this.boards.push(board);
      this.list.append(board.item);
    }
    stages.forEach((stage, i) => this.boards[i].update(stage, live));
  }
}

class Board {
  constructor() {
    this.rank = el("h3", { class: "board-rank" });
    this.activity = el("p", { class: "activity" }, el("span", { class: "lamp", "aria-hidden": "true" }), el("span"));
    this.layers = el("p", { class: "layers" });
    this.holds = el("p", { class: "holds" });
    this.engine = el("p", { class: "engine" });
    this.memory = el("p", { class: "memory" });
    this.kv = el("p", { class: "memory" });
    this.fill = el("span", { class: "fill" });
    this.gauge = el("span", { class: "gauge", "aria-hidden": "true" }, this.fill);
    this.parts = ["forward", "wait_send", "wait_rows"].map((kind) => el("span", { class: "share", "data-kind": kind }));
    this.shares = el("p", { class: "shares", role: "img" }, ...this.parts);
    this.busy = el("p", { class: "busy" });
    this.address = el("p", { class: "address" });
    this.item = el("li", { class: "board" },
      el("div", { class: "board-head" }, this.rank, this.activity),
      this.layers, this.holds, this.engine,
      el("div", { class: "board-work" }, this.shares, this.busy),
      el("div", { class: "board-memory" }, this.memory, this.gauge, this.kv),
      this.address);
  }

  /** @param {Stage} stage @param {boolean} live */
  update(stage, live) {
    say(this.rank, `Rank ${stage.rank}`);
    const now = live ? stage.activity : "unknown";
    mark(this.activity, "data-activity", now);
    say(/** @type {Node} */ (this.activity.lastChild), live ? WORDS[/** @type {keyof typeof WORDS} */ (now)] : "stopped");
    say(this.layers, stage.end > stage.first ? `Layers ${stage.first}..${stage.end}` : "No layers");
    const held = [stage.embeds ? "embeddings" : "", stage.head ? "head" : ""].filter(Boolean).join(", ");
    say(this.holds, held ? `and ${held}` : "");
    say(this.engine, [stage.engine, stage.backend].filter(Boolean).join(" on ") || "engine not known");
    say(this.memory, `${bytes(stage.weightsBytes)} of weights`);
    const full = stage.kvRows > 0 ? Math.min(1, stage.kvRowsUsed / stage.kvRows) : 0;
    say(this.kv, stage.kvRows > 0 ? `KV ${count(stage.kvRowsUsed)} of ${count(stage.kvRows)} rows` : "no KV rows told");
    this.fill.style.setProperty("inline-size", percent(full).replace(" ", ""));
    const { forward, waitRows, waitSend } = stage.shares;
    [forward, waitSend, waitRows].forEach((share, i) => {
      this.parts[i].style.setProperty("inline-size", `${(live ? share * 100 : 0).toFixed(1)}%`);
    });
    mark(this.shares, "aria-label",
      `Of the last seconds: ${percent(forward)} computing, ${percent(waitRows)} waiting for rows, ${percent(waitSend)} sending`);
    say(this.busy, live ? `${percent(forward)} busy${stage.forwardMs ? `, ${millis(stage.forwardMs)} a forward` : ""}` : "");
    say(this.address, stage.address);
    mark(this.address, "title", stage.address);
  }
}
