// Figures for people: counts, bytes, durations and rates as short texts. Pure; knows nothing of the page.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 32768 -> "32,768". @param {number} value */
export function count(value) {
  return COUNT.format(value);
}

/** Three significant figures at most: 61.04 -> "61", 6.13 -> "6.1", 0.042 -> "0.04". @param {number} value */
export function rate(value) {
  if (value >= 20) return COUNT.format(value);
  if (value >= 1) return trimmed(value, 1);
  return trimmed(value, 2);
}

/** Decimal units, as disks and networks count: 92000000 -> "92 MB". @param {number} value */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value >= 20 || at === 0 ? COUNT.format(value) : trimmed(value, 1)} ${units[at]}`;
}

/** Milliseconds to the unit that fits: 0.3 -> "0.3 ms", 640 -> "640 ms", 2100 -> "2.1 s". @param {number} ms */
export function millis(ms) {
  if (ms < 999.5) return `${rate(ms)} ms`;
  return seconds(ms / 1000);
}

/** Seconds: 2.1 -> "2.1 s", 123 -> "2 min 3 s", 90000 -> "1 d 1 h". @param {number} value */
export function seconds(value) {
  if (value < 59.5) return `${value < 20 ? trimmed(value, 1) : COUNT.format(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return pair(whole, 60, "min", 1, "s");
  if (whole < 86400) return pair(whole, 3600, "h", 60, "min");
  return pair(whole, 86400, "d", 3600, "h");
}

/** 0.4731 -> "47 %". @param {number} share */
export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

/** 1, "stream" -> "1 stream"; 2 -> "2 streams". @param {number} value @param {string} one @param {string} [many] */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** @param {number} value @param {number} digits */
function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

/** @param {number} value @param {number} big @param {string} bigName @param {number} small @param {string} smallName */
function pair(value, big, bigName, small, smallName) {
  const rest = Math.floor((value % big) / small);
  return `${Math.floor(value / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ""}`;
}
