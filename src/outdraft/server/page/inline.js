// Inline Markdown of one block as DOM nodes. Every text enters as text, never as markup; links have safe schemes only.
//
// The work grows with the text, not with its square, whatever the text is: a model may write anything.

const DEEPEST = 16; // marks within marks; what lies deeper stays text
const PLAIN = /(?:[^\\`*_~[\]!<h\n]|h(?!ttps?:)|!(?!\[))+/y;
const RUN = /`+|\*+|_+|~+/y;
const TARGET = /\([ \n]{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()<>]|\([^\s()<>]{0,500}\)){0,2000}))(?:[ \n]{1,9}(?:"[^"]{0,500}"|'[^']{0,500}'))?[ \n]{0,9}\)/y;
const AUTO = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
const BARE = /https?:\/\/[^\s<>[\]"'`*|]{1,2000}/y;
const BREAK = /<br ?\/?>/iy;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** Nodes of this text. */
export function inline(text) {
  return resolve(itemsOf(text)).map((one) => one.node);
}

/** An absolute address with a safe scheme; null for any other. */
export function safe(address) {
  try {
    const found = new URL(address);
    return SCHEMES.has(found.protocol) ? found.href : null;
  } catch {
    return null;
  }
}

/** Items: {node, depth}, or a run of marks that may open or close: {mark, count, opens, closes}. */
function itemsOf(text) {
  const items = [];
  const brackets = []; // where a link may have begun
  let at = 0;
  const match = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const push = (node, depth = 0) => items.push({ node, depth });
  const say = (words) => push(document.createTextNode(words));
  while (at < text.length) {
    const char = text[at];
    const plain = match(PLAIN);
    const run = plain ? null : match(RUN);
    let found;
    if (plain) {
      say(plain[0]);
      at += plain[0].length;
    } else if (char === "\\") {
      const next = text[at + 1] ?? "";
      if (next === "\n") push(element("br"));
      else say(PUNCTUATION.test(next) ? next : char + next);
      at += 2;
    } else if (char === "`") {
      const end = closing(text, at + run[0].length, run[0].length);
      const inner = text.slice(at + run[0].length, end).replaceAll("\n", " ");
      if (end < 0) say(run[0]);
      else push(element("code", [/^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner]));
      at = (end < 0 ? at : end) + run[0].length;
    } else if (run) {
      items.push({ mark: char, count: run[0].length, ...flanks(char, text, at, at + run[0].length) });
      at += run[0].length;
    } else if (char === "[" || (char === "!" && text[at + 1] === "[")) {
      brackets.push(items.length);
      say(char === "[" ? "[" : "![");
      at += char === "[" ? 1 : 2;
    } else if (char === "]") {
      const start = brackets.pop();
      at += 1;
      const target = start === undefined ? null : match(TARGET);
      const href = target && safe(target[1] ?? target[2]);
      if (href) {
        const inner = resolve(items.splice(start).slice(1));
        push(link(href, inner.map((one) => one.node)), 1 + deepest(inner));
        brackets.length = 0; // no link holds another
        at += target[0].length;
      } else say("]");
    } else if (char === "<" && (found = match(AUTO) ?? match(BREAK))) {
      const href = found[1] && safe(found[1]);
      push(found[1] ? (href ? link(href, [found[1]]) : document.createTextNode(found[0])) : element("br"));
      at += found[0].length;
    } else if (char === "h" && !/\w/.test(text[at - 1] ?? "") && (found = match(BARE))) {
      const shown = trimmed(found[0]);
      const href = safe(shown);
      push(href ? link(href, [shown]) : document.createTextNode(shown));
      at += shown.length;
    } else if (char === "\n") {
      push(element("br"));
      at += 1;
    } else {
      say(char);
      at += 1;
    }
  }
  return items;
}

/** Where the run of exactly `length` backticks begins that closes; -1 where none does, which each length is but once. */
function closing(text, from, length) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const begin = at;
    while (text[at] === "`") at += 1;
    if (at - begin === length) return begin;
  }
  return -1;
}

/** Whether a run of marks may open and close, by what stands around it. */
function flanks(mark, text, from, to) {
  const [before, after] = [text[from - 1] ?? " ", text[to] ?? " "];
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  if (mark !== "_") return { opens: left, closes: right };
  return { opens: left && (!right || signBefore), closes: right && (!left || signAfter) };
}

/** The items with marks made to elements, or to text where they have no partner. */
function resolve(items) {
  const out = [];
  const openers = { "*": [], _: [], "~": [] }; // where in `out`
  for (const item of items) {
    if (!item.mark) {
      out.push(item);
      continue;
    }
    const closer = { ...item, whole: item.count };
    const stack = openers[closer.mark];
    while (closer.closes && closer.count && stack.length) {
      const at = stack.at(-1);
      const opener = out[at];
      const num = pairs(opener, closer);
      if (!num) break;
      const inner = out.slice(at + 1).map(asText);
      const depth = 1 + deepest(inner);
      if (depth > DEEPEST) {
        stack.length = 0;
        break;
      }
      out.length = at + 1;
      for (const one of Object.values(openers)) while (one.length && one.at(-1) > at) one.pop();
      opener.count -= num;
      closer.count -= num;
      if (!opener.count) {
        out.pop();
        stack.pop();
      }
      const name = closer.mark === "~" ? "del" : num === 2 ? "strong" : "em";
      out.push({ node: element(name, inner.map((one) => one.node)), depth });
    }
    if (!closer.count) continue;
    if (closer.opens) stack.push(out.length);
    out.push(closer);
  }
  return out.map(asText);
}

/** How many marks of two runs make a pair: 2, 1, or 0 for none. */
function pairs(opener, closer) {
  if (closer.mark === "~") return opener.count === 2 && closer.count === 2 ? 2 : 0;
  const isBoth = (opener.opens && opener.closes) || (closer.opens && closer.closes);
  const sum = opener.whole + closer.whole;
  if (isBoth && sum % 3 === 0 && opener.whole % 3) return 0;
  return opener.count > 1 && closer.count > 1 ? 2 : 1;
}

function asText(item) {
  return item.mark ? { node: document.createTextNode(item.mark.repeat(item.count)), depth: 0 } : item;
}

function deepest(items) {
  return items.reduce((most, one) => Math.max(most, one.depth), 0);
}

/** An address without the signs that end the sentence around it. */
function trimmed(address) {
  const shorter = address.replace(/[.,:;!?_~]{1,20}$/, "");
  return shorter.endsWith(")") && !shorter.includes("(") ? trimmed(shorter.slice(0, -1)) : shorter;
}

function link(href, inner) {
  const made = element("a", inner);
  for (const one of made.querySelectorAll("a")) one.replaceWith(...one.childNodes);
  Object.assign(made, { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" });
  return made;
}

/** An element and what it holds: nodes, or texts. */
export function element(name, inner = []) {
  const made = document.createElement(name);
  for (const one of inner) made.append(one);
  return made;
}

/** The same, of a class. */
export function block(name, className, ...inner) {
  return Object.assign(element(name, inner), { className });
}
