// Texts for other programs.

/** Puts the text on the clipboard, and says so on the button. */
export async function copy(button, text) {
  const said = (await written(text)) ? "Copied" : "Not copied";
  const before = button.dataset.words ?? button.textContent;
  button.dataset.words = before;
  button.textContent = said;
  setTimeout(() => (button.textContent = before), 1500);
}

async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return selected(text); // a page without HTTPS, from another machine, has no clipboard of its own
  }
}

function selected(text) {
  const held = document.createElement("textarea");
  const focused = document.activeElement;
  held.value = text;
  document.body.append(held);
  held.select();
  const isDone = document.execCommand("copy");
  held.remove();
  focused?.focus();
  return isDone;
}
