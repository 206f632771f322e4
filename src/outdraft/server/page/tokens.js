// Which token wrote which part of the text that is shown.
//
// What is shown may be shorter than what the tokens say (half a character or a possible stop string is held back; the
// marks around reasoning are taken out), so tokens are laid along the shown text from its beginning.

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

/** Tokens of a piece of a stream, of which every one is a pass. */
export function tokensOf(choice, pass) {
  const ids = choice.token_ids ?? [];
  return ids.map((id, i) => ({
    id,
    pass,
    text: choice.token_texts?.[i] ?? "",
    source: choice.token_sources?.[i] ?? "",
  }));
}
