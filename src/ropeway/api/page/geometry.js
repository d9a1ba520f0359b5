// Where stations stand and ropes hang. Pure: sizes in, polylines out, the same picture for the same sizes.
// Two views: `across` is the section drawing of a wide page, `down` the plan drawing of a narrow one.

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{view: "across" | "down", width: number, height: number, half: number, step: number,
 *   stations: Point[], legs: Point[][], out: Point[], back: Point[], ground: Point[], far: Point[][], wheels: Point[]}} Plan
 *  `legs[i]` runs from station i to the next; the last one runs back to station 0. `half` is half a house's width,
 *  `step` how far the next station is. */

/** The return rope hangs so far above the rope outward, in pixels; a wheel at either end joins them. */
export const GAP = 36;
const RADIUS = GAP / 2;
const FEET = 41;
const CLEAR = 27;
const SHELF = 32;
const LANE = { out: 78, back: 26 };

/** Stations side by side over rough ground. @param {number} count @param {number} width @returns {Plan} */
export function across(count, width) {
  const height = Math.round(clamp(width * 0.27, 240, 340));
  const inset = count === 1 ? width * 0.42 : clamp((width / Math.max(1, count)) * 0.25, 54, 130);
  const tail = Math.min((width - inset) / Math.max(1, count), 300);
  const step = count > 1 ? (width - inset - tail) / (count - 1) : tail;
  const half = step < 130 ? 20 : 28;
  const low = height - 88;
  const stations = many(count, (i) => ({ x: Math.round(inset + i * step), y: Math.round(78 + (1 - altitude(i, count)) * (low - 78)) }));
  const range = (/** @type {number} */ seed, /** @type {number} */ top, /** @type {number} */ deep) =>
    many(Math.ceil(width / 6) + 1, (i) => ({ x: i * 6, y: height * (top + deep * (1 - peaks(i * 6 + seed))) }));
  const far = [range(5200, 0.06, 0.72), range(900, 0.3, 0.62)].map((each) => sloped(each, width, height));
  const base = { view: /** @type {const} */ ("across"), width, height, half, step, stations, far };
  if (count === 0) return { ...base, legs: [], out: [], back: [], ground: range(300, 0.62, 0.3), wheels: [] };
  const first = stations[0];
  const last = stations[count - 1];
  const left = { x: Math.max(first.x - half - 14, RADIUS + 2), y: first.y - RADIUS };
  const right = { x: Math.min(last.x + half + 14, width - RADIUS - 2), y: last.y - RADIUS };
  const hops = many(count - 1, (i) => span(stations[i], stations[i + 1], 0.05));
  const tops = stations.map((p) => ({ x: p.x, y: p.y - GAP }));
  const overhead = many(count - 1, (i) => span(tops[count - 1 - i], tops[count - 2 - i], 0.028)).flat();
  const back = [last, ...arc(right, RADIUS, 90, -90), tops[count - 1], ...overhead, ...arc(left, RADIUS, 270, 90), first];
  return { ...base, legs: [...hops, back], out: hops.flat(), back, ground: terrain(stations, hops.flat(), width, height), wheels: [left, right] };
}

/** Stations one below the other, at the given heights. @param {number[]} at @param {number} height @returns {Plan} */
export function down(at, height) {
  const stations = at.map((y) => ({ x: LANE.out, y }));
  const base = { view: /** @type {const} */ ("down"), width: LANE.out + 34, height, half: 23, step: 0, stations, far: [], ground: [] };
  if (stations.length === 0) return { ...base, legs: [], out: [], back: [], wheels: [] };
  const last = stations[stations.length - 1];
  const middle = (LANE.out + LANE.back) / 2;
  const radius = (LANE.out - LANE.back) / 2;
  const top = { x: middle, y: stations[0].y - 30 };
  const bottom = { x: middle, y: last.y + 30 };
  const hops = many(stations.length - 1, (i) => [stations[i], stations[i + 1]]);
  const back = [last, ...arc(bottom, radius, 0, 180), ...arc(top, radius, 180, 360), stations[0]];
  return { ...base, legs: [...hops, back], out: hops.flat(), back, wheels: [top, bottom] };
}

/** The point so far along a polyline, 0 to 1 by length. @param {Point[]} points @param {number} along @returns {Point} */
export function pointAt(points, along) {
  let left = clamp(along, 0, 1) * lengthOf(points);
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = [points[i - 1], points[i]];
    const piece = Math.hypot(b.x - a.x, b.y - a.y);
    if (left <= piece && piece > 0) return { x: a.x + ((b.x - a.x) * left) / piece, y: a.y + ((b.y - a.y) * left) / piece };
    left -= piece;
  }
  return points[points.length - 1];
}

/** In pixels. @param {Point[]} points */
export function lengthOf(points) {
  let total = 0;
  for (let i = 1; i < points.length; i += 1) total += Math.hypot(points[i].x - points[i - 1].x, points[i].y - points[i - 1].y);
  return total;
}

/** An SVG path through the points. @param {Point[]} points */
export function path(points) {
  return points.map((p, i) => `${i ? "L" : "M"}${round(p.x)} ${round(p.y)}`).join("");
}

