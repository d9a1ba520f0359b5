// Server-sent events from pieces of text: https://html.spec.whatwg.org/multipage/server-sent-events.html. Pure.

/** Gives the data of each event that is complete; keeps the rest for the next piece. */
export class EventReader {
  constructor() {
    this.rest = "";
    /** @type {string[]} */
    this.data = [];
  }

  /** @param {string} piece @returns {string[]} */
  read(piece) {
    this.rest += piece;
    const events = [];
    for (;;) {
      const found = /\r\n|\n|\r/.exec(this.rest);
      // A carriage return at the very end may be half of a line's end.
      if (!found || (found[0] === "\r" && found.index === this.rest.length - 1)) return events;
      const line = this.rest.slice(0, found.index);
      this.rest = this.rest.slice(found.index + found[0].length);
      if (line === "") {
        if (this.data.length) events.push(this.data.join("\n"));
        this.data = [];
      } else if (line === "data" || line.startsWith("data:")) {
        this.data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  }
}
