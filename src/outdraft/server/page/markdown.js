// Markdown of an answer that grows: blocks that can change no more are drawn once, the last one again with each piece.

import { element, inline } from "./inline.js";

const DEEPEST = 8; // lists and quotes within each other; what lies deeper is a paragraph
const FENCE = /^( *)(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Draws into `place`. The result is the same whatever the pieces were. */
export class Markdown {
  #place;
  #text = "";
  #done = 0; // characters whose blocks can change no more
  #open = []; // {block, node} of the others

  constructor(place) {
    this.#place = place;
  }

  add(text) {
    this.#text += text;
    const lines = this.#text.slice(this.#done).split("\n");
    const found = blocksOf(lines, 0);
    const num = found.findLastIndex((one, i) => i > 0 && one.at + (one.kind === "table" ? 2 : 1) < lines.length);
    if (grown(this.#open, found)) return;
    for (const one of this.#open) one.node.remove();
    this.#open = found.map((block) => ({ block, node: nodeOf(block, 0) }));
    for (const one of this.#open) this.#place.append(one.node);
    if (num < 1) return;
    this.#open.splice(0, num);
    this.#done += lines.slice(0, found[num].at).reduce((sum, line) => sum + line.length + 1, 0);
  }
}

/** Whether nothing but the code of the one open block is new; it is then written in place. */
function grown(open, found) {
  const [before, now] = [open[0]?.block, found[0]];
  if (open.length !== 1 || found.length !== 1 || now.kind !== "code" || before.kind !== "code") return false;
  if (now.language !== before.language) return false;
  open[0].block = now;
  open[0].node.querySelector("code").textContent = now.text;
  return true;
}

/** Blocks of these lines: {kind, at, ...}, where `at` is the line that one begins with. */
function blocksOf(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = (kindAt(lines, at, depth) ?? paragraph)(lines, at, depth);
    found.push({ ...block, at });
    at = next;
  }
  return found;
}

/** What reads the block that begins here; null where it is a paragraph, or goes on with one. */
function kindAt(lines, at, depth, isInParagraph = false) {
  const line = lines[at];
  if (FENCE.test(line)) return fence;
  if (HEADING.test(line)) return heading;
  if (RULE.test(line)) return (_lines, i) => [{ kind: "rule" }, i + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quote;
  const item = depth < DEEPEST ? itemOf(line) : null;
  if (item && (!isInParagraph || (item.text.trim() && (item.number ?? 1) === 1))) return list;
  if (isTable(lines, at)) return table;
  return isInParagraph || !line.startsWith("    ") ? null : indented;
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !kindAt(lines, end, depth, true)) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  return [{ kind: "paragraph", text }, end];
}

function fence(lines, at) {
  const [, indent, marks, language] = FENCE.exec(lines[at]);
  const isEnd = (line) => line.trim().length >= marks.length && line.trim() === marks[0].repeat(line.trim().length);
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const text = lines.slice(at + 1, end).map((line) => unindented(line, indent.length)).join("\n");
  return [{ kind: "code", language: language.trim(), text }, end + 1];
}

function indented(lines, at) {
  let end = at + 1;
  while (end < lines.length && (!lines[end].trim() || lines[end].startsWith("    "))) end += 1;
  const text = lines.slice(at, end).map((line) => unindented(line, 4)).join("\n").trimEnd();
  return [{ kind: "code", language: "", text }, end];
}

function heading(lines, at) {
  const [, marks, text] = HEADING.exec(lines[at]);
  return [{ kind: "heading", level: marks.length, text: text.trim().replace(/(?:^| )#+$/, "") }, at + 1];
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return [{ kind: "quote", lines: lines.slice(at, end).map((line) => line.replace(QUOTE, "")) }, end];
}

function list(lines, at, depth) {
  const first = itemOf(lines[at]);
  const items = [];
  let end = at;
  while (end < lines.length && !RULE.test(lines[end])) {
    const item = itemOf(lines[end]);
    if (item?.family !== first.family) break;
    items.push([item.text]);
    end = rest(lines, end + 1, item.width, depth, items.at(-1));
  }
  return [{ kind: "list", start: first.number, items }, end];
}

/** The item that begins with this line. `family`: - * + . or ), `width`: of what stands before its text. */
function itemOf(line) {
  const found = ITEM.exec(line);
  if (!found) return null;
  const [, indent, mark, spaces] = found;
  const width = indent.length + mark.length + (spaces.length > 4 ? 1 : Math.max(1, spaces.length));
  return { family: mark.at(-1), number: mark.length > 1 ? parseInt(mark, 10) : null, width, text: line.slice(width) };
}

/** Reads what else belongs to an item into `inner`; where that ends. Two spaces are enough to belong to it. */
function rest(lines, at, width, depth, inner) {
  let end = at;
  for (let i = at; i < lines.length; i += 1) {
    const line = lines[i];
    if (!line.trim()) continue;
    const isInner = line.startsWith(" ".repeat(Math.min(width, 2)));
    const isLazy = i === end && i > 0 && lines[i - 1].trim() && !kindAt(lines, i, depth, true) && !itemOf(line);
    if (!isInner && !isLazy) break;
    for (; end <= i; end += 1) inner.push(unindented(lines[end], width));
  }
  while (end < lines.length && !lines[end].trim()) end += 1; // the next item may follow
  return end;
}

function isTable(lines, at) {
  const next = lines[at + 1];
  if (next === undefined || !lines[at].includes("|") || !next.includes("|") || !DELIMITERS.test(next)) return false;
  return cells(lines[at]).length === cells(next).length;
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const sides = cells(lines[at + 1]).map((one) => (one.endsWith(":") ? (one.startsWith(":") ? "center" : "end") : ""));
  return [{ kind: "table", sides, head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells) }, end];
}

function cells(line) {
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  return text.split(/(?<!\\)\|/).map((one) => one.trim().replaceAll("\\|", "|"));
}

function unindented(line, width) {
  return line.slice(Math.min(width, line.length - line.trimStart().length));
}

function nodeOf(block, depth) {
  const inner = (lines) => blocksOf(lines, depth + 1).map((one) => nodeOf(one, depth + 1));
  if (block.kind === "heading") return element(`h${Math.min(block.level + 2, 6)}`, inline(block.text));
  if (block.kind === "rule") return element("hr");
  if (block.kind === "code") return codeOf(block);
  if (block.kind === "quote") return element("blockquote", inner(block.lines));
  if (block.kind === "table") return tableOf(block);
  if (block.kind === "paragraph") return element("p", inline(block.text));
  const made = element(block.start === null ? "ul" : "ol", block.items.map((lines) => element("li", inner(lines))));
  if (block.start !== null) made.start = block.start;
  return made;
}

function codeOf({ language, text }) {
  const copy = Object.assign(element("button", ["Copy"]), { type: "button", className: "copy", ariaLabel: "Copy the code" });
  const label = language ? `Code, ${language}` : "Code";
  const code = Object.assign(element("pre", [element("code", [text])]), { tabIndex: 0, role: "group", ariaLabel: label });
  return Object.assign(element("figure", [element("figcaption", [element("span", [language]), copy]), code]), { className: "code" });
}

function tableOf({ sides, head, rows }) {
  const cell = (name, text, i) => Object.assign(element(name, inline(text)), { className: sides[i] });
  const row = (name, texts) => element("tr", texts.slice(0, head.length).map((text, i) => cell(name, text, i)));
  const body = element("tbody", rows.map((texts) => row("td", texts)));
  const made = element("div", [element("table", [element("thead", [row("th", head)]), body])]);
  return Object.assign(made, { className: "wide", tabIndex: 0, role: "group", ariaLabel: "Table" });
}
