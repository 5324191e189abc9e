// The page: login, routes, keys.

import { html, render, useEffect, useReducer, useState } from "/static/lib/htm/standalone.module.js";
import { ask, connect, disconnect, forget, state, subscribe } from "/static/server.js";
import { Overview } from "/static/overview.js";
import { Guest, Host, Sessions } from "/static/details.js";
import { Console } from "/static/consoles.js";

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

function Route({ route, me, filter, setFilter, lost }) {
  const [kind, ...rest] = route;
  if (kind === "guest") return html`<${Guest} host=${rest[0]} uuid=${rest[1]} may=${me.may} />`;
  if (kind === "host") return html`<${Host} name=${rest[0]} />`;
  if (kind === "sessions") return html`<${Sessions} lost=${lost} />`;
  if (kind === "console") return html`<${Console} key=${rest.join("/")} uuid=${rest[0]} kind=${rest[1]} />`;
  return html`<${Overview} filter=${filter} setFilter=${setFilter} />`;
}

function useServer(lost) {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const unsubscribe = subscribe(draw);
    const follow = () => (document.hidden ? disconnect() : connect(lost)); // a browser has few connections to a server
    const focus = (event) => {
      const field = document.getElementById("search");
      if (event.key !== "/" || !field || event.target.matches("input, select, textarea")) return;
      event.preventDefault();
      field.focus();
    };
    connect(lost);
    document.addEventListener("visibilitychange", follow);
    document.addEventListener("keydown", focus);
    return () => {
      unsubscribe();
      document.removeEventListener("visibilitychange", follow);
      document.removeEventListener("keydown", focus);
    };
  }, []);
}

function Page({ me, lost }) {
  useServer(lost);
  const route = useRoute();
  const [filter, setFilter] = useState({ text: "", wanted: "", group: "host" });
  const leave = async () => {
    await ask("/api/logout", {}).catch(() => null);
    lost();
  };
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" width="24" height="24" /> corral.virt</a>
      <span class="live" role="status">${state.connected ? html`<span class="state connected">Live</span>` : html`<span class="state unreachable">Not connected</span>`}</span>
      <nav aria-label="Account"><a href="#/sessions">${me.user}</a> <button onClick=${leave}>Log out</button></nav>
    </header>
    <main id="main" tabindex="-1"><${Route} route=${route} me=${me} filter=${filter} setFilter=${setFilter} lost=${lost} /></main>`;
}

function Whole() {
  const [me, setMe] = useState(undefined);
  const entered = () => ask("/api/me").then((found) => setMe(found.user ? found : null));
  const lost = () => {
    forget();
    setMe(null);
  };
  useEffect(() => {
    entered().catch(() => setMe(null));
  }, []);
  if (me === undefined) return html`<p class="quiet" role="status">Loading …</p>`;
  return me ? html`<${Page} me=${me} lost=${lost} />` : html`<${Login} entered=${entered} />`;
}

render(html`<${Whole} />`, document.body);
