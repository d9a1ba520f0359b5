// One streamed reply from POST /v1/chat/completions, and every way it can fail as something that people can read.

import { EventReader } from "./sse.js";

/** @typedef {{role: "system" | "user" | "assistant", content: string}} Message */
/** @typedef {{prompt_tokens?: number, completion_tokens?: number, prompt_tokens_details?: {cached_tokens?: number}}} Usage */
/** @typedef {{kind: "text", text: string} | {kind: "finish", reason: string} | {kind: "usage", usage: Usage}} Piece */

export class ReplyError extends Error {
  /** @param {"key" | "later" | "refused" | "gone" | "cut"} kind `later` may be tried again by itself; after `cut` some
   * text has come. @param {string} title @param {string} [detail] @param {number} [afterS] */
  constructor(kind, title, detail = "", afterS = 0) {
    super(title);
    this.kind = kind;
    this.detail = detail;
    this.afterS = afterS;
  }
}

/**
 * @param {{body: Record<string, unknown>, headers: Record<string, string>, signal: AbortSignal}} request
 * @returns {AsyncGenerator<Piece>} Throws ReplyError; an AbortError where `signal` was used.
 */
export async function* reply({ body, headers, signal }) {
  const response = await open(body, headers, signal);
  if (!response.ok) throw await refusal(response);
  const events = new EventReader();
  const decoder = new TextDecoder();
  let finished = false;
  for await (const chunk of chunks(response, signal)) {
    for (const data of events.read(decoder.decode(chunk, { stream: true }))) {
      if (data === "[DONE]") return;
      for (const piece of pieces(data)) {
        finished ||= piece.kind === "finish";
        yield piece;
      }
    }
  }
  if (!finished) throw new ReplyError("cut", "The reply was cut short.", "The connection ended before the reply did.");
}

/** @param {Record<string, unknown>} body @param {Record<string, string>} headers @param {AbortSignal} signal */
async function open(body, headers, signal) {
  try {
    return await fetch("v1/chat/completions", {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ReplyError("gone", "No answer from the server.", "It may be down, or the network between.");
  }
}

/** @param {Response} response @param {AbortSignal} signal */
async function* chunks(response, signal) {
  if (!response.body) return;
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ReplyError("cut", "The reply was cut short.", "The connection to the server broke.");
  } finally {
    reader.cancel().catch(() => {}); // The reader may have gone already; nothing waits for this.
  }
}

/** @param {string} data one event @returns {Piece[]} */
function pieces(data) {
  let value;
  try {
    value = JSON.parse(data);
  } catch {
    return [];
  }
  if (value?.error) throw new ReplyError("cut", "The reply was cut short.", message(value));
  /** @type {Piece[]} */
  const found = [];
  const choice = Array.isArray(value?.choices) ? value.choices[0] : undefined;
  if (typeof choice?.delta?.content === "string" && choice.delta.content) found.push({ kind: "text", text: choice.delta.content });
  if (typeof choice?.finish_reason === "string") found.push({ kind: "finish", reason: choice.finish_reason });
  if (value?.usage && typeof value.usage === "object") found.push({ kind: "usage", usage: value.usage });
  return found;
}

/** @param {Response} response */
async function refusal(response) {
  let detail = "";
  try {
    detail = message(await response.json());
  } catch {
    // Not JSON: a proxy answered, or the body was cut. The status says enough.
  }
  const after = Math.min(60, Math.max(1, Number.parseInt(response.headers.get("Retry-After") ?? "", 10) || 2));
  if (response.status === 401) return new ReplyError("key", "The server asks for an API key.", detail);
  if (response.status === 429) return new ReplyError("later", "The queue is full.", detail, after);
  if (response.status === 503) return new ReplyError("later", "The ring is not whole just now.", detail, after);
  if (response.status < 500) return new ReplyError("refused", "The server refused this request.", detail || `HTTP ${response.status}`);
  return new ReplyError("refused", "The server failed.", detail || `HTTP ${response.status}`);
}

/** @param {any} value an error's body */
function message(value) {
  const said = value?.error?.message ?? value?.error;
  return typeof said === "string" ? said.slice(0, 600) : "";
}
