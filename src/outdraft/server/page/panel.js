// The figures of the last answer, and a bar for each position of the draft; its label holds the same numbers as text.

import { Counts, speedup } from "./figures.js";
import { block, element } from "./inline.js";

const field = (id) => document.getElementById(id);
const FEW = 9; // as many bars have room for their numbers

/** Figures of an answer that grows. */
export class Panel {
  #counts = new Counts();
  #first = null; // when the first token came, and how many came with it

  constructor() {
    this.#show(null);
  }

  /** One step of the stream. */
  add(step) {
    if (step.metrics) end(step.metrics);
    if (!step.ids.length) return;
    this.#counts.add(step.sources);
    this.#first ??= { at: step.at, num: this.#counts.numTokens };
    const seconds = step.at - this.#first.at;
    this.#show(seconds > 0 ? (this.#counts.numTokens - this.#first.num) / seconds : null);
  }

  #show(rate) {
    field("num-tokens").textContent = this.#counts.numTokens || "–";
    field("tau").textContent = this.#counts.tau === null ? "–" : this.#counts.tau.toFixed(2);
    field("rate").textContent = rate === null ? "–" : rate.toFixed(rate < 10 ? 1 : 0);
    field("speedup").textContent = "–";
    field("speedup-note").textContent = "";
    draw(this.#counts.byPosition);
  }
}

/** `metrics`: the engine's counters of the whole answer. */
function end(metrics) {
  draw(metrics.acceptance_by_position);
  field("tau").textContent = metrics.tokens_per_target_pass.toFixed(2);
  const found = speedup(metrics.passes_by_rows);
  if (!found) return;
  field("speedup").textContent = `${found.isMeasured ? "" : "≤ "}${found.times.toFixed(2)}×`;
  field("speedup-note").textContent = found.isMeasured
    ? "Estimated: tokens × the measured cost of a pass without a draft / the time that decoding took. A race measures it."
    : `Estimated, at most: no pass without a draft was measured, so one of ${found.rows} rows stands in for it.`;
}

function draw(rates) {
  bars(field("chart"), rates);
  field("chart-note").textContent = rates.length ? "Share kept of the drafted tokens that were examined there." : "Nothing was drafted.";
}

/** `rates`: shares from 0 to 1, by position, each perhaps with another beside it. */
export function bars(chart, rates, beside = null) {
  const pairs = rates.map((rate, i) => (beside ? [rate, beside[i]] : [rate]));
  chart.replaceChildren(...pairs.map((pair, i) => bar(pair, i, rates.length)));
  chart.setAttribute("aria-label", pairs.map(spoken).join("; ") || "none");
}

function bar(pair, i, count) {
  const heights = pair.map((rate) => {
    const made = element("i");
    made.style.height = `${Math.round(rate * 100)}%`;
    return made;
  });
  const every = Math.ceil(count / FEW);
  const over = pair.map((rate) => element("span", [count <= FEW ? percent(rate) : ""]));
  const under = element("span", [i % every === 0 ? String(i + 1) : ""]);
  return Object.assign(block("div", "bar", ...over, block("div", "rail", ...heights), under), { title: spoken(pair, i) });
}

function spoken(pair, i) {
  return `position ${i + 1}: ${pair.map(percent).join(", ")}`;
}

function percent(rate) {
  return `${Math.round(rate * 100)} %`;
}
