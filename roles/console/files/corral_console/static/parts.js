// Parts that many pages are made of.

import { html, useEffect, useState } from "/static/lib/htm/standalone.module.js";
import { ask } from "/static/server.js";
import { STATES } from "/static/words.js";

export function useAnswer(path, again) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    let current = true;
    ask(path).then(
      (value) => current && setAnswer({ value }),
      (error) => current && setAnswer({ problem: error.message }),
    );
    return () => (current = false);
  }, [path, again]);
  return answer;
}

export function Bar({ label, value, detail }) {
  const known = value !== null && value !== undefined;
  return html`<div class="bar" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${known ? value : 0} aria-valuetext=${known ? `${value} %` : "unknown"}>
    <span class="bar-label">${label}</span>
    <span class="bar-track"><span class=${`bar-fill${value >= 90 ? " high" : ""}`} style=${{ width: `${known ? value : 0}%` }}></span></span>
    <span class="bar-value">${known ? `${value} %` : "–"}${detail && html` <span class="quiet">${detail}</span>`}</span>
  </div>`;
}

export function State({ value }) {
  return html`<span class=${`state ${value}`}>${STATES[value] || value}</span>`;
}

export function Facts({ facts }) {
  return html`<dl class="facts">${facts
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function Table({ title, columns, rows, empty }) {
  return html`<section class="panel"><h2>${title}</h2>
    ${rows.length === 0 ? html`<p class="quiet">${empty}</p>` : html`<div class="scroll" tabindex="0" role="region" aria-label=${title}><table>
      <thead><tr>${columns.map((column) => html`<th scope="col">${column}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`}
  </section>`;
}

const DAY_S = 86400;

// A certificate that ends within a month, or a week, as playbooks renew them in their last month.
function urgency(ends) {
  const days = (ends - Date.now() / 1000) / DAY_S;
  return ends === null || days < 7 ? "bad" : days < 30 ? "warn" : "";
}

const inDays = (ends) => {
  const days = Math.floor((ends - Date.now() / 1000) / DAY_S);
  return days < 0 ? "expired" : `in ${days} ${days === 1 ? "day" : "days"}`;
};

export function Expiry({ host }) {
  const due = Object.entries(host.certificates || {}).filter(([, ends]) => urgency(ends));
  if (!due.length) return null;
  const worst = due.some(([, ends]) => urgency(ends) === "bad") ? "problem" : "notice";
  return html`<p class=${worst} role="status">${due.map(([name, ends]) => `Certificate ${name}: ${ends === null ? "unreadable" : inDays(ends)}. `)}
    Renew: <code>ansible-playbook corral.virt.rotate_certificates</code></p>`;
}

export function Certificates({ host }) {
  const rows = Object.entries(host.certificates || {}).map(([name, ends]) => [
    name,
    ends === null ? "unreadable" : new Date(ends * 1000).toLocaleString(),
    html`<span class=${`expiry ${urgency(ends)}`}>${ends === null ? "" : inDays(ends)}</span>`,
  ]);
  return html`<${Table} title="Certificates" empty=${host.certificates ? "No certificates." : "The host has not told yet."} columns=${["Of", "Expires", "Left"]} rows=${rows} />`;
}

export function Waiting({ answer }) {
  if (answer.problem) return html`<p class="problem" role="alert">${answer.problem}</p>`;
  return html`<p class="quiet" role="status">Asking the host …</p>`;
}
