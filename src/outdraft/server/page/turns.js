// The conversation as it is shown. Every text enters the page as text, never as markup.

import { block, element } from "./inline.js";
import { Markdown } from "./markdown.js";
import { SAID } from "./tokens.js";

const list = () => document.getElementById("turns");
const shown = new WeakMap(); // section -> Turn

/** The turn that this element is part of. */
export function turnOf(inner) {
  return shown.get(inner.closest(".exchange"));
}

/** Whose pass wrote this element: {trees, pass}; nothing where that is not known. */
export function passOf(inner) {
  const turn = turnOf(inner);
  const pass = Number(inner.dataset.pass);
  return turn?.trees[pass - 1] ? { trees: turn.trees, pass } : null;
}

/** All turns are shown anew. */
export function redraw() {
  for (const one of list().querySelectorAll(".exchange")) shown.get(one).draw();
}

/** An exchange as it is shown; its answer may grow, and is then drawn once for each frame of the screen at most. */
export class Turn {
  trees = []; // draft_tree of each pass, if they were asked for
  #answer;
  #thought;
  #words;
  #note;
  #done = { pieces: 0, text: 0, thought: 0 }; // how much of each is drawn
  #markdown = null; // null where the text is shown as it is
  #frame = 0;
  #rest = 0; // when the next drawing may be: drawing takes a fifth of the time at most

  constructor(exchange) {
    this.exchange = exchange;
    const isChat = exchange.mode === "chat";
    this.#thought = block("details", "thought", element("summary", ["Thought"]), block("div", "words"));
    this.#words = block("div", "words");
    this.#note = block("p", "note quiet small");
    const asked = block("div", "words", exchange.question);
    const edit = tool("edit last", isChat ? "Edit" : "Take back", "Edit the question: it returns to the field, and the answer goes");
    const question = block("article", "turn question", title(isChat ? "You" : "Prompt"), asked, block("div", "tools", edit));
    const tools = [tool("copy", "Copy", "Copy the answer"), tool("again last", "Regenerate", "Regenerate the answer")];
    const heading = title(isChat ? "Answer" : "Continuation");
    this.#answer = block("article", "turn answer", heading, this.#thought, this.#words, this.#note, block("div", "tools", ...tools));
    this.section = block("section", "exchange", question, this.#answer);
    shown.set(this.section, this);
    document.getElementById("nothing").hidden = true;
    list().append(this.section);
    this.draw();
    list().scrollTop = list().scrollHeight;
  }

  /** More of the answer has come. */
  grow() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (performance.now() < this.#rest) this.grow();
      else this.#show();
    });
  }

  /** Nothing more comes, or all is to be drawn again. */
  draw() {
    const isColoured = document.getElementById("colours").checked;
    const isRaw = isColoured || this.exchange.mode !== "chat" || !this.exchange.text;
    this.#words.className = `words ${isRaw ? "raw" : "drawn"} ${isColoured ? "coloured" : ""}`;
    this.#words.replaceChildren();
    this.#thought.lastChild.replaceChildren();
    this.#done = { pieces: 0, text: 0, thought: 0 };
    this.#markdown = isRaw ? null : new Markdown(this.#words);
    this.#thought.hidden = true;
    this.#note.textContent = remark(this.exchange);
    this.#answer.toggleAttribute("aria-busy", !this.exchange.ended);
    if (!this.exchange.ended) this.#answer.setAttribute("aria-busy", "true");
    this.#show();
  }

  /** A race stands in the place of the answer, until it is closed. */
  hold(race) {
    this.#answer.classList.toggle("racing", race !== null);
    this.#answer.querySelector(".race")?.remove();
    if (!race) return;
    this.#words.before(race);
    race.scrollIntoView({ block: "nearest" });
  }

  remove() {
    this.section.remove();
    document.getElementById("nothing").hidden = list().querySelector(".exchange") !== null;
  }

  #show() {
    const begin = performance.now();
    const place = list();
    const follows = place.scrollHeight - place.scrollTop - place.clientHeight < 60;
    const { pieces, text, thought } = this.exchange;
    const isDrawn = this.exchange.mode === "chat" && !document.getElementById("colours").checked;
    if (isDrawn && !this.#markdown && text) return this.draw();
    const done = this.#done;
    if (this.#markdown && text.length > done.text) this.#markdown.add(text.slice(done.text));
    if (isDrawn && thought.length > done.thought) this.#thought.lastChild.append(thought.slice(done.thought));
    if (!isDrawn && pieces.length) for (const one of pieces.slice(done.pieces)) this.#words.append(spell(one));
    else if (!isDrawn) this.#words.append(text.slice(done.text)); // kept without its tokens
    this.#thought.hidden = !isDrawn || !thought;
    this.#done = { pieces: pieces.length, text: text.length, thought: thought.length };
    if (follows) place.scrollTop = place.scrollHeight;
    const end = performance.now();
    this.#rest = end + 4 * (end - begin);
  }
}

/** A token in the colour of its source. */
export function spell(token) {
  const made = element("span", [token.text]);
  if (token.pass) made.dataset.pass = token.pass;
  if (!(token.source in SAID)) return made;
  made.className = `token ${token.source}`;
  made.title = `${token.source}: ${SAID[token.source]} · token ${token.id} · pass ${token.pass}`;
  return made;
}

/** What is to be known about the end of an answer. */
function remark({ ended, limit, race, num, text, thought }) {
  const said = race ? [race] : [];
  if (ended === "length" && num >= limit) said.push(`Cut at ${num} tokens, which is Max tokens.`);
  else if (ended === "length") said.push(`Cut at ${num} tokens: a limit of the server, or of its context, was reached.`);
  if (ended === "stopped") said.push("Stopped.");
  if (ended && !text && !thought) said.push("The model wrote nothing.");
  return said.join(" ");
}

function title(text) {
  return block("h3", "hidden", text);
}

function tool(className, text, label) {
  return Object.assign(block("button", className, text), { type: "button", title: label });
}
