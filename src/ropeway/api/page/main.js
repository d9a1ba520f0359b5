// The page: asks rank 0 for the ring's state, hands it to the parts that show it, and keeps the API key in memory.

import { Boards } from "./boards.js";
import { Cabins } from "./cabins.js";
import { Chat } from "./chat.js";
import { byId, mark, say } from "./dom.js";
import { Figures } from "./figures.js";
import { count, seconds } from "./format.js";
import { Notice } from "./notice.js";
import { poll } from "./poll.js";
import { Recent } from "./recent.js";
import { Scene, caption } from "./scene.js";
import { Streams } from "./streams.js";
import { Timeline } from "./timeline.js";

/** @type {import("./ring_state.js").Ring | null} */
let ring = null;
/** @type {import("./poll.js").Trouble | null} */
let trouble = null;
let heardAt = 0;
let againAt = 0;
let key = "";

const headers = () => /** @type {Record<string, string>} */ (key ? { Authorization: `Bearer ${key}` } : {});
const boards = new Boards(byId("stations"));
const scene = new Scene(byId("picture"), byId("scene"), byId("stations"));
const cabins = new Cabins(scene, matchMedia("(prefers-reduced-motion: reduce)"));
const figures = new Figures(byId("figures"));
const streams = new Streams(byId("streams"), byId("streams-count"));
const timeline = new Timeline(byId("timeline"), byId("timeline-aside"));
const recent = new Recent(byId("recent"), (request) => timeline.show(request));
const chat = new Chat({ headers, onKey: () => askForKey(true), onEnded: () => poller.now() });
const notice = new Notice(byId("notice"), byId("state"), byId("state-word"), () => poller.now());
const poller = poll({
  headers,
  onRing: (state) => {
    ring = state;
    trouble = null;
    heardAt = performance.now();
    byId("key-form").hidden = true;
    show();
    figures.update(state, live());
  },
  onTrouble: (what) => {
    trouble = what;
    againAt = performance.now() + what.againInMs;
    if (what.kind === "key") askForKey(document.activeElement === document.body);
    show();
  },
});

/** The ring is whole, and what is known of it is fresh. */
function live() {
  return ring !== null && trouble === null && (ring.state === "ready" || ring.state === "draining");
}

function show() {
  mark(document.body, "data-state", trouble?.kind ?? ring?.state ?? "connecting");
  mark(document.body, "data-live", live() ? "yes" : "no");
  tellNotice();
  if (!ring) return;
  const { model } = ring;
  say(byId("model"), [model.id, model.layers ? `${count(model.layers)} layers` : "", model.context ? `context ${count(model.context)}` : ""].filter(Boolean).join(" · "));
  say(byId("placement"), `Placement ${ring.placement || "not known"}, up ${seconds(ring.uptimeS)}.`);
  boards.update(ring.stages, live() ? "live" : trouble ? "not known" : "stopped");
  drawScene();
  streams.update(ring.streams);
  recent.update(ring.recent);
  chat.setModel(model.id);
}

function drawScene() {
  if (!ring) return;
  scene.draw(ring);
  scene.update(ring);
  cabins.update(ring, live());
  caption(byId("pace"), cabins.words(ring, live()));
}

function tellNotice() {
  const now = performance.now();
  notice.update(ring, trouble, { heardS: (now - heardAt) / 1000, againS: Math.max(0, Math.ceil((againAt - now) / 1000)) });
}

/** @param {boolean} focus not while the reader is at something else */
function askForKey(focus) {
  const form = byId("key-form");
  say(byId("key-label"), key ? "The server does not accept this API key." : "This server asks for an API key.");
  form.hidden = false;
  if (focus) byId("key-input").focus();
}

byId("key-form").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  const given = byId("key-input").value.trim();
  byId("key-input").value = "";
  if (!/^[\x21-\x7e]+$/.test(given)) {
    say(byId("key-label"), "An API key has plain letters, digits and signs, and no spaces.");
    return;
  }
  key = given;
  byId("key-forget").hidden = false;
  byId("key-form").hidden = true;
  poller.now();
  chat.keyGiven();
});
byId("key-forget").addEventListener("click", () => {
  key = "";
  byId("key-forget").hidden = true;
  poller.now();
});
setInterval(() => trouble && tellNotice(), 1000);
const sizes = new ResizeObserver(() => drawScene());
sizes.observe(byId("picture"));
sizes.observe(byId("stations"));
