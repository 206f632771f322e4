// A reply of the server, piece by piece: server-sent events over fetch, and errors as one sentence.

/** An answer that is an error. `status`: 0 where the server was not reached. */
export class ReplyError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** JSON of a GET. Throws `ReplyError`. */
export async function get(path, key) {
  return (await ask(path, { headers: headers(key) })).json();
}

/** The pieces of a streamed reply to `body`, as objects. Throws `ReplyError`; `signal` ends it at once. */
export async function* post(path, body, key, signal) {
  const reply = await ask(path, {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  for await (const piece of pieces(chunks(reply.body))) {
    if (piece.error) throw new ReplyError(piece.error.message, 500);
    yield piece;
  }
}

/** Objects of a text in any cuts: lines that begin with "data: ", up to [DONE]; the rest are comments. */
export async function* pieces(texts) {
  let kept = "";
  for await (const text of texts) {
    const lines = (kept + text).split(/\r\n|\n|\r/);
    kept = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
  throw new ReplyError("The connection ended before the answer did.", 0);
}

async function* chunks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ReplyError("The server cannot be reached. Is it still running?", 0);
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => null);
  throw new ReplyError(told?.error?.message ?? `The server answered with status ${reply.status}.`, reply.status);
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
