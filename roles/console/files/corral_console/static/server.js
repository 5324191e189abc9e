// Requests to the server, and its live state as maps that components read.

export class Refused extends Error {
  constructor(status, text, fields) {
    super(text);
    this.status = status;
    this.fields = fields || {};
  }
}

// What a page asks by itself does not count as use of the session: a request does that follows what somebody has done.
const REPORT_MS = 60000;
let doing = true;
let reported = Date.now();

function noticed() {
  doing = true;
  if (Date.now() - reported < REPORT_MS || !source) return;
  ask("/api/me", {}).catch(() => null); // who types into a console asks for nothing else
}

["pointerdown", "keydown", "wheel", "touchstart"].forEach((kind) => addEventListener(kind, noticed, { capture: true, passive: true }));

export async function ask(path, given) {
  const used = doing || Boolean(given);
  if (used) reported = Date.now();
  doing = false;
  const options = given
    ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(given) }
    : { headers: used ? {} : { "x-corral-background": "1" } };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, "the server does not answer");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const fields = answer.errors && Object.entries(answer.errors).map(([name, text]) => `${name}: ${text}`).join("; ");
  throw new Refused(response.status, answer.error || fields || `the server answers ${response.status}`, answer.errors);
}

// By kind and key. Maps change in place; values never do.
const KINDS = ["host", "guest", "figures", "job", "server"];
// `known`: something was told since the login; `ended`: why the page is not live any more.
export const state = { host: new Map(), guest: new Map(), figures: new Map(), job: new Map(), server: new Map(), connected: false, known: false, ended: "" };
const readers = new Set();
let source = null;
let mark = "";
let drawing = false;

export function changed() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    readers.forEach((reader) => reader());
  });
}

export function subscribe(reader) {
  readers.add(reader);
  return () => readers.delete(reader);
}

function apply({ reset, values, gone }) {
  if (reset) KINDS.forEach((kind) => state[kind].clear());
  for (const key of gone) {
    const kind = key.split("/", 1)[0];
    state[kind]?.delete(kind === "job" ? key.slice(kind.length + 1) : key);
  }
  for (const [key, value] of Object.entries(values)) {
    const kind = key.split("/", 1)[0];
    if (kind === "job") keepJob(value);
    else state[kind]?.set(key, value);
  }
}

// The stream tells less of a job than an answer does, and they may overtake each other: the newer one counts.
export function keepJob(job) {
  const known = state.job.get(job.id);
  if (known && known.sequence > job.sequence) return;
  state.job.set(job.id, { ...known, ...job });
  changed();
}

const LASTING = [400, 403, 404, 429, 503]; // what asking again at once does not change

export function connect(lost) {
  disconnect();
  state.ended = "";
  const path = `/api/events?since=${encodeURIComponent(mark)}`;
  source = new EventSource(path);
  source.addEventListener("state", (event) => {
    mark = event.lastEventId;
    apply(JSON.parse(event.data));
    Object.assign(state, { connected: true, known: true });
    changed();
  });
  source.addEventListener("open", () => {
    state.connected = true;
    changed();
  });
  source.addEventListener("ended", (event) => stop(JSON.parse(event.data)));
  source.addEventListener("error", async () => {
    const closed = source && source.readyState === EventSource.CLOSED;
    state.connected = false;
    changed();
    const me = await ask("/api/me").catch(() => null); // null: the server is away
    if (me && !me.user) return lost();
    if (!closed) return; // EventSource tries again only after some errors
    const refusal = me && (await reason(path));
    if (refusal) stop(refusal);
    else setTimeout(() => source && connect(lost), 3000);
  });
}

// An EventSource does not tell why it was refused.
async function reason(path) {
  const asked = new AbortController();
  try {
    const response = await fetch(path, { signal: asked.signal, headers: { "x-corral-background": "1" } });
    return LASTING.includes(response.status) ? (await response.json()).error : "";
  } catch {
    return "";
  } finally {
    asked.abort();
  }
}

function stop(why) {
  disconnect();
  Object.assign(state, { connected: false, ended: why });
  changed();
}

export function disconnect() {
  source?.close();
  source = null;
}

export function forget() {
  disconnect();
  mark = "";
  Object.assign(state, { known: false, ended: "" });
  apply({ reset: true, values: {}, gone: [] });
}
