// One guest, one host, and the user's sessions.

import { html, useEffect, useState } from "/static/lib/htm/standalone.module.js";
import { ask, state } from "/static/server.js";
import { Bar, State } from "/static/overview.js";
import { ago, bytes, guestLink, hostLink, memory, plural } from "/static/words.js";

function useAnswer(path, again) {
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

function Facts({ facts }) {
  return html`<dl class="facts">${facts
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Table({ title, columns, rows, empty }) {
  return html`<section class="panel"><h2>${title}</h2>
    ${rows.length === 0 ? html`<p class="quiet">${empty}</p>` : html`<div class="scroll" tabindex="0" role="region" aria-label=${title}><table>
      <thead><tr>${columns.map((column) => html`<th scope="col">${column}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`}
  </section>`;
}

function Waiting({ answer }) {
  if (answer.problem) return html`<p class="problem" role="alert">${answer.problem}</p>`;
  return html`<p class="quiet" role="status">Asking the host …</p>`;
}

export function Guest({ host, uuid, may }) {
  const guest = state.guest.get(`guest/${host}/${uuid}`);
  const answer = useAnswer(`/api/hosts/${encodeURIComponent(host)}/guests/${encodeURIComponent(uuid)}`, guest);
  if (!guest) {
    const elsewhere = [...state.guest.values()].find((other) => other.uuid === uuid);
    return html`<h1>Guest</h1><p class="empty">The guest is not on ${host}. ${elsewhere ? html`It is on <a href=${guestLink(elsewhere)}>${elsewhere.host}</a>.` : html`<a href="#/">All guests</a>`}</p>`;
  }
  const [cpu, used] = state.figures.get(`figures/${host}`)?.guests[uuid] || [];
  const runs = guest.state === "running" || guest.state === "paused";
  return html`<nav class="path" aria-label="Path"><a href="#/">Hosts</a> / <a href=${hostLink(host)}>${host}</a></nav>
    <div class="title"><h1>${guest.name}</h1><${State} value=${guest.state} />
      ${runs && may.includes("console") && answer.value && html`<span class="buttons">
        ${answer.value.graphics.some((each) => each.type === "vnc") && html`<a class="button" href=${`#/console/${uuid}/vnc`}>Display</a>`}
        ${answer.value.console && html`<a class="button" href=${`#/console/${uuid}/serial`}>Serial console</a>`}</span>`}
    </div>
    ${guest.title && html`<p class="quiet">${guest.title}</p>`}
    ${runs && html`<div class="bars wide"><${Bar} label="CPU" value=${cpu} detail=${`of ${plural(guest.vcpus, "vCPU")}`} /><${Bar} label="Memory" value=${used} detail=${`of ${memory(guest.memory_mib)}`} /></div>`}
    ${answer.value ? html`<${GuestFacts} guest=${guest} found=${answer.value} />` : html`<${Waiting} answer=${answer} />`}`;
}

const source = (disk) => disk.source || disk.volume || disk.block || "";
const network = (nic) => nic.bridge || nic.network || nic.dev || "";

function GuestFacts({ guest, found }) {
  return html`<section class="panel"><h2>Guest</h2><${Facts} facts=${[
      ["Addresses", found.addresses.join(", ") || "none known"],
      ["vCPUs", `${found.vcpus.current}${found.vcpus.maximum > found.vcpus.current ? ` of at most ${found.vcpus.maximum}` : ""}`],
      ["Memory", memory(found.memory.current_mib)],
      ["Description", found.description],
      ["Tags", guest.tags.join(", ")],
      ["Starts with its host", guest.autostart ? "yes" : "no"],
      ["Machine", found.machine],
      ["Firmware", found.firmware],
      ["Type", found.virt_type],
      ["UUID", html`<code>${guest.uuid}</code>`],
    ]} /></section>
    <${Table} title="Disks" empty="No disks." columns=${["Target", "Bus", "Format", "Where"]} rows=${found.disks.map((disk) => [disk.target, disk.bus, disk.format, html`<code>${source(disk)}</code>`])} />
    <${Table} title="Network interfaces" empty="No network interfaces." columns=${["Name", "Type", "Network", "MAC address", "Model"]} rows=${found.interfaces.map((nic) => [nic.name, nic.type, network(nic), html`<code>${nic.mac}</code>`, nic.model])} />`;
}

export function Host({ name }) {
  const host = state.host.get(`host/${name}`);
  const answer = useAnswer(`/api/hosts/${encodeURIComponent(name)}`, host?.state);
  if (!host) return html`<h1>Host</h1><p class="empty">There is no host ${name}. <a href="#/">All hosts</a></p>`;
  const guests = [...state.guest.values()].filter((guest) => guest.host === name).sort((one, other) => one.name.localeCompare(other.name));
  const figures = state.figures.get(`figures/${name}`) || {};
  const found = answer.value;
  return html`<nav class="path" aria-label="Path"><a href="#/">Hosts</a></nav>
    <div class="title"><h1>${name}</h1><span class=${`state ${host.state}`}>${host.state === "unreachable" ? `Unreachable since ${new Date(host.since * 1000).toLocaleString()}` : host.state === "connected" ? "Connected" : "Connecting"}</span></div>
    ${host.reason && html`<p class="problem">${host.reason}</p>`}
    ${host.state === "connected" && html`<div class="bars wide"><${Bar} label="CPU" value=${figures.cpu} detail=${`of ${plural(host.cpus, "CPU")}`} /><${Bar} label="Memory" value=${figures.memory} detail=${`of ${memory(host.memory_mib)}`} /></div>`}
    ${found ? html`<section class="panel"><h2>Host</h2><${Facts} facts=${[
        ["Name there", found.hostname],
        ["Processor", `${found.cpu_model || ""} ${found.arch}`],
        ["libvirt", found.libvirt_version],
        ["Hypervisor", `${found.hypervisor_version} (${(found.virt_types[found.arch] || []).join(", ")})`],
        ["Processors", `${found.cpus} (${found.sockets} × ${found.cores} × ${found.threads})`],
        ["Memory", memory(found.memory_mib)],
        ["Security drivers", found.security_drivers.join(", ")],
      ]} /></section>
      <${Table} title="Storage pools" empty="No storage pools." columns=${["Name", "Path", "Used", "Size"]} rows=${found.pools.map((pool) => [pool.name, html`<code>${pool.path}</code>`, bytes(pool.allocation_bytes), bytes(pool.capacity_bytes)])} />
      <${Table} title="Networks" empty="No virtual networks." columns=${["Name", "Bridge", "Active"]} rows=${found.networks.map((each) => [each.name, each.bridge, each.active ? "yes" : "no"])} />`
      : html`<${Waiting} answer=${host.state === "connected" ? answer : { problem: "Details are shown while the host is connected." }} />`}
    <${Table} title="Guests" empty="No guests." columns=${["Name", "State", "vCPUs", "Memory"]} rows=${guests.map((guest) => [html`<a href=${guestLink(guest)}>${guest.name}</a>`, html`<${State} value=${guest.state} />`, guest.vcpus || "", memory(guest.memory_mib)])} />`;
}

export function Sessions({ lost }) {
  const [again, setAgain] = useState(0);
  const answer = useAnswer("/api/sessions", again);
  const end = async (session) => {
    await ask("/api/sessions/end", { id: session.id }).catch(() => null);
    if (session.current) lost();
    else setAgain(again + 1);
  };
  return html`<h1>Sessions</h1><p>Browsers in which you are logged in. A session that you end loses its pages and consoles at once.</p>
    ${answer.value ? html`<${Table} title="Your sessions" empty="None." columns=${["Browser", "Address", "Since", "Last request", html`<span class="hidden">Action</span>`]} rows=${answer.value.map((each) => [
        html`<span class="cut agent">${each.agent || "unknown"}</span>`, each.address, new Date(each.created * 1000).toLocaleString(), ago(each.seen),
        html`<button onClick=${() => end(each)}>${each.current ? "Log out" : "End"}</button>`])} />` : html`<${Waiting} answer=${answer} />`}`;
}
