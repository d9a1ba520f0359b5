// Draws the ropeway: ground, ropes, stations, links' sizes. What moves on it is cabins.js.

import { el, mark, say, svg } from "./dom.js";
import { bytes, count } from "./format.js";
import { GAP, across, down, path } from "./geometry.js";

/** @typedef {import("./ring_state.js").Ring} Ring */
/** @typedef {import("./geometry.js").Plan} Plan */

const NARROWEST_COLUMN = 98;
const NARROWEST_PAGE = 560;

export class Scene {
  /** @param {HTMLElement} picture @param {SVGSVGElement} canvas @param {HTMLElement} list */
  constructor(picture, canvas, list) {
    this.picture = picture;
    this.canvas = canvas;
    this.list = list;
    /** @type {Plan | null} */
    this.plan = null;
    this.cabins = svg("g", { class: "cabins" });
    /** @type {SVGGElement[]} */
    this.houses = [];
    this.drawn = "";
  }

  /** Lays the picture out anew where its size or its stations have changed. Gives true where it has.
   * @param {Ring} ring */
  draw(ring) {
    const width = Math.floor(this.picture.clientWidth);
    const stages = ring.stages.length;
    const wide = width >= NARROWEST_PAGE && width / Math.max(1, stages) >= NARROWEST_COLUMN;
    mark(this.picture, "data-view", wide ? "across" : "down");
    mark(this.picture, "data-room", !wide || width / stages > 240 ? "ample" : width / stages > 150 ? "fair" : "scarce");
    const rows = wide ? [] : [...this.list.children].map((item) => middle(/** @type {HTMLElement} */ (item)));
    const key = [width, wide, stages, ...rows, ring.sampler, ...ring.links.map((link) => link.rowBytes)].join(" ");
    if (key === this.drawn) return false;
    this.drawn = key;
    this.plan = wide ? across(stages, width) : down(rows, this.list.offsetHeight);
    const xs = [...this.plan.stations.map((station) => station.x), width];
    this.list.style.paddingInlineStart = wide && stages ? `${xs[0]}px` : "";
    this.list.style.gridTemplateColumns = wide ? xs.slice(1).map((x, i) => `${x - xs[i]}px`).join(" ") : "";
    this.paint(ring, this.plan);
    return true;
  }

  /** @param {Ring} ring */
  update(ring) {
    ring.stages.forEach((stage, i) => this.houses[i] && mark(this.houses[i], "data-activity", stage.activity));
    mark(this.canvas, "aria-label", describe(ring));
  }

  /** @param {Ring} ring @param {Plan} plan */
  paint(ring, plan) {
    const { width, height } = plan;
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.setAttribute("width", String(width));
    this.canvas.setAttribute("height", String(height));
    this.cabins.replaceChildren();
    this.houses = plan.stations.map((_, i) => house(plan, i, String(ring.stages[i]?.rank ?? i)));
    this.canvas.replaceChildren(
      ...(plan.view === "across" ? [land(plan)] : []),
      ...plan.wheels.flatMap((p) => [
        svg("circle", { class: "wheel", cx: p.x, cy: p.y, r: plan.view === "across" ? GAP / 2 : 26 }),
        svg("circle", { class: "hub", cx: p.x, cy: p.y, r: 2.4 }),
      ]),
      svg("path", { class: "rope back", d: path(plan.back) }),
      svg("path", { class: "rope", d: path(plan.out) }),
      this.cabins,
      ...this.houses,
      ...sizes(ring, plan),
    );
  }
}

/** @param {HTMLElement} item */
function middle(item) {
  return item.offsetTop + Math.min(item.offsetHeight / 2, 52);
}

/** Far ranges, and the ground with strokes on the slopes that fall to the right, as an engraver would shade them.
 * @param {Plan} plan */
function land({ far, ground, width, height }) {
  const floor = `L${width} ${height}L0 ${height}Z`;
  const strokes = ground.flatMap((p, i) => {
    const next = ground[i + 1];
    const slope = next ? (next.y - p.y) / (next.x - p.x) : 0;
    if (slope < 0.12) return [];
    const long = 5 + 26 * Math.min(1, slope);
    return [`M${(p.x + 1).toFixed(1)} ${(p.y + 3).toFixed(1)}l${(long * 0.42).toFixed(1)} ${long.toFixed(1)}`];
  });
  return svg("g", { class: "land" },
    svg("defs", {}, shade("fall", 0, 1, ["near", "gone"]), shade("haze", 0, 1, ["distant", "gone"]),
      shade("sides", 1, 0, ["hidden", "shown", "shown", "hidden"]),
      svg("mask", { id: "edges", maskUnits: "userSpaceOnUse", x: 0, y: 0, width, height },
        svg("rect", { width, height, fill: "url(#sides)" }))),
    ...far.map((range, i) => svg("path", { class: "far", "data-range": i, d: path(range) + floor, fill: "url(#haze)" })),
    svg("path", { class: "ground", d: path(ground) + floor }),
    svg("g", { mask: "url(#edges)" },
      svg("path", { d: path(ground) + floor, fill: "url(#fall)" }),
      svg("path", { class: "contour", d: path(ground) }),
      svg("path", { class: "strokes", d: strokes.join("") })));
}

