// The conversation: what was said, the reply that streams in, stopping it, and trying again. One reply at a time.

import { byId, say } from "./dom.js";
import { ReplyError, reply } from "./completions.js";
import { plural } from "./format.js";
import { Turn } from "./turn.js";

/** @typedef {import("./completions.js").Message} Message */

const MOST_TRIES = 8;

export class Chat {
  /** @param {{headers: () => Record<string, string>, onKey: () => void, onEnded: () => void}} owner */
  constructor(owner) {
    this.owner = owner;
    this.model = "";
    /** @type {Turn[]} */
    this.turns = [];
    /** @type {AbortController | null} */
    this.stopper = null;
    this.wantsKey = false;
    this.input = /** @type {HTMLTextAreaElement} */ (byId("say"));
    this.log = byId("log");
    byId("compose").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.send();
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.input.addEventListener("input", () => this.refresh());
    byId("stop").addEventListener("click", () => this.stop());
    byId("chat-new").addEventListener("click", () => this.clear());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.stopper && this.stop());
    this.refresh();
  }

  /** @param {string} model the id that a request names */
  setModel(model) {
    this.model = model;
    this.refresh();
  }

  /** A key has come: the reply that needed one is tried again. */
  keyGiven() {
    if (this.wantsKey && !this.stopper) this.again();
    this.wantsKey = false;
  }

  send() {
    const text = this.input.value.trim();
    if (!text || this.stopper || !this.model) return;
    this.input.value = "";
    this.add(new Turn("user", "You", text));
    void this.answer();
  }

  stop() {
    this.stopper?.abort();
    this.input.focus();
  }

  clear() {
    this.stopper?.abort();
    for (const turn of this.turns) turn.item.remove();
    this.turns = [];
    this.refresh();
    this.input.focus();
  }

  /** Drops the reply that failed and asks for another. */
  again() {
    const last = this.turns[this.turns.length - 1];
    if (this.stopper || last?.role !== "assistant") return;
    this.turns.pop();
    last.item.remove();
    this.input.focus();
    void this.answer();
  }

  async answer() {
    const turn = new Turn("assistant", this.model, "");
    const stopper = new AbortController();
    const messages = this.messages();
    this.stopper = stopper;
    this.add(turn);
    say(byId("chat-status"), "Waiting for the reply");
    try {
      await this.attempt(turn, messages, stopper.signal);
      say(byId("chat-status"), `Reply: ${turn.content.slice(0, 600)}`);
    } catch (error) {
      if (stopper.signal.aborted) turn.stopped();
      else this.failed(turn, error);
    } finally {
      if (this.stopper === stopper) this.stopper = null;
      this.refresh();
      this.follow();
      this.owner.onEnded();
    }
  }

  /** Tries until a reply begins; a full queue or a ring that is not whole is asked again when the server says so.
   * @param {Turn} turn @param {Message[]} messages @param {AbortSignal} signal */
  async attempt(turn, messages, signal) {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.receive(turn, messages, signal);
      } catch (error) {
        if (!(error instanceof ReplyError) || error.kind !== "later" || tries === MOST_TRIES) throw error;
        say(byId("chat-status"), `${error.message} Trying again in ${plural(error.afterS, "second")}.`);
        await turn.countDown(error, signal);
      }
    }
  }

  /** @param {Turn} turn @param {Message[]} messages @param {AbortSignal} signal */
  async receive(turn, messages, signal) {
    turn.begin();
    const body = { model: this.model, messages, ...settings() };
    for await (const piece of reply({ body, headers: this.owner.headers(), signal })) {
      const atEnd = this.atEnd();
      turn.take(piece);
      if (atEnd) this.follow();
    }
    turn.finish();
  }

  /** @param {Turn} turn @param {unknown} error */
  failed(turn, error) {
    const shown = error instanceof ReplyError ? error : new ReplyError("refused", "The page failed.", String(error));
    turn.fail(shown, () => this.again());
    say(byId("chat-status"), `${shown.message} ${shown.detail}`);
    if (shown.kind !== "key") return;
    this.wantsKey = true;
    this.owner.onKey();
  }

  /** @returns {Message[]} */
  messages() {
    const system = byId("set-system").value.trim();
    const said = this.turns.filter((turn) => turn.content).map((turn) => ({ role: turn.role, content: turn.content }));
    return system ? [{ role: "system", content: system }, ...said] : said;
  }

  /** @param {Turn} turn */
  add(turn) {
    this.turns.push(turn);
    byId("turns").append(turn.item);
    this.refresh();
    this.follow();
  }

  atEnd() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
  }

  follow() {
    this.log.scrollTop = this.log.scrollHeight;
  }

  refresh() {
    const busy = this.stopper !== null;
    byId("stop").hidden = !busy;
    byId("send").hidden = busy;
    byId("send").disabled = !this.model || !this.input.value.trim();
    byId("chat-empty").hidden = this.turns.length > 0;
    byId("chat-new").disabled = this.turns.length === 0;
  }
}

/** What the settings add to a request; a figure that is no figure is left out. */
function settings() {
  const temperature = byId("set-temperature").valueAsNumber;
  const most = byId("set-max").valueAsNumber;
  return {
    ...(Number.isFinite(temperature) ? { temperature } : {}),
    ...(Number.isInteger(most) && most > 0 ? { max_tokens: most } : {}),
  };
}
