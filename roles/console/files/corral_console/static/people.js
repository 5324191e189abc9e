// The user's sessions and tokens; for those who may, all users and what was decided.

import { html, useState } from "/static/lib/htm/standalone.module.js";
import { ask } from "/static/server.js";
import { may } from "/static/rights.js";
import { Table, Waiting, useAnswer } from "/static/parts.js";
import { tell } from "/static/ui.js";
import { ago, browserName, readable } from "/static/words.js";

const ACTION = html`<span class="hidden">Action</span>`;

async function attempt(path, given, done) {
  try {
    done(await ask(path, given));
  } catch (error) {
    tell(error.message, { bad: true });
  }
}

const day = (seconds) => new Date(seconds * 1000).toLocaleDateString();
const used = (token) => (token.used ? `used ${ago(token.used)}` : "never used");

// Ends one (`id`) or all of a user (`user`), of "sessions" or "tokens".
const ending = (kind, done) => (given) => attempt(`/api/${kind}/end`, given, done);

export function Account({ me, lost }) {
  const [again, setAgain] = useState(0);
  const answer = useAnswer("/api/sessions", again);
  const end = ending("sessions", () => setAgain(again + 1));
  const leave = ending("sessions", lost);
  const others = answer.value?.some((each) => !each.current);
  return html`<h1>Your account</h1><p>Browsers in which you are logged in. A session that you end loses its pages and consoles at once.</p>
    ${answer.value ? html`<${Table} title="Your sessions" empty="None." columns=${["Browser", "Address", "Since", "Last use", ACTION]} rows=${answer.value.map((each) => [
        html`<span class="cut agent" title=${each.agent}>${browserName(each.agent || "")}</span>`, each.address, new Date(each.created * 1000).toLocaleString(), ago(each.seen),
        html`<button onClick=${() => (each.current ? leave : end)({ id: each.id })}>${each.current ? "Log out" : "End"}</button>`])} />` : html`<${Waiting} answer=${answer} />`}
    ${others && html`<p><button onClick=${() => end({ user: me.user })}>End all other sessions</button></p>`}
    <${Tokens} me=${me} />`;
}

function Tokens({ me }) {
  const [again, setAgain] = useState(0);
  const [made, setMade] = useState("");
  const answer = useAnswer("/api/tokens", again);
  const make = (event) => {
    event.preventDefault();
    const { name, days } = Object.fromEntries(new FormData(event.target));
    attempt("/api/tokens", { name, days: Number(days) }, (found) => {
      setMade(found.token);
      setAgain(again + 1);
    });
  };
  if (!answer.value) return null; // without rights to have tokens
  const tokens = answer.value.tokens || answer.value;
  const end = ending("tokens", () => setAgain(again + 1));
  return html`<${Table} title="Your tokens" empty="No tokens. Programs use the API with one; it may do what you may." columns=${["Name", "Since", "Ends", "Last use", ACTION]} rows=${tokens.map((each) => [
      readable(each.name), day(each.created), day(each.expires), used(each), html`<button onClick=${() => end({ id: each.id })}>End</button>`])} />
    ${tokens.length > 1 && html`<p><button onClick=${() => end({ user: me.user })}>End all tokens</button></p>`}
    <form class="panel row" onSubmit=${make}><label>Name of a new token <input name="name" required maxlength="64" autocomplete="off" /></label>
      <label>Days <input name="days" type="number" required min="1" max=${me.token_days} value=${me.token_days} /></label><button>Make token</button></form>
    ${made && html`<p class="panel" role="status">The new token, which is not shown again:<br /><code class="secret">${made}</code></p>`}`;
}

function EndAll({ user, kind, held, end }) {
  return held.length > 1 && html`<button aria-label=${`End all ${kind} of ${user.name}`} onClick=${() => end({ user: user.name })}>End all</button>`;
}

