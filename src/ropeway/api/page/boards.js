// A board under every station: what the stage holds and what it does now. This is also the picture's text for
// people who do not see it.

import { el, mark, say } from "./dom.js";
import { bytes, count, millis, percent } from "./format.js";

/** @typedef {import("./ring_state.js").Stage} Stage */


export class Boards {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    /** @type {Board[]} */
    this.boards = [];
  }

  /** @param {Stage[]} stages @param {"live" | "stopped" | "not known"} mode */
  update(stages, mode) {
    while (this.boards.length > stages.length) this.boards.pop()?.item.remove();
    while (this.boards.length < stages.length) {
      const board = new Board();
      this.boards.push(board);
      this.list.append(board.item);
    }
    stages.forEach((stage, i) => this.boards[i].update(stage, mode));
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
    this.kv = el("p", { class: "memory" }, el("span"), el("span"));
    this.fill = el("span", { class: "fill" });
    this.gauge = el("span", { class: "gauge", "aria-hidden": "true" }, this.fill);
    this.parts = ["forward", "wire", "waiting"].map((kind) => el("span", { class: "share", "data-kind": kind }));
    this.shares = el("p", { class: "shares", role: "img" }, ...this.parts);
    this.spent = el("p", { class: "spent" }, el("span"), el("span", { class: "wordy" }), el("span"), el("span", { class: "wordy" }), el("span"));
    this.busy = el("p", { class: "busy" }, el("span"), el("span", { class: "wordy" }));
    this.address = el("p", { class: "address" });
    this.item = el("li", { class: "board" },
      el("div", { class: "board-head" }, this.rank, this.activity),
      this.layers, this.engine,
      el("div", { class: "board-work" }, this.shares, this.spent, this.busy),
      el("div", { class: "board-memory" }, this.memory, this.gauge, this.kv),
      this.address, this.holds);
  }

  /** @param {Stage} stage @param {"live" | "stopped" | "not known"} mode */
  update(stage, mode) {
    const live = mode === "live";
    say(this.rank, `Rank ${stage.rank}`);
    const now = live ? stage.activity : "unknown";
    mark(this.activity, "data-activity", now);
    say(/** @type {Node} */ (this.activity.lastChild), live ? (now === "unknown" ? "not known" : now) : mode);
    say(this.layers, stage.end > stage.first ? `Layers ${stage.first}..${stage.end}` : "No layers");
    say(this.holds, stage.embeds && stage.head ? "Embeddings and head" : stage.embeds ? "Embeddings" : stage.head ? "Head" : "");
    say(this.engine, [stage.engine, stage.backend].filter(Boolean).join(" on ") || "engine not known");
    say(this.memory, `${bytes(stage.weightsBytes)} of weights`);
    const full = stage.kvRows > 0 ? Math.min(1, stage.kvRowsUsed / stage.kvRows) : 0;
    say(/** @type {Node} */ (this.kv.firstChild), stage.kvRows > 0 ? `KV ${count(stage.kvRowsUsed)} / ` : "");
    say(/** @type {Node} */ (this.kv.lastChild), stage.kvRows > 0 ? `${count(stage.kvRows)} rows` : "KV not known");
    this.fill.style.setProperty("inline-size", percent(full).replace(" ", ""));
    const { forward, wire, waiting } = stage.shares;
    [forward, wire, waiting].forEach((share, i) => {
      this.parts[i].style.setProperty("inline-size", `${(live ? share * 100 : 0).toFixed(1)}%`);
    });
    const spent = [`${percent(forward)} busy`, `${percent(wire)} wire`, `${percent(waiting)} waiting`];
    mark(this.shares, "aria-label", `Of the last seconds: ${spent.join(", ")}`);
    [spent[0], ", ", spent[1], ", ", spent[2]].forEach((words, i) => say(this.spent.children[i], live ? words : ""));
    const timed = live && stage.forwardMs > 0;
    [millis(stage.forwardMs), " a forward"].forEach((words, i) => say(this.busy.children[i], timed ? words : ""));
    say(this.address, stage.address);
    mark(this.address, "title", stage.address);
  }
}
