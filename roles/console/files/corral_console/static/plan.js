// What a playbook in check mode would do: moves as arrows, with what travels; other steps as it tells them.

import { html } from "/static/lib/htm/standalone.module.js";
import { bytes, duration, readable, shown } from "/static/words.js";

const LINK = 118 * 1024 * 1024; // bytes that 1 Gbit/s carries in a second

// All that modules of this name told, of whatever host.
const told = (plan, module, key) => Object.values(plan?.[module] || {}).flatMap((found) => found[key] || []);

function travels(migration) {
  const whole = migration.bytes_to_move ?? 0;
  const parts = [migration.mode, migration.mode && `${bytes(whole)} of disk`];
  if (whole) parts.push(`about ${duration(Math.ceil(whole / LINK))} for the disks at 1 Gbit/s`);
  if (migration.dirty_rate_mib_s !== undefined && migration.dirty_rate_mib_s !== null) parts.push(`writes ${migration.dirty_rate_mib_s} MiB/s of memory`);
  return parts.filter(Boolean).join(", ");
}

function Move({ move, migration }) {
  return html`<li><b>${shown(move.name)}</b> <span>${move.source}</span> <span aria-label="to">→</span> <span>${move.dest}</span>
    ${move.why && html` <span class="quiet">${move.why}</span>`}
    ${migration && html`<div class="quiet">${migration.msg || travels(migration)}</div>
      ${(migration.disks || []).map((disk) => html`<div class="quiet">${disk.target}: ${disk.how}, ${bytes(disk.bytes_to_move)} (${disk.why})</div>`)}
      ${(migration.notes || []).map((note) => html`<div>${note}</div>`)}`}</li>`;
}

export function Plan({ job }) {
  const { plan } = job;
  const migrations = new Map(Object.entries(plan?.virt_migrations || {}).flatMap(([source, found]) => (found.results || []).map((each) => [each.name, { ...each, source }])));
  const moves = [...told(plan, "virt_balance", "moves"), ...told(plan, "virt_place", "moves")];
  const known = new Set(moves.map((move) => move.name));
  const all = [...moves, ...[...migrations.values()].filter((each) => !known.has(each.name))];
  const stays = [...told(plan, "virt_balance", "stays"), ...told(plan, "virt_place", "stays")].filter((stay) => stay.why);
  const placed = all.length ? [] : told(plan, "virt_place", "explained");
  const results = [...told(plan, "virt_domains", "results"), ...told(plan, "virt_state", "results")];
  const steps = results.flatMap((each) => (each.steps?.length ? each.steps : each.msg ? [`${shown(each.name)}: ${each.msg}`] : []));
  const lines = all.length || placed.length || steps.length ? [...placed, ...steps] : job.report || [];
  const nothing = !all.length && !stays.length && !lines.length;
  return html`${all.length > 0 && html`<ul class="moves">${all.map((move) => html`<${Move} move=${move} migration=${migrations.get(move.name)} />`)}</ul>`}
    ${stays.length > 0 && html`<ul class="moves">${stays.map((stay) => html`<li><b>${shown(stay.name)}</b> <span class="bad">stays: ${stay.why}</span></li>`)}</ul>`}
    ${lines.length > 0 && html`<pre class="report" tabindex="0">${lines.map(readable).join("\n")}</pre>`}${nothing && html`<p>Nothing to do.</p>`}`;
}
