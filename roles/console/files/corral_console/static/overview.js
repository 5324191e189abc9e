// All hosts with their guests: search, filter, group.

import { Component, html, useEffect, useMemo, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { state } from "/static/server.js";
import { STATES, ago, guestLink, hostLink, memory, plural } from "/static/words.js";

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

// Values never change in place, so the same ones need no new card.
class Card extends Component {
  shouldComponentUpdate(next) {
    return ["guest", "cpu", "memory", "stale", "withHost"].some((name) => next[name] !== this.props[name]);
  }

  render({ guest, cpu, memory: used, stale, withHost }) {
    const runs = guest.state === "running" || guest.state === "paused";
    return html`<li class=${`card${stale ? " stale" : ""}`} data-guest=${guest.name} data-state=${guest.state} data-host=${guest.host}>
      <div class="card-head"><a class="name" href=${guestLink(guest)}>${guest.name}</a><${State} value=${guest.state} /></div>
      ${guest.title && html`<div class="quiet cut">${guest.title}</div>`}
      <div class="quiet">${withHost && `${guest.host}, `}${guest.vcpus ? `${plural(guest.vcpus, "vCPU")}, ` : ""}${memory(guest.memory_mib)}</div>
      ${runs && html`<${Bar} label="CPU" value=${cpu} />`}
      ${runs && used !== null && used !== undefined && html`<${Bar} label="Memory" value=${used} />`}
      ${guest.tags.length > 0 && html`<div class="tags">${guest.tags.map((tag) => html`<span class="tag">${tag}</span>`)}</div>`}
    </li>`;
  }
}

function HostFacts({ host }) {
  const figures = state.figures.get(`figures/${host.name}`) || {};
  if (host.state !== "connected") {
    const words = host.state === "connecting" ? "Connecting" : "Unreachable since";
    const since = host.state === "connecting" ? "" : ` ${new Date(host.since * 1000).toLocaleString()} (${ago(host.since)})`;
    return html`<p class="problem" role="status"><strong>${words}${since}</strong>${host.reason && html`<br /><span>${host.reason}</span>`}</p>`;
  }
  return html`<div class="bars">
    <${Bar} label="CPU" value=${figures.cpu} detail=${`of ${plural(host.cpus, "CPU")}`} />
    <${Bar} label="Memory" value=${figures.memory} detail=${`of ${memory(host.memory_mib)}`} />
  </div>`;
}

// Cards far from what is seen are not drawn: of thousands, a few dozen are on the page.
function Cards({ guests, withHost, label }) {
  const place = useRef(null);
  const [near, setNear] = useState(guests.length < 40);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setNear(entries.at(-1).isIntersecting), { rootMargin: "100% 0px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  const height = near ? undefined : `${Math.ceil(guests.length / 4) * 8}rem`;
  return html`<div ref=${place} style=${{ minHeight: height }}>
    ${near && html`<ul class="cards" aria-label=${label}>
      ${guests.map((guest) => {
        const [cpu, used] = state.figures.get(`figures/${guest.host}`)?.guests[guest.uuid] || [];
        const stale = state.host.get(`host/${guest.host}`)?.state !== "connected";
        return html`<${Card} key=${`${guest.host}/${guest.uuid}`} guest=${guest} cpu=${cpu} memory=${used} stale=${stale} withHost=${withHost} />`;
      })}
    </ul>`}
  </div>`;
}

const byName = (one, other) => one.name.localeCompare(other.name, undefined, { numeric: true });

function matches(guest, words, wanted) {
  if (wanted && guest.state !== wanted) return false;
  const text = [guest.name, guest.title, guest.host, ...guest.tags].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

function grouped(guests, group, filtered) {
  const groups = new Map();
  if (group === "host" && !filtered) for (const host of state.host.values()) groups.set(host.name, []);
  for (const guest of guests) {
    const keys = group === "host" ? [guest.host] : group === "state" ? [STATES[guest.state]] : guest.tags.length ? guest.tags : ["No tag"];
    for (const key of keys) groups.set(key, [...(groups.get(key) || []), guest]);
  }
  return [...groups].sort(([one], [other]) => one.localeCompare(other, undefined, { numeric: true }));
}

function Group({ title, guests, group }) {
  const host = group === "host" && state.host.get(`host/${title}`);
  return html`<section class="group" aria-label=${`${host ? "Host" : "Group"} ${title}`} data-group=${title}>
    <header class="group-head">
      <h2>${host ? html`<a href=${hostLink(title)}>${title}</a>` : title} <span class="quiet count">${plural(guests.length, "guest")}</span></h2>
      ${host && html`<${HostFacts} host=${host} />`}
    </header>
    <${Cards} key=${group} guests=${guests} withHost=${group !== "host"} label=${`Guests of ${title}`} />
  </section>`;
}

export function Overview({ filter, setFilter }) {
  const { text, wanted, group } = filter;
  const guests = [...state.guest.values()];
  const words = useMemo(() => text.toLowerCase().split(/\s+/).filter(Boolean), [text]);
  const found = guests.filter((guest) => matches(guest, words, wanted)).sort(byName);
  const filtered = words.length > 0 || wanted !== "";
  const running = guests.filter((guest) => guest.state === "running").length;
  const away = [...state.host.values()].filter((host) => host.state === "unreachable").length;
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  return html`<h1 class="hidden">Hosts and guests</h1>
    <div class="tools" role="search">
      <label class="grow"><span class="hidden">Search guests by name, title, host or tag</span>
        <input id="search" type="search" placeholder="Search name, host, tag ( / )" value=${text} onInput=${set("text")} /></label>
      <label>State <select id="state" value=${wanted} onChange=${set("wanted")}>
        <option value="">All</option>
        ${Object.entries(STATES).map(([value, word]) => html`<option value=${value}>${word}</option>`)}</select></label>
      <label>Group by <select id="group" value=${group} onChange=${set("group")}>
        <option value="host">Host</option><option value="tag">Tag</option><option value="state">State</option></select></label>
    </div>
    <p class="summary" role="status">${filtered ? `${found.length} of ${plural(guests.length, "guest")}` : `${plural(state.host.size, "host")}, ${plural(guests.length, "guest")}, ${running} running`}${away > 0 && html`, <strong class="bad">${plural(away, "host")} unreachable</strong>`}</p>
    ${grouped(found, group, filtered).map(([title, members]) => html`<${Group} key=${`${group}/${title}`} title=${title} guests=${members} group=${group} />`)}
    ${filtered && !found.length && html`<p class="empty">No guest matches. <button onClick=${() => setFilter({ ...filter, text: "", wanted: "" })}>Show all</button></p>`}`;
}
