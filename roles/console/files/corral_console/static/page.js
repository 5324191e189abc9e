// The page: login, routes, keys.

import { html, render, useEffect, useReducer, useState } from "/static/lib/htm/standalone.module.js";
import { ask, connect, disconnect, forget, state, subscribe } from "/static/server.js";
import { actionOf, active, readCatalogue, refusal } from "/static/actions.js";
import { Console } from "/static/consoles.js";
import { Guest, Host } from "/static/details.js";
import { openCreate } from "/static/create.js";
import { Images } from "/static/images.js";
import { Job, Jobs } from "/static/jobs.js";
import { openMigrate } from "/static/migrate.js";
import { Overview, choose } from "/static/overview.js";
import { Account, Audit, Users, places } from "/static/people.js";
import { setUser } from "/static/rights.js";
import { Above, DialogTitle, openDialog } from "/static/ui.js";
import { readable } from "/static/words.js";

const RETRY_MS = 1000;

function Login({ entered }) {
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await ask("/api/login", Object.fromEntries(new FormData(event.target)));
      await entered();
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  return html`<main class="login"><form class="panel" onSubmit=${submit} aria-labelledby="login-title">
    <h1 id="login-title"><img src="/static/icon.svg" alt="" width="28" height="28" /> corral.virt</h1>
    <label>User <input name="user" autocomplete="username" autocapitalize="none" required autofocus /></label>
    <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>
    <label>One-time code <span class="quiet">if you have one</span> <input name="code" inputmode="numeric" autocomplete="one-time-code" /></label>
    <p class="bad" role="alert">${problem}</p>
    <button class="primary" disabled=${busy}>Log in</button>
  </form></main>`;
}

function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const moved = () => {
      setRoute(read());
      window.scrollTo(0, 0);
      document.getElementById("main")?.focus({ preventScroll: true });
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return route;
}

function Route({ route, filter, setFilter, me, lost }) {
  const [kind, ...rest] = route;
  if (!state.known && ["guest", "host", "console"].includes(kind)) return html`<p class="quiet" role="status">Loading …</p>`;
  if (kind === "guest") return html`<${Guest} host=${rest[0]} uuid=${rest[1]} />`;
  if (kind === "host") return html`<${Host} key=${rest[0]} name=${rest[0]} />`;
  if (kind === "jobs" && rest[0]) return html`<${Job} key=${rest[0]} id=${rest[0]} />`;
  if (kind === "jobs") return html`<${Jobs} />`;
  if (kind === "images") return html`<${Images} />`;
  if (kind === "audit") return html`<${Audit} />`;
  if (kind === "users") return html`<${Users} />`;
  if (kind === "sessions") return html`<${Account} me=${me} lost=${lost} />`;
  if (kind === "console" && ["vnc", "serial"].includes(rest[1])) return html`<${Console} key=${rest.join("/")} uuid=${rest[0]} kind=${rest[1]} />`;
  if (kind === "") return html`<${Overview} filter=${filter} setFilter=${setFilter} />`;
  return html`<h1>No such page</h1><p class="empty">There is no page <code>${readable(route.join("/"))}</code>. <a href="#/">All hosts and guests</a></p>`;
}

function useServer(lost) {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const unsubscribe = subscribe(draw);
    const follow = () => (document.hidden ? disconnect() : state.ended || connect(lost)); // a browser has few connections to a server
    connect(lost);
    readCatalogue();
    document.addEventListener("visibilitychange", follow);
    document.addEventListener("keydown", onKey);
    return () => {
      unsubscribe();
      document.removeEventListener("visibilitychange", follow);
      document.removeEventListener("keydown", onKey);
    };
  }, []);
}

