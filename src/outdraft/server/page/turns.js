// The conversation as it is shown. Every text enters the page as text, never as markup.

import { Tokens } from "./tokens.js";

const list = () => document.getElementById("turns");
const SAID = {
  accepted: "drafted, and kept by the model",
  recovered: "the model's own, after a rejection",
  bonus: "the model's own, after a whole draft",
  plain: "the model's own, nothing was drafted",
};

/** One more turn; returns where its words stand. */
export function addTurn(who, text) {
  document.getElementById("nothing").hidden = true;
  const turn = document.createElement("article");
  turn.className = "turn";
  const title = document.createElement("h3");
  title.textContent = who;
  const words = document.createElement("div");
  words.className = "words";
  words.textContent = text;
  turn.append(title, words);
  list().append(turn);
  list().scrollTop = list().scrollHeight;
  return words;
}

/** All turns are forgotten. */
export function clearTurns() {
  for (const turn of list().querySelectorAll(".turn")) turn.remove();
  document.getElementById("nothing").hidden = false;
}

const answers = new WeakMap(); // article -> Answer

/** Whose pass wrote this element: {trees, pass}; nothing where that is not known. */
export function passOf(element) {
  const answer = answers.get(element.closest(".turn"));
  const pass = Number(element.dataset.pass);
  return answer?.trees[pass - 1] ? { trees: answer.trees, pass } : null;
}

/** An answer that is being written, token by token. `text`: what of it belongs to the conversation. */
export class Answer {
  text = "";
  trees = []; // draft_tree of each pass, if they were asked for
  #tokens = new Tokens();
  #words;

  constructor(who) {
    this.#words = addTurn(who, "");
    this.#words.parentElement.setAttribute("aria-busy", "true");
    answers.set(this.#words.parentElement, this);
  }

  /** `shown`: characters to show; `said`: those of them that are no reasoning. */
  add(shown, tokens, said) {
    this.text += said;
    this.#show(this.#tokens.take(shown, tokens));
  }

  /** Nothing more comes. */
  end() {
    this.#show(this.#tokens.finish());
    this.#words.parentElement.removeAttribute("aria-busy");
  }

  /** It is not shown any more. */
  remove() {
    this.#words.parentElement.remove();
  }

  #show(pieces) {
    if (!pieces.length) return;
    const place = list();
    const follows = place.scrollHeight - place.scrollTop - place.clientHeight < 40;
    this.#words.append(...pieces.map(spell));
    if (follows) place.scrollTop = place.scrollHeight;
  }
}

function spell(token) {
  const made = document.createElement("span");
  made.textContent = token.text;
  made.className = token.source in SAID ? `token ${token.source}` : "";
  if (token.pass) made.dataset.pass = token.pass;
  if (token.source in SAID) made.title = `${token.source}: ${SAID[token.source]} · token ${token.id} · pass ${token.pass}`;
  return made;
}