function Sessions({ user, done }) {
  const end = ending("sessions", done);
  return html`<ul class="plain">${user.sessions.map((each) => html`<li key=${each.id}>${each.address}, ${ago(each.seen)} <button aria-label=${`End the session of ${user.name} at ${each.address}`} onClick=${() => end({ id: each.id })}>End</button></li>`)}</ul>
    <${EndAll} user=${user} kind="sessions" held=${user.sessions} end=${end} />`;
}

function TokensOf({ user, done }) {
  const end = ending("tokens", done);
  return html`${user.tokens.map((each) => html`<div key=${each.id}>${readable(each.name)}, ${used(each)}, ends ${day(each.expires)} <button aria-label=${`End the token of ${user.name}: ${readable(each.name)}`} onClick=${() => end({ id: each.id })}>End</button></div>`)}
    <${EndAll} user=${user} kind="tokens" held=${user.tokens} end=${end} />`;
}

export function Users() {
  const [again, setAgain] = useState(0);
  const answer = useAnswer("/api/users", again);
  const users = answer.value?.users || answer.value;
  const done = () => setAgain(again + 1);
  return html`<h1>Users</h1>${users ? html`<${Table} title="All users" empty="None." columns=${["Name", "Groups", "Sessions", "Tokens"]} rows=${users.map((user) => [
      user.name, (user.groups || []).join(", "),
      html`<${Sessions} user=${user} done=${done} />`, html`<${TokensOf} user=${user} done=${done} />`])} />` : html`<${Waiting} answer=${answer} />`}`;
}

const KNOWN = ["id", "time", "user", "address", "audit", "action", "allowed", "guests", "arguments", "check", "reason", "job", "guest"];
const written = (value) => (typeof value === "string" ? value : Array.isArray(value) && value.every((each) => typeof each === "string") ? value.join(", ") : JSON.stringify(value));

// All that a line of the audit tells beside its columns, for people.
function told(line) {
  const guests = (line.guests || []).map((guest) => guest.split(" ")[0]).join(", ");
  const others = Object.entries(line).filter(([name, value]) => !KNOWN.includes(name) && value !== "" && value !== null);
  const said = [...Object.entries(line.arguments || {}).filter(([name]) => name !== "guest"), ...others].map(([name, value]) => `${name} ${written(value)}`);
  return readable([line.check && "check", guests, ...said, line.reason].filter(Boolean).join("; "));
}

export function Audit() {
  const [pages, setPages] = useState({ lines: null, more: false });
  const [text, setText] = useState("");
  const answer = useAnswer("/api/audit?limit=200", 0);
  const first = answer.value?.lines || answer.value;
  const lines = pages.lines || first;
  const older = () => attempt(`/api/audit?limit=200&before=${encodeURIComponent(lines.at(-1).id ?? lines.at(-1).time)}`, null, (found) => setPages({ lines: [...lines, ...(found.lines || found)] }));
  const rows = (lines || []).map((line) => [
    new Date((line.time || 0) * 1000).toLocaleString(), line.user, line.address, line.action || line.audit,
    line.allowed === null ? html`<span class="state lost">Unknown</span>` : line.allowed ? html`<span class="state job-succeeded">Allowed</span>` : html`<span class="state crashed">Refused</span>`,
    html`<span class="wrap">${told(line)}${line.job && html` <a href=${`#/jobs/${line.job}`}>Job</a>`}</span>`, told(line)]);
  const shown = rows.filter((row) => !text || row.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(text.toLowerCase())));
  return html`<h1>Audit</h1><div class="tools"><label class="grow"><span class="hidden">Search</span><input type="search" placeholder="Search user, action, address" value=${text} onInput=${(event) => setText(event.target.value)} /></label></div>
    ${lines ? html`<${Table} title="Decisions" empty="None." columns=${["When", "User", "Address", "Action", "Decision", "More"]} rows=${shown.map((row) => row.slice(0, 6))} />` : html`<${Waiting} answer=${answer} />`}
    ${lines?.length >= 200 && html`<p><button onClick=${older}>Show older</button></p>`}`;
}

export const places = () => [["audit", "Audit"], ["users", "Users"]].filter(([right]) => may(right));
