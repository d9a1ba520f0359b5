// Where stations stand and ropes hang. Pure: sizes in, polylines out, the same picture for the same sizes.
// Two views: `across` is the section drawing of a wide page, `down` the plan drawing of a narrow one.

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{view: "across" | "down", width: number, height: number, half: number, stations: Point[], legs: Point[][],
 *   out: Point[], back: Point[], ground: Point[], ridge: Point[], wheels: Point[]}} Plan
 *  `legs[i]` runs from station i to the next; the last one runs back to station 0. `half` is half a house's width. */

/** The return rope hangs so far above the rope outward, in pixels; a wheel at either end joins them. */
export const GAP = 36;
const RADIUS = GAP / 2;
const HANG = 26;
const LANE = { out: 78, back: 26 };

/** Stations side by side over rough ground. @param {number} count @param {number} width @returns {Plan} */
export function across(count, width) {
  const height = Math.round(clamp(width * 0.24, 230, 310));
  const step = width / Math.max(1, count);
  const half = step < 130 ? 21 : 28;
  const low = height - 92;
  const stations = many(count, (i) => ({ x: (i + 0.5) * step, y: 66 + (1 - altitude(i, count)) * (low - 66) }));
  const ridge = many(Math.ceil(width / 18) + 1, (i) => ({ x: i * 18, y: height * (0.58 - 0.42 * ridges(i * 18)) }));
  if (count === 0) {
    const ground = many(Math.ceil(width / 14) + 1, (i) => ({ x: i * 14, y: height * (0.86 - 0.2 * ridges(i * 9 + 400)) }));
    return { view: "across", width, height, half, stations, legs: [], out: [], back: [], ground, ridge, wheels: [] };
  }
  const first = stations[0];
  const last = stations[count - 1];
  const reach = half + 16;
  const left = { x: Math.max(first.x - reach, RADIUS + 2), y: first.y - RADIUS };
  const right = { x: Math.min(last.x + reach, width - RADIUS - 2), y: last.y - RADIUS };
  const hops = many(count - 1, (i) => span(stations[i], stations[i + 1], 0.055));
  const tops = stations.map((p) => ({ x: p.x, y: p.y - GAP }));
  const overhead = many(count - 1, (i) => span(tops[count - 1 - i], tops[count - 2 - i], 0.03)).flat();
  const turnRight = arc(right, RADIUS, 90, -90);
  const turnLeft = arc(left, RADIUS, 270, 90);
  const back = [last, ...turnRight, tops[count - 1], ...overhead, ...turnLeft, first];
  return {
    view: "across", width, height, half, stations,
    legs: [...hops, back],
    out: hops.flat(),
    back,
    ground: terrain(stations, width, height),
    ridge,
    wheels: [left, right],
  };
}

/** Stations one below the other, at the given heights. @param {number[]} at @param {number} height @returns {Plan} */
export function down(at, height) {
  const stations = at.map((y) => ({ x: LANE.out, y }));
  const count = stations.length;
  const width = LANE.out + 34;
  const half = 23;
  if (count === 0) return { view: "down", width, height, half, stations, legs: [], out: [], back: [], ground: [], ridge: [], wheels: [] };
  const middle = (LANE.out + LANE.back) / 2;
  const radius = (LANE.out - LANE.back) / 2;
  const top = { x: middle, y: stations[0].y - 30 };
  const bottom = { x: middle, y: stations[count - 1].y + 30 };
  const hops = many(count - 1, (i) => [stations[i], stations[i + 1]]);
  const back = [stations[count - 1], ...arc(bottom, radius, 0, 180), ...arc(top, radius, 180, 360), stations[0]];
  return {
    view: "down", width, height, half, stations,
    legs: [...hops, back], out: hops.flat(), back, ground: [], ridge: [], wheels: [top, bottom],
  };
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

/** Ground that stays clear of the ropes and meets every station's feet. @param {Point[]} stations @param {number} width @param {number} height */
function terrain(stations, width, height) {
  const feet = [
    { x: -40, y: Math.min(height - 24, stations[0].y + 70) },
    ...stations.map((p) => ({ x: p.x, y: p.y + HANG + 14 })),
    { x: width + 40, y: stations[stations.length - 1].y + (stations.length > 1 ? 8 : 74) },
  ];
  const points = [];
  for (let i = 1; i < feet.length; i += 1) {
    const [a, b] = [feet[i - 1], feet[i]];
    const steps = Math.max(4, Math.round((b.x - a.x) / 13));
    const inner = i > 1 && i < feet.length - 1;
    const dip = inner ? Math.min(60, (b.x - a.x) * 0.16) : 12;
    for (let s = i === 1 ? 0 : 1; s <= steps; s += 1) {
      const t = s / steps;
      const hump = Math.sin(Math.PI * t);
      const rough = (ridges(a.x + (b.x - a.x) * t + 77) - 0.5) * Math.min(46, (b.x - a.x) * 0.2);
      const flat = clamp(Math.min(t, 1 - t) * (b.x - a.x) - 30, 0, 40) / 40;
      points.push({ x: a.x + (b.x - a.x) * t, y: Math.min(height - 10, a.y + (b.y - a.y) * shelf(t) + (dip * hump + rough) * flat) });
    }
  }
  return points;
}

/** Flat near both ends, so that a station stands on a shelf. @param {number} t */
function shelf(t) {
  return t * t * (3 - 2 * t);
}

/** Rough heights along x, 0 to 1, of four octaves. @param {number} x */
function ridges(x) {
  let sum = 0;
  for (const [size, weight] of [[230, 0.5], [97, 0.27], [41, 0.15], [17, 0.08]]) {
    const cell = Math.floor(x / size);
    const t = x / size - cell;
    sum += weight * (wobble(cell + size) * (1 - t) + wobble(cell + 1 + size) * t);
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
