// How fast the picture moves. A round takes milliseconds and a cabin must be followed by eye, so the picture runs a
// round number of times slower than the ring, and says so. Pure: time is an argument.

/** @typedef {{at: "station" | "leg", index: number, along: number}} Place `along` is 0 to 1 */
/** @typedef {{at: "station" | "leg", index: number, share: number}} Part */

const SECONDS_A_HOP = 1.7;

/** How many times slower a ring of so many rounds a second is shown: 1, 2, 5, 10, 20, 50, ... Keeps the present figure
 * while it still fits, so that it does not flicker. @param {number} perS @param {number} stages @param {number} present */
export function slowdown(perS, stages, present) {
  const ideal = perS * Math.min(16, SECONDS_A_HOP * (stages + 1));
  if (present >= 1 && ideal > present / 2.2 && ideal < present * 2.2) return present;
  if (ideal <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(ideal));
  return [1, 2, 5, 10].map((step) => step * power).reduce((a, b) => (Math.abs(Math.log(b / ideal)) < Math.abs(Math.log(a / ideal)) ? b : a));
}

/** What one trip consists of. Half of it is spent in the stations, by their forwards' lengths; half on the ropes, by
 * theirs, the way back at twice the speed. Shares add up to 1. @param {number[]} forwardMs @param {number[]} lengths
 * @returns {Part[]} */
export function timetable(forwardMs, lengths) {
  const work = total(forwardMs);
  const dwell = forwardMs.map((ms) => (work > 0 ? 0.15 + (0.85 * ms * forwardMs.length) / work : 1));
  const ropes = lengths.map((pixels, i) => (i === lengths.length - 1 ? pixels / 2 : pixels));
  const [inside, outside] = [total(dwell), total(ropes)];
  return forwardMs.flatMap((_, index) => [
    { at: /** @type {const} */ ("station"), index, share: ((outside > 0 ? 0.5 : 1) * dwell[index]) / inside },
    { at: /** @type {const} */ ("leg"), index, share: outside > 0 ? (0.5 * ropes[index]) / outside : 0 },
  ]);
}

/** Where a cabin is at a phase of its trip, 0 to 1. It leaves and arrives gently. @param {Part[]} parts @param {number} phase
 * @returns {Place} */
export function locate(parts, phase) {
  let left = phase - Math.floor(phase);
  for (const part of parts) {
    if (left < part.share) {
      const along = left / part.share;
      return { at: part.at, index: part.index, along: part.at === "leg" ? along * along * (3 - 2 * along) : along };
    }
    left -= part.share;
  }
  return { at: "station", index: 0, along: 0 };
}

/** @param {number[]} values */
function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}
