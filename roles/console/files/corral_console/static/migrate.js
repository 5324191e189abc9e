// Migrate guests: by dragging them onto a host, or by choosing one in a dialog. Both end in the same question.

import { html, useEffect, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { ask, changed, state } from "/static/server.js";
import { actionOf, begin, namesOf, possible } from "/static/actions.js";
import { may } from "/static/rights.js";
import { Check, Field, useCheck, useSettled, valuesOf } from "/static/forms.js";
import { DialogTitle, closeDialog, openDialog, tell } from "/static/ui.js";
import { memory, plural, shown } from "/static/words.js";

// What is dragged now, and what each host says to it (none: not known yet).
export const drag = { guests: [], asked: null, refusals: null, over: "" };

async function readTargets(guests) {
  const query = guests.map((guest) => `guest=${encodeURIComponent(guest.uuid)}`).join("&");
  const found = await ask(`/api/targets?${query}`);
  return new Map(found.map(({ host, refusal }) => [host, refusal || rightsAgainst(guests, host)]));
}

function rightsAgainst(guests, host) {
  return guests.every((guest) => may("migrate", { guest, host })) ? null : "you may not migrate there";
}

export function beginDrag(event, guests) {
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", guests.map((guest) => shown(guest.name)).join(" "));
  const picture = document.getElementById("drag-picture");
  picture.textContent = namesOf(guests);
  event.dataTransfer.setDragImage(picture, 12, 12);
  Object.assign(drag, { guests, asked: readTargets(guests), refusals: null, over: "" });
  drag.asked.then(
    (refusals) => drag.guests === guests && (Object.assign(drag, { refusals }), changed()),
    (error) => drag.guests === guests && (endDrag(), tell(`Cannot ask the hosts: ${error.message}`, { bad: true })),
  );
  setTimeout(changed); // a page that changes within the event ends the drag
}

export function endDrag() {
  Object.assign(drag, { guests: [], refusals: null, over: "" });
  changed();
}

const refuses = (name) => Boolean(drag.refusals?.get(name));
const takes = (name) => drag.refusals?.get(name) === null;

// Properties of an element onto which guests can be dropped.
export function dropOn(name) {
  return {
    onDragOver: (event) => {
      if (!drag.guests.length || refuses(name)) return; // what is not known yet is asked after the drop
      event.preventDefault();
      event.dataTransfer.dropEffect = "move";
      if (drag.over !== name) {
        drag.over = name;
        changed();
      }
    },
    onDragLeave: (event) => {
      if (drag.over !== name || event.currentTarget.contains(event.relatedTarget)) return;
      drag.over = "";
      changed();
    },
    onDrop: async (event) => {
      event.preventDefault();
      const { guests, asked } = drag;
      endDrag();
      const refusal = await asked.then((refusals) => refusals.get(name), (error) => error.message);
      if (refusal) tell(`${name} cannot take ${namesOf(guests)}: ${refusal}`, { bad: true });
      else openDialog(html`<${Confirm} guests=${guests} to=${name} />`);
    },
  };
}

// What a host says while guests are dragged.
export function Verdict({ name }) {
  if (!drag.refusals) return html`<p class="verdict" role="status">Asking …</p>`;
  const refusal = drag.refusals.get(name);
  return html`<p class=${`verdict ${refusal ? "no" : "yes"}`} data-verdict=${refusal ? "no" : "yes"}>${refusal ? `✕ ${refusal}` : `✓ Drop to migrate ${namesOf(drag.guests)} here`}</p>`;
}

// All hosts in reach of the hand, wherever the page is scrolled to and however guests are grouped.
export function Dock({ group }) {
  if (!drag.guests.length || (group === "host" && state.host.size < 4)) return null;
  const hosts = [...state.host.values()].map((host) => host.name).sort((one, other) => takes(other) - takes(one) || one.localeCompare(other, undefined, { numeric: true }));
  return html`<aside class="dock" aria-label="Hosts to drop on">${hosts.map((name) => html`<div key=${name} data-dock=${name} class=${`dock-host ${drag.refusals ? (takes(name) ? "yes" : "no") : ""}${drag.over === name ? " over" : ""}`} ...${dropOn(name)}>
    <b>${name}</b><span>${drag.refusals ? drag.refusals.get(name) || "has room" : "…"}</span></div>`)}</aside>`;
}

export function openMigrate(guests) {
  openDialog(html`<${Choose} guests=${guests} />`);
}

function HostChoice({ name, refusal, chosen, choose }) {
  const host = state.host.get(`host/${name}`) || {};
  const figures = state.figures.get(`figures/${name}`) || {};
  const load = host.state === "connected" ? `CPU ${figures.cpu ?? "–"} %, memory ${figures.memory ?? "–"} % of ${memory(host.memory_mib)}` : "";
  return html`<label class=${`choice${refusal ? " no" : ""}`}><input type="radio" name="to" value=${name} disabled=${Boolean(refusal)} checked=${chosen === name} onChange=${() => choose(name)} />
    <span><b>${name}</b> <span class="quiet">${refusal || load}</span></span></label>`;
}

function Choose({ guests }) {
  const [refusals, setRefusals] = useState(null);
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState(null);
  const first = useRef(null);
  useEffect(() => {
    readTargets(guests).then(setRefusals, (error) => setProblem(error.message));
  }, []);
  useEffect(() => {
    first.current?.querySelector("input:not(:disabled)")?.focus();
  }, [refusals]);
  const next = (event) => {
    event.preventDefault();
    if (chosen !== null) openDialog(html`<${Confirm} guests=${guests} to=${chosen} />`);
  };
  const names = refusals ? [...refusals.keys()].sort((one, other) => Boolean(refusals.get(one)) - Boolean(refusals.get(other)) || one.localeCompare(other, undefined, { numeric: true })) : [];
  return html`<form onSubmit=${next}><${DialogTitle}>Migrate ${namesOf(guests)}<//>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${!refusals && !problem && html`<p class="quiet busy" role="status">Asking the hosts …</p>`}
    <fieldset class="choices" ref=${first}><legend>To which host?</legend>
      ${names.map((name) => html`<${HostChoice} key=${name} name=${name} refusal=${refusals.get(name)} chosen=${chosen} choose=${setChosen} />`)}
      ${refusals && html`<label class="choice"><input type="radio" name="to" checked=${chosen === ""} onChange=${() => setChosen("")} /><span><b>Choose for me</b> <span class="quiet">the host that is loaded least with it</span></span></label>`}</fieldset>
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button><button class="primary" disabled=${chosen === null}>Show plan</button></div></form>`;
}

const NOT_ASKED = ["guest", "to", "tag", "virt_group", "gone", "confirm", "options"];

function Confirm({ guests, to }) {
  const [ready, setReady] = useState({});
  const [form, setForm] = useState({});
  const [busy, setBusy] = useState(false);
  const more = (actionOf("migrate")?.arguments || []).filter((argument) => !NOT_ASKED.includes(argument.name));
  const { values: chosen, problems } = valuesOf(more, form);
  const values = to ? { ...chosen, to } : chosen;
  const about = useSettled(JSON.stringify(values));
  const able = guests.filter((guest) => ready[guest.uuid] === about);
  const waits = guests.some((guest) => ready[guest.uuid] === undefined) || about !== JSON.stringify(values);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const { able: now, why } = possible("migrate", able);
    const done = await Promise.allSettled(now.map((guest) => begin("migrate", { guests: [guest], values })));
    const failed = done.filter((each) => each.status === "rejected").map((each) => each.reason.message);
    closeDialog();
    if (failed.length < done.length) tell(`Migrating ${namesOf(now)}${to && ` to ${to}`}.`, { link: "#/jobs", word: "Show jobs" });
    failed.forEach((text) => tell(text, { bad: true }));
    if (!now.length) tell(`Cannot migrate ${namesOf(able)}: ${why}`, { bad: true });
  };
  const told = (uuid, value) => setReady((known) => ({ ...known, [uuid]: value }));
  return html`<form onSubmit=${submit} novalidate><${DialogTitle}>Migrate ${namesOf(guests)}${to && ` to ${to}`}<//>
    ${guests.map((guest) => html`<${Preflight} key=${guest.uuid} guest=${guest} to=${to} values=${JSON.parse(about)} about=${about} told=${told} many=${guests.length > 1} />`)}
    <details><summary>Options</summary><div class="columns">${more.map((argument) => html`<${Field} key=${argument.name} argument=${argument} form=${form} set=${setForm} problem=${problems[argument.name]} />`)}</div></details>
    <p class="quiet">${guests.some((guest) => guest.state === "running") ? "Guests keep running; each pauses for a moment at the end." : "Guests that are off move with their disks."}</p>
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button class="primary" autofocus disabled=${busy || waits || !able.length}>${waits ? "Checking …" : able.length < guests.length ? `Migrate ${plural(able.length, "guest")}` : "Migrate"}</button></div></form>`;
}

// Told is what the check was about, when it found nothing against it.
function Preflight({ guest, to, values, about, told, many }) {
  const check = useCheck("migrate", { guests: [guest], values }, `${guest.uuid} ${about}`);
  useEffect(() => {
    told(guest.uuid, check.waits ? undefined : check.ok ? about : "");
  }, [about, check.waits, check.ok]);
  return html`<section class="preflight" aria-label=${shown(guest.name)}>
    ${!check.ok && html`<p class="route"><b>${shown(guest.name)}</b> <span>${guest.host}</span> <span aria-label="to">→</span> <b>${to || "?"}</b></p>`}
    <${Check} check=${check} title=${many ? " " : "What travels"} /></section>`;
}
