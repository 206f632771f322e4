// Figures of one answer. While it is written they come from the tokens' sources; at its end from the engine's counters.

/** Counts passes as they come. */
export class Counts {
  numTokens = 0;
  numPasses = 0;
  #kept = []; // position in the draft, from 0 -> times accepted
  #examined = [];

  /** `sources`: of the tokens that one pass wrote, in order. */
  add(sources) {
    if (!sources.length) return;
    this.numPasses += 1;
    this.numTokens += sources.length;
    const accepted = sources.filter((one) => one === "accepted").length;
    const examined = accepted + (sources.includes("recovered") ? 1 : 0);
    for (let i = 0; i < examined; i += 1) {
      this.#examined[i] = (this.#examined[i] ?? 0) + 1;
      this.#kept[i] = (this.#kept[i] ?? 0) + (i < accepted ? 1 : 0);
    }
  }

  /** Tokens for each pass that wrote any. */
  get tau() {
    return this.numPasses ? this.numTokens / this.numPasses : null;
  }

  /** P(accepted | examined) by position. */
  get byPosition() {
    return this.#examined.map((times, i) => this.#kept[i] / times);
  }
}

/**
 * How many times faster than plain decoding: what a pass without a draft costs, times the tokens, over the seconds that
 * they took. The cost is measured where such a pass happened (`isMeasured`). Otherwise that of the smallest pass stands
 * in for it, which is larger, so the estimate is at most that. It is never more than the tokens for each pass: a pass
 * with a draft does all the work of one without, so more than that is noise of the clock.
 *
 * `byRows`: metrics.speculative_decoding.passes_by_rows. Null where nothing was measured.
 */
export function speedup(byRows) {
  const listed = (byRows ?? []).filter((one) => one.num_passes > 0);
  if (!listed.length) return null;
  const total = (name) => listed.reduce((sum, one) => sum + one[name], 0);
  const taken = total("draft_seconds") + total("target_seconds") + total("rest_seconds");
  const least = listed.reduce((best, one) => (one.rows < best.rows ? one : best));
  const plain = (least.target_seconds + least.rest_seconds) / least.num_passes;
  if (!(taken > 0) || !(plain > 0)) return null;
  const times = Math.min((plain * total("num_tokens")) / taken, total("num_tokens") / total("num_passes"));
  return { times, isMeasured: least.rows <= 1, rows: least.rows };
}
