// Dialogs of actions: a form made from the catalogue, what the action would do, and one confirmation.

import { html, useEffect, useReducer, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { ask, keepJob, state, subscribe } from "/static/server.js";
import { VOLUMES, actionOf, active, begin, label, namesOf } from "/static/actions.js";
import { Plan } from "/static/plan.js";
import { DialogTitle, closeDialog, openDialog, tell } from "/static/ui.js";
import { plural, shown } from "/static/words.js";

function useLive() {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => subscribe(draw), []);
}

// Nobody waits for the check any more, and it keeps others waiting.
function giveUp(id) {
  const job = state.job.get(id);
  if (job && active(job)) ask(`/api/jobs/${id}/cancel`, {}).catch(() => null);
}

// A run of the action that changes nothing, made anew when `about` (a text that names it) changes.
export function useCheck(name, request, about) {
  const [check, setCheck] = useState({});
  useLive();
  useEffect(() => {
    let current = true;
    setCheck({});
    if (!about) return;
    let id = "";
    begin(name, { ...request, check: true }).then(
      (job) => {
        id = job.id;
        if (current) setCheck({ id });
        else giveUp(id);
      },
      (error) => current && setCheck({ problem: error.message, fields: error.fields }),
    );
    return () => {
      current = false;
      giveUp(id);
    };
  }, [about]);
  const job = check.id && state.job.get(check.id);
  const ended = Boolean(job) && !active(job);
  const told = ended && job.told; // the stream does not tell what the check has found
  useEffect(() => {
    if (ended && !told) ask(`/api/jobs/${check.id}`).then((whole) => keepJob({ ...whole, told: true }), (error) => setCheck({ problem: error.message }));
  }, [ended, told]);
  return { ...check, job, waits: Boolean(about) && !check.problem && !told, ok: told && job.state === "succeeded" };
}

export function Check({ check, title }) {
  const { job, problem, waits } = check;
  const place = useRef(null);
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [waits]);
  if (problem) return html`<p class="problem" role="alert">${problem}</p>`;
  if (waits) return html`<p class="quiet busy" role="status">Asking the hosts what it would do …</p>`;
  if (!job) return null;
  if (job.state !== "succeeded") return html`<p class="problem" role="alert">${job.error || `The check has ${job.state}.`}</p>`;
  return html`<div class="plan" role="status" ref=${place}><strong>${title || "What it would do"}</strong><${Plan} job=${job} /></div>`;
}

const structured = (argument) => argument.type === "dict" || (argument.type === "list" && argument.elements === "dict");

