// Asks for the ring's state about once a second, for as long as the page is seen. A server that does not answer is
// asked again later and later; an answer that cannot be read changes nothing on the page.

import { readRing } from "./ring_state.js";

const EVERY_MS = 1000;
const TIMEOUT_MS = 5000;
const LONGEST_WAIT_MS = 15000;

/** @typedef {{kind: "gone" | "unreadable" | "refused" | "key", detail: string, againInMs: number}} Trouble */

/**
 * @param {{headers: () => Record<string, string>, onRing: (ring: import("./ring_state.js").Ring) => void,
 *   onTrouble: (trouble: Trouble) => void}} owner
 * @returns {{now: () => void}} `now` asks at once, and forgets how long it had waited
 */
export function poll({ headers, onRing, onTrouble }) {
  let failures = 0;
  let timer = 0;
  let asking = false;
  let hasty = false;

  async function once() {
    clearTimeout(timer);
    if (asking) {
      hasty = true;
      return;
    }
    asking = true;
    let wait = EVERY_MS;
    try {
      onRing(await ask(headers()));
      failures = 0;
    } catch (error) {
      failures += 1;
      wait = Math.min(LONGEST_WAIT_MS, EVERY_MS * 2 ** (failures - 1));
      const trouble = error instanceof AskError ? error : new AskError("unreadable", String(error));
      onTrouble({ kind: trouble.kind, detail: trouble.message, againInMs: wait });
    }
    asking = false;
    if (hasty) wait = 0;
    hasty = false;
    if (!document.hidden) timer = setTimeout(once, wait);
  }

  function now() {
    failures = 0;
    void once();
  }

  document.addEventListener("visibilitychange", () => !document.hidden && now());
  now();
  return { now };
}

class AskError extends Error {
  /** @param {Trouble["kind"]} kind @param {string} detail */
  constructor(kind, detail) {
    super(detail);
    this.kind = kind;
  }
}

/** @param {Record<string, string>} headers */
async function ask(headers) {
  let reply;
  let body;
  try {
    reply = await fetch("v1/ring", { headers, signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
    body = await reply.text();
  } catch {
    throw new AskError("gone", "");
  }
  if (reply.status === 401) throw new AskError("key", headers.Authorization ? "wrong" : "");
  if (!reply.ok) throw new AskError("refused", `HTTP ${reply.status}`);
  return readRing(parse(body));
}

/** @param {string} body */
function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    throw new AskError("unreadable", "");
  }
}
