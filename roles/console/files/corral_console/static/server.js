// Requests to the server, and its live state as maps that components read.

export class Refused extends Error {
  constructor(status, text, fields) {
    super(text);
    this.status = status;
    this.fields = fields || {};
  }
}

export async function ask(path, given) {
  const options = given && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(given),
  };
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
const KINDS = ["host", "guest", "figures", "job"];
export const state = { host: new Map(), guest: new Map(), figures: new Map(), job: new Map(), connected: false };
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

export function connect(lost) {
  disconnect();
  source = new EventSource(`/api/events?since=${encodeURIComponent(mark)}`);
  source.addEventListener("state", (event) => {
    mark = event.lastEventId;
    apply(JSON.parse(event.data));
    state.connected = true;
    changed();
  });
  source.addEventListener("open", () => {
    state.connected = true;
    changed();
  });
  source.addEventListener("error", async () => {
    const closed = source && source.readyState === EventSource.CLOSED;
    state.connected = false;
    changed();
    const me = await ask("/api/me").catch(() => null); // null: the server is away
    if (me && !me.user) lost();
    else if (closed) setTimeout(() => source && connect(lost), 3000); // EventSource tries again only after some errors
  });
}

export function disconnect() {
  source?.close();
  source = null;
}

export function forget() {
  disconnect();
  mark = "";
  apply({ reset: true, values: {}, gone: [] });
}
