// The form of a new guest, or of a copy of one: few fields, choices that are there now, and where it would go.

import { html, useEffect, useState } from "/static/lib/htm/standalone.module.js";
import { ask, state } from "/static/server.js";
import { actionOf, begin } from "/static/actions.js";
import { mayGive } from "/static/rights.js";
import { Check, Field, useCheck, valuesOf } from "/static/forms.js";
import { DialogTitle, closeDialog, openDialog, tell } from "/static/ui.js";
import { shown } from "/static/words.js";

const HELP = {
  guest: { label: "Name", help: "Letters, digits, dots and dashes." },
  image: { label: "Image", help: "Of its first disk; without one, the disk is empty." },
  size: { label: "Disk size", help: "For example 20GiB. Usual: the image's size, or 8GiB." },
  network: { label: "Network", help: "A network of libvirt. As usual is a bridge; for another one, give Interfaces below." },
  vcpus: { label: "vCPUs", help: "" },
  memory: { label: "Memory", help: "For example 2GiB." },
  display: { label: "Display", help: "VNC, on the host's loopback address: opened in this console only." },
  host: { label: "Host", help: "" },
  state: { label: "State", help: "Once it is created." },
  apart: { label: "Keep apart", help: "Guests with the same word never share a host." },
};
const FIRST = ["guest", "image", "vcpus", "memory", "size", "network", "display", "host", "state"];
// Two fields for what most guests need of the lists of disks and network interfaces.
const SIZE = { name: "size", type: "str" };
const NETWORK = { name: "network", type: "str" };
const NO_NETWORK = "none";
const DISPLAY = { name: "display", type: "str", required: true, choices: ["VNC", "none"] };
const OMITTED = ["virt_group", "confirm", "gone", "domain", "options", "cloud_init", "uuid"];

// What a copy has of its original, and where it is made.
const COPIED = ["image", "vcpus", "memory", "size", "network", "display", "host", "clone_of"];

export function openCreate(original) {
  openDialog(html`<${Create} original=${original} />`);
}

// Of one host that is connected: hosts of a cluster have the same ones.
function useNetworks() {
  const [networks, setNetworks] = useState([]);
  useEffect(() => {
    const host = [...state.host.values()].find((each) => each.state === "connected");
    if (host) ask(`/api/hosts/${encodeURIComponent(host.name)}`).then((found) => setNetworks(found.networks.map((each) => each.name)), () => null);
  }, []);
  return networks;
}

function withLists({ values: { size, network, display, ...values }, problems }) {
  const twice = (name, place) => ({ ...problems, [name]: `give it once: here, or in ${place}` });
  if (size && values.disks) return { values, problems: twice("size", "Disks") };
  if (network && values.interfaces) return { values, problems: twice("network", "Interfaces") };
  if (size) values.disks = [{ name: "system", size }];
  if (network) values.interfaces = network === NO_NETWORK ? [] : [{ name: "eth0", network }];
  if (display === "VNC" && !values.graphics) values.graphics = { type: "vnc" }; // listens on loopback
  return { values, problems };
}

function Create({ original }) {
  const action = actionOf("create");
  const [images, setImages] = useState([]);
  const networks = useNetworks();
  const [form, setForm] = useState(original ? { state: "running" } : { vcpus: "2", memory: "2GiB", state: "running", display: mayGive("create", "graphics") ? "VNC" : "none" });
  const [keys, setKeys] = useState("");
  const [problems, setProblems] = useState({});
  const [failed, setFailed] = useState("");
  const [wanted, setWanted] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    ask("/api/images").then((found) => setImages(found.map((image) => image.name)), () => null);
  }, []);
  const all = new Map([...(action?.arguments || []), SIZE, { ...NETWORK, choices: [NO_NETWORK, ...networks] }, mayGive("create", "graphics") ? DISPLAY : { ...DISPLAY, refusal: "no rule of yours allows graphics" }].map((argument) => [argument.name, argument]));
  const first = FIRST.filter((name) => all.has(name) && !(original && COPIED.includes(name))).map((name) => all.get(name));
  const hidden = [...FIRST, ...OMITTED, ...(original ? COPIED : [])];
  const more = [...all.values()].filter((argument) => !hidden.includes(argument.name));
  const { values, problems: wrong } = withLists(valuesOf([...first, ...more], form));
  const lines = keys.split("\n").map((line) => line.trim()).filter(Boolean);
  if (lines.length) values.cloud_init = { user_data: { ssh_authorized_keys: lines } };
  if (original) Object.assign(values, { clone_of: original.name, host: original.host });
  const text = JSON.stringify(values);
  const check = useCheck("create", { values }, wanted);
  useEffect(() => {
    if (check.fields) setProblems(check.fields);
  }, [check.fields]);
  const submit = async (event) => {
    event.preventDefault();
    setProblems(wrong);
    setFailed("");
    if (Object.keys(wrong).length) return;
    if (wanted !== text) return setWanted(text);
    if (!check.ok) return;
    setBusy(true);
    try {
      const job = await begin("create", { values });
      closeDialog();
      tell(`${what}: begun.`, { link: `#/jobs/${job.id}`, word: "Show job" });
    } catch (error) {
      setProblems(error.fields || {});
      setFailed(error.message);
    }
    setBusy(false);
  };
  const what = original ? `Clone ${shown(original.name)} as ${values.guest}` : `Create ${values.guest}`;
  const planned = wanted === text;
  const field = (argument) => html`<${Field} key=${argument.name} argument=${argument} form=${form} set=${setForm} problem=${problems[argument.name]} words=${HELP[argument.name]} live=${argument.name === "image" ? images : argument.name === "guest" ? [] : undefined} />`;
  return html`<form onSubmit=${submit} novalidate><${DialogTitle}>${original ? `Clone ${shown(original.name)}` : "Create guest"}<//>
    ${original && html`<p>The copy has the hardware and copies of the disks of ${shown(original.name)}, and a UUID and MAC addresses of its own. It is made on ${original.host}, where the original is; migrate it from there.</p>`}
    <div class="columns">${first.map(field)}</div>
    ${all.has("cloud_init") && html`<div class="field"><label for="field-keys">SSH keys</label><textarea id="field-keys" rows="2" spellcheck=${false} placeholder="ssh-ed25519 AAAA… me@example" aria-describedby="field-keys-help" onInput=${(event) => setKeys(event.target.value)}>${keys}</textarea>
      <p class="help" id="field-keys-help">Public keys, a line each. Cloud-init lets their owners in as the image's login user.</p></div>`}
    <details><summary>More options</summary><div class="columns">${more.map(field)}</div></details>
    ${planned && html`<${Check} check=${check} title="Where it would go, and how" />`}
    ${failed && html`<p class="problem" role="alert">${failed}</p>`}
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button class="primary" disabled=${busy || (planned && !check.ok)}>${planned && check.ok ? (original ? "Clone" : "Create") : "Show plan"}</button></div></form>`;
}
