// The same request, drafted and plain: one after the other on the wire, each with a clock of its own, then replayed side
// by side. Neither takes over what the other read or wrote, and both are drawn alike while their clocks run.

import { block } from "./inline.js";
import { post } from "./stream.js";
import { steps } from "./tokens.js";
import { spell } from "./turns.js";

const NAMES = ["Speculative", "Plain"];
const RARELY = 100; // milliseconds between drawings while a clock runs: the server may need the processor
const SAME = 0.03; // shares of time that are no difference

/** A race of two requests, and the element that shows it. `run` once, then `replay` as often as is wished. */
export class Race {
  #panes = NAMES.map((name) => new Pane(name));
  #status = block("p", "quiet small");
  #sentence = block("p", "sentence");
  #again = Object.assign(block("button", "replay", "Watch again"), { type: "button", hidden: true });
  #close = Object.assign(block("button", "unrace", "Show the answer"), { type: "button", hidden: true });
  #runs = [];
  #playing = null; // ends the replay that runs

  constructor() {
    this.#status.setAttribute("role", "status");
    const both = block("div", "panes", ...this.#panes.map((one) => one.element));
    this.element = block("div", "race", both, this.#sentence, this.#status, block("div", "tools", this.#again, this.#close));
    this.#again.addEventListener("click", () => this.replay());
  }

  /** Both requests, the one with drafts first. `onStep` gets its steps. Returns the closing sentence. */
  async run(path, body, key, signal, onStep) {
    const bodies = [body, { ...body, speculative: false }];
    for (const [i, asked] of bodies.entries()) {
      this.#status.textContent = `Recording ${NAMES[i].toLowerCase()}, ${i + 1} of 2 …`;
      const salted = { ...asked, adapt: false, cache_salt: `race-${crypto.getRandomValues(new Uint32Array(3)).join("-")}` };
      const made = { steps: [], seconds: null };
      this.#runs.push(made);
      const begin = performance.now();
      const shown = setInterval(() => this.#panes[i].show(made, (performance.now() - begin) / 1000), RARELY);
      try {
        for await (const step of steps(post(path, salted, key, signal))) {
          if (step.ids.length || step.pieces.length) made.steps.push(step);
          if (i === 0) onStep(step);
        }
        made.seconds = made.steps.findLast((one) => one.ids.length)?.at ?? 0;
      } finally {
        clearInterval(shown);
        this.#panes[i].show(made, Infinity);
      }
    }
    this.#status.textContent =
      "One after the other, speculative first, each alone and on its own clock: from the request to its last token, as this browser saw it. " +
      "Neither took over what the other had read or written.";
    return sentence(...this.#runs);
  }

  /** Side by side on one clock, from the records; the sentence comes at its end. */
  async replay(closing = this.#sentence.textContent) {
    this.#playing?.();
    this.#sentence.textContent = "";
    for (const pane of this.#panes) pane.empty();
    const begin = performance.now();
    const last = Math.max(...this.#runs.map((one) => one.seconds));
    await new Promise((done) => {
      const stop = everyFrame(() => {
        const clock = (performance.now() - begin) / 1000;
        this.#panes.forEach((pane, i) => pane.show(this.#runs[i], clock));
        if (clock > last) this.#playing();
      });
      this.#playing = () => {
        stop();
        done();
      };
    });
    this.#playing = null;
    this.#panes.forEach((pane, i) => pane.show(this.#runs[i], Infinity));
    this.#sentence.textContent = closing;
    this.#again.hidden = this.#close.hidden = false;
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** The replay goes to its end at once. */
  skip() {
    this.#playing?.();
  }
}

/** What a race shows: how many times as quick, and whether both wrote the same. */
export function sentence(drafted, plain) {
  const [mine, other] = [drafted, plain].map((one) => one.steps.flatMap((step) => step.ids));
  const times = plain.seconds / drafted.seconds;
  const quick =
    Math.abs(times - 1) <= SAME
      ? "Speculative was as quick as plain"
      : times > 1
        ? `Speculative was ${times.toFixed(2)}× as quick`
        : `Speculative took ${(1 / times).toFixed(2)}× as long`;
  const parts = mine.findIndex((id, i) => id !== other[i]);
  if (parts < 0 && mine.length === other.length) return `${quick}, the same text.`;
  return `${quick}; the texts differ from token ${(parts < 0 ? mine.length : parts) + 1} on.`;
}

/** One side of a race. */
class Pane {
  #at = 0; // steps that are shown
  #num = 0;
  #passes = 0;
  #words = Object.assign(block("div", "words raw coloured"), { tabIndex: 0 });
  #figures = {};

  constructor(name) {
    const figures = block("dl", "figures");
    for (const one of ["Seconds", "Tokens/s", "Passes", "Tokens"]) {
      this.#figures[one] = block("dd", "", "–");
      figures.append(block("div", "", block("dt", "", one), this.#figures[one]));
    }
    this.element = block("section", "pane", block("h4", "", name), figures, this.#words);
    this.element.setAttribute("aria-label", name);
    this.#words.setAttribute("role", "group");
    this.#words.setAttribute("aria-label", `${name}: text`);
  }

  empty() {
    this.#at = this.#num = this.#passes = 0;
    this.#words.replaceChildren();
  }

  /** What the record holds up to this second of its clock. */
  show(record, clock) {
    const begin = this.#at;
    while (this.#at < record.steps.length && record.steps[this.#at].at <= clock) {
      const step = record.steps[this.#at];
      for (const one of step.pieces) this.#words.append(spell(one));
      this.#num += step.ids.length;
      this.#passes = step.num;
      this.#at += 1;
    }
    const seconds = Math.min(clock, record.seconds ?? clock);
    if (!Number.isFinite(seconds)) return;
    this.#figures.Seconds.textContent = seconds.toFixed(2);
    this.#figures["Tokens/s"].textContent = seconds > 0 ? (this.#num / seconds).toFixed(1) : "–";
    this.#figures.Passes.textContent = this.#passes;
    this.#figures.Tokens.textContent = this.#num;
    this.element.classList.toggle("ended", record.seconds !== null && clock >= record.seconds);
    if (this.#at > begin) this.#words.scrollTop = this.#words.scrollHeight;
  }
}

/** Calls it for each frame of the screen; returns what ends that. */
function everyFrame(act) {
  let goesOn = true;
  requestAnimationFrame(function next() {
    if (!goesOn) return;
    act();
    requestAnimationFrame(next);
  });
  return () => (goesOn = false);
}