// Text of a field -> value of an argument; undefined: not given.
function valueOf(argument, given) {
  if (argument.type === "bool") return { yes: true, no: false }[given];
  const text = String(given ?? "").trim();
  if (!text) return undefined;
  if (argument.type === "int" || argument.type === "float") return Number(text);
  if (structured(argument) || (["raw", "list"].includes(argument.type) && /^[[{]/.test(text))) return JSON.parse(text);
  if (argument.type === "list") return text.split(/[\s,]+/).filter(Boolean);
  if (argument.type === "raw" && /^\d+$/.test(text)) return Number(text);
  return text;
}

export function valuesOf(names, form) {
  const values = {};
  const problems = {};
  for (const argument of names) {
    try {
      const value = valueOf(argument, form[argument.name]);
      if (value !== undefined) values[argument.name] = value;
      else if (argument.required) problems[argument.name] = "is required";
      if (typeof value === "number" && Number.isNaN(value)) problems[argument.name] = "must be a number";
      if (typeof value === "number" && argument.minimum !== undefined && argument.minimum !== null && value < argument.minimum) problems[argument.name] = `must be at least ${argument.minimum}`;
      if (typeof value === "number" && argument.maximum !== undefined && argument.maximum !== null && value > argument.maximum) problems[argument.name] = `must be at most ${argument.maximum}`;
    } catch {
      problems[argument.name] = `must be JSON, for example ${argument.type === "list" ? '[{"name": "value"}]' : '{"name": "value"}'}`;
    }
  }
  return { values, problems };
}

const named = (name) => name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());

// Of pools those of these hosts, and of all when none is known yet.
function choicesOf(argument, hosts = []) {
  if (argument.object === "host") return [...state.host.keys()].map((key) => key.slice("host/".length)).sort();
  if (argument.object === "guest") return [...new Set([...state.guest.values()].map((guest) => guest.name))].sort();
  if (argument.object === "pool") return [...new Set([...state.host.values()].filter((host) => !hosts.length || hosts.includes(host.name)).flatMap((host) => (host.pools || []).map((pool) => pool.name)))].sort();
  return argument.live || [];
}

const PARTS = ["disk", "snapshot"];

// Names of the disks that a guest writes, and of its snapshots; none until its host has answered.
function useParts(guest) {
  const [parts, setParts] = useState({});
  useEffect(() => {
    if (!guest) return;
    const named = (found) => found.disks.filter((disk) => (disk.device || "disk") === "disk" && !disk.readonly).map((disk) => disk.name || disk.target);
    ask(`/api/hosts/${encodeURIComponent(guest.host)}/guests/${guest.uuid}`).then((found) => setParts({ disk: named(found), snapshot: found.snapshots }), () => null);
  }, []);
  return parts;
}

export function Field({ argument, form, set, problem, words, live, type }) {
  const id = `field-${argument.name}`;
  const value = form[argument.name] ?? "";
  const common = { id, name: argument.name, value, required: argument.required, disabled: Boolean(argument.refusal), "aria-invalid": problem ? "true" : "false", "aria-describedby": `${id}-help`, onInput: (event) => set({ ...form, [argument.name]: event.target.value }) };
  const fixed = argument.choices || (argument.type === "bool" && ["yes", "no"]) || (argument.type !== "list" && argument.object === "host" && choicesOf(argument));
  const known = live || choicesOf(argument);
  const normal = argument.default === undefined || argument.default === null || argument.default === "" || typeof argument.default === "object" ? "" : ` (${argument.default === true ? "yes" : argument.default === false ? "no" : argument.default})`;
  let control = html`<input ...${common} type=${type || "text"} inputmode=${argument.type === "int" ? "numeric" : undefined} list=${known.length ? `${id}-list` : undefined} autocomplete="off" autocapitalize="none" spellcheck=${false} />`;
  if (fixed) control = html`<select ...${common} onChange=${common.onInput}><option value="" disabled=${argument.required}>${argument.required ? "Choose" : argument.object === "host" ? "Choose for me" : `As usual${normal}`}</option>${fixed.map((choice) => html`<option value=${choice}>${choice}</option>`)}</select>`;
  else if (structured(argument)) control = html`<textarea ...${common} rows="3" spellcheck=${false} placeholder="JSON"></textarea>`;
  return html`<div class=${`field${problem ? " wrong" : ""}`}><label for=${id}>${words?.label || named(argument.name)}${argument.required && html` <span class="quiet" aria-hidden="true">required</span>`}</label>${control}
    ${!fixed && known.length > 0 && html`<datalist id=${`${id}-list`}>${known.map((each) => html`<option value=${each}></option>`)}</datalist>`}
    <p class="help" id=${`${id}-help`}>${problem && html`<span class="bad" role="alert">${problem}. </span>`}${argument.refusal ? `Not available: ${argument.refusal}. ` : ""}${words?.help ?? plain(argument.description)}${!fixed && normal && ` Usual: ${normal.slice(2, -1)}.`}</p></div>`;
}

// Descriptions are of the commands' guide: `code` and references.
export const plain = (text) => (Array.isArray(text) ? text.join(" ") : text || "").replaceAll("`", "").replace(/[A-Z]\(([^)]*)\)/g, "$1");

// How the dialogs begin: which arguments are asked for, which are hidden behind "More".
export const TAKEN = ["guest", "tag", "confirm", "virt_group", "host"];

export function askFor(name, { guests = [], hosts = [] }) {
  openDialog(html`<${ActionForm} name=${name} guests=${guests} hosts=${hosts} />`);
}

// Actions that run without a question.
export const quick = (name) => ["start", "resume", "pause", "undrain"].includes(name);

