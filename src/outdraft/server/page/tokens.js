// Which token wrote which part of the text that is shown.
//
// What is shown may be shorter than what the tokens say (half a character or a possible stop string is held back; the
// marks around reasoning are taken out), so tokens are laid along the shown text from its beginning.

/** What a token's source means. */
export const SAID = {
  accepted: "drafted, and kept by the model",
  recovered: "the model's own, after a rejection",
  bonus: "the model's own, after a whole draft",
  plain: "the model's own, nothing was drafted",
};

/** Lays tokens along a text that grows. `take` returns new pieces: {text, source, id, pass}. */
export class Tokens {
  #shown = "";
  #at = 0; // characters of #shown that have a token
  #waiting = [];

  /** `text`: what came to be shown; `tokens`: [{text, source, id, pass}], what was written. */
  take(text, tokens) {
    this.#shown += text;
    this.#waiting.push(...tokens);
    const found = [];
    while (this.#waiting.length) {
      const rest = this.#shown.slice(this.#at);
      const next = this.#waiting[0];
      if (rest.startsWith(next.text)) {
        this.#at += next.text.length;
        if (next.text) found.push(next);
      } else if (next.text.startsWith(rest)) {
        break; // the rest of it is held back
      }
      this.#waiting.shift(); // laid, or never shown
    }
    return found;
  }

  /** What is left when nothing more comes: the part of a token before a stop string, or text without a token. */
  finish() {
    const rest = this.#shown.slice(this.#at);
    const next = this.#waiting.find((one) => rest && one.text.startsWith(rest));
    this.#at = this.#shown.length;
    this.#waiting = [];
    if (!rest) return [];
    return [next ? { ...next, text: rest } : { text: rest, source: "", id: null, pass: null }];
  }
}

/**
 * What each pass of one answer has written: {at, num, ids, sources, pieces, said, thought, tree, ended, metrics}. `stream`:
 * of a completion or a chat. `at`: seconds since the request was sent; `pieces`: what is to be shown, by token.
 */
export async function* steps(stream) {
  const begin = performance.now();
  const laid = new Tokens();
  let num = 0;
  const step = (more) => ({
    at: (performance.now() - begin) / 1000,
    ...{ num, ids: [], sources: [], pieces: [], said: "", thought: "", tree: null, ended: null, metrics: null },
    ...more,
  });
  for await (const piece of stream) {
    for (const choice of piece.choices) {
      const tokens = tokensOf(choice, num + 1);
      if (tokens.length) num += 1;
      const said = choice.text ?? choice.delta?.content ?? "";
      const thought = choice.delta?.reasoning_content ?? "";
      const pieces = laid.take(thought + said, tokens);
      const [ids, sources] = [tokens.map((one) => one.id), tokens.map((one) => one.source)];
      yield step({ num, ids, sources, pieces, said, thought, tree: choice.draft_tree ?? null, ended: choice.finish_reason });
    }
    if (piece.metrics) yield step({ num, metrics: piece.metrics.speculative_decoding });
  }
  yield step({ num, pieces: laid.finish() });
}

/** Tokens of a piece of a stream, of which every one is a pass. */
function tokensOf(choice, pass) {
  const ids = choice.token_ids ?? [];
  return ids.map((id, i) => ({
    id,
    pass,
    text: choice.token_texts?.[i] ?? "",
    source: choice.token_sources?.[i] ?? "",
  }));
}