// Keys for those who do not want to reach for the mouse. Fields and consoles get theirs.
const KEYS = [["/", "Search"], ["j, k", "Next and previous guest"], ["Enter", "Open the guest"], ["x", "Choose the guest"], ["m", "Migrate"], [".", "All actions"], ["c", "Display"], ["n", "Create a guest"], ["g then h, j", "Go to hosts, jobs"], ["?", "This list"]];
let went = 0;

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  if (event.target.closest?.("input:not([type=checkbox]), select, textarea, dialog, .screen, [popover]")) return;
  const field = document.getElementById("search");
  const card = event.target.closest?.(".card") || document.querySelector(".card:focus-within");
  const guest = card && state.guest.get(`guest/${card.dataset.host}/${card.dataset.uuid}`);
  const to = (place) => (location.hash = place);
  const actions = {
    "/": () => field?.focus(),
    j: () => (Date.now() - went < 1000 ? to("#/jobs") : step(card, 1)),
    k: () => step(card, -1),
    h: () => Date.now() - went < 1000 && to("#/"),
    g: () => (went = Date.now()),
    n: () => actionOf("create") && openCreate(),
    "?": () => openDialog(html`<${DialogTitle}>Keys<//><dl class="keys">${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>`),
    x: () => guest && choose(guest.uuid),
    m: () => guest && !refusal("migrate", guest) && openMigrate([guest]),
    c: () => guest && to(`#/console/${guest.uuid}/vnc`),
    ".": () => card?.querySelector(".more").click(),
  };
  if (!actions[event.key] || ("xmc.".includes(event.key) && !card)) return;
  event.preventDefault();
  actions[event.key]();
}

function step(card, by) {
  const cards = [...document.querySelectorAll(".card")];
  const at = card ? cards.indexOf(card) + by : 0;
  const next = cards[Math.max(0, Math.min(cards.length - 1, at))]?.querySelector(".name");
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function Links({ route }) {
  const running = [...state.job.values()].filter((job) => active(job) && !job.check).length;
  const [here = ""] = route;
  const link = (place, word, more) => {
    const current = here === place || (place === "" && ["guest", "host"].includes(here));
    return html`<a href=${`#/${place}`} aria-current=${current ? "page" : undefined}>${word}${more}</a>`;
  };
  return html`<nav class="links" aria-label="Pages">${link("", "Hosts")}
    ${link("jobs", "Jobs", running > 0 && html` <span class="badge" aria-label=${`${running} running`}>${running}</span>`)}
    ${link("images", "Images")}${places().map(([place, word]) => link(place, word))}</nav>`;
}

// What is wrong with the server, on each page: one banner.
function Problems() {
  const problems = [...state.server.values()].flatMap((each) => each.problems);
  return problems.length > 0 && html`<div class="problem banner" role="alert" id="server-problems">${problems.map((each) => html`<p key=${each}>${readable(each)}</p>`)}</div>`;
}

function Page({ me, lost }) {
  useServer(lost);
  const route = useRoute();
  const [filter, setFilter] = useState({ text: "", wanted: "", group: "host", tag: "" });
  const leave = async () => {
    await ask("/api/logout", {}).catch(() => null);
    lost();
  };
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" width="24" height="24" /> corral.virt</a>
      <${Links} route=${route} />
      <span class="live" role="status">${state.connected ? html`<span class="state connected">Live</span>` : html`<span class="state unreachable">${state.ended ? "Not live" : "Not connected"}</span>`}</span>
      <nav class="account" aria-label="Account"><a href="#/sessions">${me.user}</a> <button onClick=${leave}>Log out</button></nav>
    </header>
    <${Problems} />
    <main id="main" tabindex="-1">${state.ended && html`<p class="problem" role="alert">${state.ended} <button onClick=${() => connect(lost)}>Make it live</button></p>`}<${Route} route=${route} filter=${filter} setFilter=${setFilter} me=${me} lost=${lost} /><${Above} /></main>
    <span id="drag-picture" aria-hidden="true"></span>`;
}

function Whole() {
  const [me, setMe] = useState(undefined);
  const entered = () => ask("/api/me").then((found) => {
    setUser(found);
    setMe(found.user ? found : null);
  });
  const lost = () => {
    forget();
    setMe(null);
  };
  const [problem, setProblem] = useState("");
  const begin = () => entered().catch((error) => {
    const lasts = error.status >= 400 && error.status < 500;
    setProblem(lasts ? error.message : `${error.message}; trying again …`);
    if (!lasts) setTimeout(begin, RETRY_MS);
  });
  useEffect(() => {
    begin();
  }, []);
  if (me === undefined) return html`<p class="quiet" role="status">${problem || "Loading …"}</p>`;
  return me ? html`<${Page} me=${me} lost=${lost} />` : html`<${Login} entered=${entered} />`;
}

render(html`<${Whole} />`, document.body);