const CHECKED = ["drain", "rebalance", "purge", "move_disk", "snapshot", "revert", "delete_snapshot", ...VOLUMES];
const CONFIRMS = "confirm_snapshot"; // optional for a check, which lists what is to be confirmed
export const SURE = {
  shutdown: "The guest is asked to shut down.",
  reboot: "The guest is asked to reboot.",
  reset: "The guest is reset as by the button: what it has not written is lost.",
  force_off: "The guest is switched off as by pulling the plug: what it has not written is lost.",
  purge: "The guest is removed with its own disks. This cannot be undone.",
  revert: "The disks and the definition of the guest become those of the snapshot. What it has written since is thrown away.",
  delete_snapshot: "What the guest has written since is merged into its disks. The guest goes on as it is, and can no longer go back.",
  delete_volume: "The volume is deleted with its content, unless a guest uses it. This cannot be undone.",
};

function ActionForm({ name, guests, hosts }) {
  const action = actionOf(name);
  const [form, setForm] = useState({});
  const [problems, setProblems] = useState({});
  const [failed, setFailed] = useState("");
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const arguments_ = (action?.arguments || []).filter((argument) => !TAKEN.includes(argument.name));
  const parts = useParts(guests.length === 1 && arguments_.some((argument) => PARTS.includes(argument.object)) ? guests[0] : null);
  const choices = (argument) => parts[argument.object] || choicesOf(argument, hosts.length ? hosts : guests.map((guest) => guest.host));
  const ready = valuesOf(arguments_, form);
  const complete = !Object.keys(ready.problems).length;
  const settled = useSettled(JSON.stringify(ready.values));
  const check = useCheck(name, { guests, hosts, values: ready.values }, CHECKED.includes(name) && complete && settled);
  const phrase = name === "purge" ? (guests.length === 1 ? shown(guests[0].name) : plural(guests.length, "guest")) : "";
  const submit = async (event) => {
    event.preventDefault();
    if (!complete) return setProblems(ready.problems);
    setBusy(true);
    try {
      const job = await begin(name, { guests, hosts, values: ready.values });
      closeDialog();
      tell(`${label(name)} ${namesOf(guests) || hosts.join(", ")}: begun.`, { link: `#/jobs/${job.id}`, word: "Show job" });
    } catch (error) {
      setProblems(error.fields || {});
      setFailed(error.message);
    }
    setBusy(false);
  };
  const first = arguments_.filter((argument) => argument.required || argument.name === CONFIRMS);
  const optional = arguments_.filter((argument) => !first.includes(argument));
  const field = (argument) => html`<${Field} key=${argument.name} argument=${argument} form=${form} set=${setForm} problem=${problems[argument.name]} live=${choices(argument)} />`;
  const danger = action?.destructive;
  return html`<form onSubmit=${submit} novalidate><${DialogTitle}>${label(name)} ${guests.length ? namesOf(guests) : hosts.join(", ")}<//>
    <p>${SURE[name] || plain(action?.description || action?.label)}</p>
    ${guests.length > 1 && html`<p class="quiet">${guests.map((guest) => shown(guest.name)).join(", ")}</p>`}
    ${first.map(field)}
    ${optional.length > 0 && html`<details><summary>Options</summary>${optional.map(field)}</details>`}
    ${CHECKED.includes(name) && html`<${Check} check=${check} />`}
    ${phrase && html`<div class="field"><label for="typed">Type <b>${phrase}</b> to confirm</label><input id="typed" value=${typed} autocomplete="off" autocapitalize="none" onInput=${(event) => setTyped(event.target.value)} /></div>`}
    ${failed && html`<p class="problem" role="alert">${failed}</p>`}
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button class=${danger ? "primary danger" : "primary"} disabled=${busy || (phrase && typed !== phrase) || (CHECKED.includes(name) && !check.ok)}>${label(name)}</button></div></form>`;
}

// A text that has not changed for a moment: who types is not asked about each letter.
export function useSettled(text) {
  const [settled, setSettled] = useState(text);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const timer = setTimeout(() => setSettled(text), 600);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}
