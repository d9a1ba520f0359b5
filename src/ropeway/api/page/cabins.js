// The cabins: one a part of a round, moved along the ropes at the ring's own pace, slowed so that eyes can follow.
// Still when the ring is idle or not whole, when the page is hidden, and when the reader prefers less motion.

import { mark, say, svg } from "./dom.js";
import { count, plural, rate } from "./format.js";
import { lengthOf, pointAt } from "./geometry.js";
import { locate, slowdown, timetable } from "./pace.js";

/** @typedef {import("./ring_state.js").Ring} Ring */

const FRAME_MS = 30;
const MOST_CABINS = 6;
const BETWEEN = 0.075;

export class Cabins {
  /** @param {import("./scene.js").Scene} scene @param {MediaQueryList} calm prefers-reduced-motion */
  constructor(scene, calm) {
    this.scene = scene;
    this.calm = calm;
    this.phase = 0.02;
    this.slower = 0;
    this.perS = 0;
    this.rows = 0;
    this.parts = 1;
    this.last = 0;
    this.frame = 0;
    this.token = false;
    /** @type {import("./pace.js").Part[]} */
    this.table = [];
    calm.addEventListener("change", () => this.start());
    document.addEventListener("visibilitychange", () => this.start());
  }

  /** @param {Ring} ring @param {boolean} live the ring is whole and this picture of it is fresh */
  update(ring, live) {
    const plan = this.scene.plan;
    this.perS = live && ring.stages.length > 0 ? ring.round.perS : 0;
    this.rows = ring.round.rows;
    this.parts = Math.max(1, Math.min(MOST_CABINS, Math.round(ring.round.parts)));
    this.token = ring.sampler === "last";
    if (this.perS > 0) this.slower = slowdown(this.perS, ring.stages.length, this.slower);
    this.table = plan ? timetable(ring.stages.map((stage) => stage.forwardMs), plan.stations.length > 1 ? plan.legs.map(lengthOf) : [0]) : [];
    this.start();
  }

  /** What the picture shows, in words. @param {Ring} ring @param {boolean} live */
  words(ring, live) {
    if (ring.stages.length === 0 || !live) return "";
    if (this.perS === 0) return "Idle: no round is under way.";
    const rounds = `${rate(this.perS)} rounds a second`;
    const load = ring.round.parts > 1 ? `, the last of ${plural(ring.round.rows, "row")} in ${plural(ring.round.parts, "part")}` : `, ${plural(ring.round.rows, "row")} each`;
    if (this.still() || ring.stages.length === 1) return `${rounds}${load}.`;
    return `${rounds}${load}. ${this.slower > 1 ? `Shown ${count(this.slower)} times slower.` : "Shown as fast as it is."}`;
  }

  still() {
    return this.calm.matches || this.perS === 0;
  }

  start() {
    cancelAnimationFrame(this.frame);
    if (this.still() || document.hidden || !this.table.length) {
      this.scene.cabins.replaceChildren();
      for (const house of this.scene.houses) house.removeAttribute("data-lit");
      mark(this.scene.canvas, "data-moving", "no");
      return;
    }
    mark(this.scene.canvas, "data-moving", "yes");
    const tick = (/** @type {number} */ now) => {
      this.frame = requestAnimationFrame(tick);
      const passed = now - this.last;
      if (passed < FRAME_MS) return;
      this.last = now;
      this.phase = (this.phase + (Math.min(passed, 200) / 1000) * (this.perS / this.slower)) % 1;
      this.place();
    };
    this.frame = requestAnimationFrame(tick);
  }

  place() {
    const { plan, cabins, houses } = this.scene;
    if (!plan) return;
    while (cabins.childElementCount > this.parts) cabins.lastElementChild?.remove();
    while (cabins.childElementCount < this.parts) cabins.append(cabin(plan.view));
    const lit = new Set();
    [...cabins.children].forEach((node, i) => {
      const at = locate(this.table, this.phase - i * BETWEEN + 1);
      const home = at.at === "leg" && plan.legs[at.index] ? pointAt(plan.legs[at.index], at.along) : plan.stations[at.index];
      plan.stations.forEach((station, rank) => Math.hypot(home.x - station.x, home.y - station.y) < plan.half && lit.add(rank));
      mark(node, "transform", `translate(${home.x.toFixed(1)} ${home.y.toFixed(1)})`);
      mark(node, "data-inside", at.at === "station" ? "yes" : "no");
      mark(node, "data-load", this.token && at.at === "leg" && at.index === plan.legs.length - 1 ? "token" : "rows");
      const label = node.querySelector("text");
      if (label) say(label, short(this.rows / this.parts));
    });
    houses.forEach((house, i) => mark(house, "data-lit", lit.has(i) ? "yes" : "no"));
  }
}

/** @param {"across" | "down"} view */
function cabin(view) {
  const top = view === "across" ? 6 : -9;
  return svg("g", { class: "cabin" },
    ...(view === "across" ? [svg("path", { class: "hanger", d: "M0 0V7M-4 0h8" })] : []),
    svg("rect", { class: "shell", x: -12, y: top, width: 24, height: 18, rx: 4 }),
    svg("text", { class: "cargo", x: 0, y: top + 12.5, "text-anchor": "middle" }),
    svg("circle", { class: "token", cx: 0, cy: top + 7, r: 4.5 }));
}

/** @param {number} rows */
function short(rows) {
  const whole = Math.max(1, Math.round(rows));
  return whole < 1000 ? String(whole) : `${Math.round(whole / 1000)}k`;
}