/** How high station i stands, 0 valley to 1 summit: a climb with steps in it. @param {number} i @param {number} count */
function altitude(i, count) {
  if (count === 1) return 0.55;
  const along = i / (count - 1);
  const edge = Math.sin(Math.PI * along);
  return clamp(0.08 + 0.84 * along ** 0.85 + edge * (0.2 * wobble(i * 3 + count) - 0.1), 0, 1);
}

/** A rope between two points sags by a share of its span. @param {Point} a @param {Point} b @param {number} sag */
function span(a, b, sag) {
  const depth = Math.abs(b.x - a.x) * sag;
  return many(25, (i) => {
    const t = i / 24;
    return { x: a.x + (b.x - a.x) * t, y: a.y + (b.y - a.y) * t + 4 * depth * t * (1 - t) };
  });
}

/** Angles in degrees, clockwise from the right. @param {Point} centre @param {number} radius @param {number} from @param {number} to */
function arc(centre, radius, from, to) {
  return many(13, (i) => {
    const angle = ((from + ((to - from) * i) / 12) * Math.PI) / 180;
    return { x: centre.x + radius * Math.cos(angle), y: centre.y + radius * Math.sin(angle) };
  });
}

/** Ground that stays clear of the ropes and meets every station's feet. @param {Point[]} stations @param {Point[]} rope
 * @param {number} width @param {number} height */
function terrain(stations, rope, width, height) {
  const first = stations[0];
  const last = stations[stations.length - 1];
  const beyond = width - last.x;
  const feet = [
    { x: -30, y: Math.min(height - 26, first.y + 84) },
    ...stations.map((p) => ({ x: p.x, y: p.y + FEET })),
    { x: last.x + beyond * 0.6, y: last.y + (stations.length > 1 ? Math.max(-6, 40 - beyond * 0.14) : 66) },
    { x: width + 30, y: Math.min(height - 30, last.y + (stations.length > 1 ? 64 : 96)) },
  ];
  const points = [];
  for (let i = 1; i < feet.length; i += 1) {
    const [a, b] = [feet[i - 1], feet[i]];
    const wide = b.x - a.x;
    const steps = Math.max(4, Math.round(wide / 8));
    const valley = Math.max(0, Math.min(70, wide * 0.17, height - 34 - Math.max(a.y, b.y)));
    const dip = i > 1 && i < feet.length - 2 ? valley : 8;
    for (let s = i === 1 ? 0 : 1; s <= steps; s += 1) {
      const t = s / steps;
      const x = a.x + wide * t;
      const room = clamp(Math.min(...stations.map((p) => Math.abs(x - p.x))) - 30, 0, 60) / 60;
      const rough = (0.62 - peaks(x * 1.7 + 77)) * Math.min(74, 20 + wide * 0.14);
      const y = a.y + (b.y - a.y) * cliff((x - a.x - SHELF) / (wide - 2 * SHELF), b.y < a.y) + (dip * Math.sin(Math.PI * t) + rough) * room;
      points.push({ x, y: Math.min(height - 12, Math.max(y, ropeAt(rope, x) + CLEAR)) });
    }
  }
  return points;
}

/** From 0 to 1, steep where it meets the higher end. @param {number} t @param {boolean} rising */
function cliff(t, rising) {
  const along = clamp(t, 0, 1);
  return rising ? along ** 1.8 : 1 - (1 - along) ** 1.8;
}

/** A range that comes down to the plain on both sides. @param {Point[]} points @param {number} width @param {number} height */
function sloped(points, width, height) {
  return points.map(({ x, y }) => {
    const t = clamp(Math.min(x, width - x) / (width * 0.2), 0, 1);
    return { x, y: height - (height - y) * t * (2 - t) };
  });
}

/** How low the rope hangs at x; far above where there is none. @param {Point[]} rope @param {number} x */
function ropeAt(rope, x) {
  const at = rope.findIndex((point) => point.x >= x);
  if (at < 1) return -Infinity;
  const [a, b] = [rope[at - 1], rope[at]];
  return b.x > a.x ? a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x) : b.y;
}

/** Heights along x, 0 to 1, of sharp crests and round valleys: ridged noise of five octaves. @param {number} x */
function peaks(x) {
  let sum = 0;
  for (const [size, weight] of [[310, 0.5], [137, 0.26], [61, 0.13], [27, 0.07], [13, 0.04]]) {
    const cell = Math.floor(x / size);
    const t = x / size - cell;
    const soft = t * t * (3 - 2 * t);
    const noise = wobble(cell + size) * (1 - soft) + wobble(cell + 1 + size) * soft;
    sum += weight * (1 - Math.abs(2 * noise - 1));
  }
  return sum;
}

/** A fixed number between 0 and 1 for every whole number. @param {number} seed */
function wobble(seed) {
  const value = Math.sin(seed * 127.1 + 11.7) * 43758.5453;
  return value - Math.floor(value);
}

/** @template T @param {number} count @param {(i: number) => T} make */
function many(count, make) {
  return Array.from({ length: Math.max(0, count) }, (_, i) => make(i));
}

/** @param {number} value @param {number} least @param {number} most */
function clamp(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
