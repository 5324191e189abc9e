// The form that changes guests: it begins with what holds now, and sends only what differs.

import { html, useEffect, useState } from "/static/lib/htm/standalone.module.js";
import { ask } from "/static/server.js";
import { actionOf, begin, namesOf } from "/static/actions.js";
import { Check, Field, TAKEN, useCheck, useSettled, valuesOf } from "/static/forms.js";
import { Waiting } from "/static/parts.js";
import { DialogTitle, closeDialog, openDialog, tell } from "/static/ui.js";
import { bytes, shown } from "/static/words.js";

const FRONT = ["vcpus", "memory", "title", "description"];
// Ansible reserves the name, so the tags go into the dictionary of options.
const TAGS = { name: "tags", type: "list", elements: "str", description: "Words; all that the guest shall have." };
const EMPTIED = { title: "", description: "", tags: [] };
const WORDS = {
  vcpus: { label: "vCPUs", help: "" },
  memory: { label: "Memory", help: "For example 2GiB." },
  title: { label: "Title", help: "A few words, shown with the name." },
  description: { label: "Description", help: "" },
  tags: { label: "Tags", help: "Words; all that the guest shall have." },
};

export function openChange(guests) {
  openDialog(guests.length === 1 ? html`<${ChangeOne} guest=${guests[0]} />` : html`<${Change} guests=${guests} now=${{}} disks=${[]} />`);
}

const size = (count) => bytes(count).replace(" ", "");

// A disk that can grow: one in a file or a volume, whose size the host knows.
const grows = (disk) => disk.capacity_bytes && (disk.source || disk.volume) && (disk.device || "disk") === "disk" && !disk.readonly;

function ChangeOne({ guest }) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    ask(`/api/hosts/${encodeURIComponent(guest.host)}/guests/${guest.uuid}`).then((value) => setAnswer({ value }), (error) => setAnswer({ problem: error.message }));
  }, []);
  const found = answer.value;
  if (!found) return html`<${DialogTitle}>Change ${shown(guest.name)}<//><${Waiting} answer=${answer} />`;
  const disks = found.disks.filter(grows);
  const now = {
    vcpus: String(found.vcpus.current ?? ""), memory: size(found.memory.maximum_mib * 2 ** 20),
    title: found.title, description: found.description, tags: found.tags.join(" "),
    ...Object.fromEntries(disks.map((disk) => [`disk ${disk.target}`, size(disk.capacity_bytes)])),
  };
  return html`<${Change} guests=${[guest]} now=${now} disks=${disks} />`;
}

// The values of fields that differ from what holds now. An emptied field empties what can be empty.
function changedValues(fields, disks, form, now) {
  const differs = (name) => (form[name] ?? "").trim() !== (now[name] ?? "").trim();
  const { values, problems } = valuesOf(fields.filter((argument) => differs(argument.name)), form);
  for (const [name, value] of Object.entries(EMPTIED)) if (name in now && differs(name) && !(form[name] ?? "").trim()) values[name] = value;
  const grown = disks.filter((disk) => differs(`disk ${disk.target}`)).map((disk) => ({ name: disk.name || disk.target, size: form[`disk ${disk.target}`].trim() }));
  if (grown.length && values.disks) problems.disks = "give the sizes of disks once: here, or above";
  else if (grown.length) values.disks = grown;
  if ("tags" in values) {
    values.domain = { ...values.domain, tags: values.tags };
    delete values.tags;
  }
  return { values, problems };
}

function Change({ guests, now, disks }) {
  const [form, setForm] = useState(now);
  const [failed, setFailed] = useState("");
  const [busy, setBusy] = useState(false);
  const offered = (actionOf("change")?.arguments || []).filter((argument) => !TAKEN.includes(argument.name));
  const front = [...FRONT.map((each) => offered.find((argument) => argument.name === each)).filter(Boolean), TAGS];
  const more = offered.filter((argument) => !FRONT.includes(argument.name));
  const { values, problems } = changedValues([...front, ...more], disks, form, now);
  const anything = Object.keys(values).length > 0;
  const settled = useSettled(JSON.stringify(values));
  const check = useCheck("change", { guests, values }, anything && !Object.keys(problems).length && settled);
  const submit = async (event) => {
    event.preventDefault();
    if (!check.ok) return;
    setBusy(true);
    try {
      const job = await begin("change", { guests, values });
      closeDialog();
      tell(`Change ${namesOf(guests)}: begun.`, { link: `#/jobs/${job.id}`, word: "Show job" });
    } catch (error) {
      setFailed(error.message);
    }
    setBusy(false);
  };
  const field = (argument) => html`<${Field} key=${argument.name} argument=${argument} form=${form} set=${setForm} problem=${problems[argument.name] || check.fields?.[argument.name]} words=${WORDS[argument.name] || argument.words} />`;
  return html`<form onSubmit=${submit} novalidate><${DialogTitle}>Change ${namesOf(guests)}<//>
    ${guests.length > 1 && html`<p class="quiet">${guests.map((guest) => shown(guest.name)).join(", ")}. What is left empty stays as it is.</p>`}
    <div class="columns">${front.map(field)}
      ${disks.map((disk) => field({ name: `disk ${disk.target}`, type: "str", words: { label: `Disk ${disk.target}`, help: "It can grow. The file system inside is the guest's." } }))}</div>
    <details><summary>More options</summary><div class="columns">${more.map(field)}</div></details>
    ${anything ? html`<${Check} check=${check} />` : html`<p class="quiet" role="status">Nothing is changed yet.</p>`}
    ${failed && html`<p class="problem" role="alert">${failed}</p>`}
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button class="primary" disabled=${busy || !check.ok || settled !== JSON.stringify(values)}>Change</button></div></form>`;
}