/** A gradient whose stops' colours are the style sheet's. @param {string} id @param {number} x2 @param {number} y2 @param {string[]} stops */
function shade(id, x2, y2, stops) {
  const at = stops.length === 2 ? [0, 1] : [0, 0.06, 0.94, 1];
  return svg("linearGradient", { id, x1: 0, y1: 0, x2, y2 }, ...stops.map((name, i) => svg("stop", { offset: at[i], class: `stop-${name}` })));
}

/** @param {Plan} plan @param {number} i @param {string} name */
function house(plan, i, name) {
  const { x, y } = plan.stations[i];
  const { half } = plan;
  const parts = plan.view === "across"
    ? [
        svg("path", { class: "leader", d: `M${x + 0.5} ${y + 30}V${plan.height}` }),
        svg("path", { class: "mast", d: `M${x} ${y - 10}V${y - GAP - 5}M${x - 7} ${y - GAP + 3}h14` }),
        svg("circle", { class: "sheave", cx: x, cy: y - GAP + 1.5, r: 2.6 }),
        svg("path", { class: "legs", d: `M${x - half + 6} ${y + 28}l-3 13M${x + half - 6} ${y + 28}l3 13` }),
        svg("rect", { class: "walls", x: x - half, y: y - 9, width: half * 2, height: 38 }),
        svg("path", { class: "roof", d: `M${x - half - 5} ${y - 9}h${half * 2 + 10}` }),
        svg("text", { class: "rank", x, y: y + 9, "text-anchor": "middle", text: name }),
        ...windows(x, y + 15, half),
      ]
    : [
        svg("rect", { class: "walls", x: x - half, y: y - 19, width: half * 2, height: 38, rx: 2 }),
        svg("text", { class: "rank", x, y: y, "text-anchor": "middle", text: name }),
        ...windows(x, y + 6, half),
      ];
  return svg("g", { class: "house" }, ...parts);
}

/** @param {number} x @param {number} y @param {number} half */
function windows(x, y, half) {
  const wide = half > 24 ? 4 : 3;
  const left = x - (wide * 10 - 3) / 2;
  return Array.from({ length: wide }, (_, i) => svg("rect", { class: "window", x: left + i * 10, y, width: 7, height: 7 }));
}

/** What a row weighs, written over the ropes where there is room; once where all links carry the same.
 * @param {Ring} ring @param {Plan} plan */
function sizes(ring, plan) {
  if (plan.view !== "across" || plan.stations.length < 2 || plan.step < 150) return [];
  const same = ring.links.every((link) => link.rowBytes === ring.links[0].rowBytes);
  return plan.stations.flatMap((p, i) => {
    const next = plan.stations[i + 1];
    const link = ring.links.find((each) => each.from === i && each.to === i + 1);
    if (!next || !link || (same && i > 0)) return [];
    const rise = Math.abs(next.y - p.y) / (next.x - p.x);
    const x = (p.x + next.x) / 2;
    const y = (p.y + next.y) / 2 + (next.x - p.x) * 0.028 - GAP - 12 - rise * 46;
    return [svg("text", { class: "weight", x, y, "text-anchor": "middle", text: `${count(link.rowBytes)} B a row` })];
  });
}

/** The picture in a sentence, for people who do not see it. @param {Ring} ring */
function describe(ring) {
  const stages = ring.stages.length;
  if (stages === 0) return "The ring has no stations yet";
  if (stages === 1) return "A ropeway with one station: rank 0 runs the whole model";
  const back = ring.sampler === "last" ? "the token comes" : "the last rows come";
  const link = ring.links[0] ? `, ${bytes(ring.links[0].rowBytes)} a row` : "";
  return `A ropeway with ${stages} stations: rows go from rank 0 to rank ${stages - 1}${link}, and ${back} back to rank 0`;
}

/** The line under the picture that says what moves on it. @param {HTMLElement} line @param {string} text */
export function caption(line, text) {
  if (!line.firstChild) line.append(el("span"));
  say(/** @type {Node} */ (line.firstChild), text);
}
