// What lies above the page: one dialog, one menu, and messages. Any part of the page opens them.

import { html, useEffect, useLayoutEffect, useReducer, useRef } from "/static/lib/htm/standalone.module.js";

const above = { dialog: null, menu: null, messages: [] };
let draw = () => {};
let number = 0;

export function openDialog(content) {
  above.menu = null;
  above.dialog = { content, number: ++number, from: document.activeElement };
  draw();
}

export function closeDialog() {
  const from = above.dialog?.from;
  above.dialog = null;
  draw();
  if (from?.isConnected) from.focus();
}

// `items`: {label, run, refusal, danger} or {heading}.
export function openMenu(anchor, label, items) {
  above.menu = { anchor, label, items, number: ++number };
  draw();
}

// Of the menu that is open there: what is known by now.
export function updateMenu(anchor, items) {
  if (above.menu?.anchor !== anchor) return;
  above.menu = { ...above.menu, items };
  draw();
}

export function tell(text, { bad = false, link = "", word = "" } = {}) {
  const message = { text, bad, link, word, number: ++number };
  above.messages = [...above.messages.slice(-3), message];
  draw();
  setTimeout(() => drop(message), bad ? 15000 : 6000);
}

function drop(message) {
  above.messages = above.messages.filter((each) => each !== message);
  draw();
}

export function Above() {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    draw = again;
  }, []);
  return html`${above.dialog && html`<${Frame} key=${above.dialog.number}>${above.dialog.content}<//>`}
    ${above.menu && html`<${Menu} key=${above.menu.number} menu=${above.menu} />`}
    <div class="messages" role="log" aria-live="polite" aria-label="Messages">${above.messages.map((message) => html`<p key=${message.number} class=${message.bad ? "message bad" : "message"}>
      <span>${message.text}${message.link && html` <a href=${message.link}>${message.word}</a>`}</span>
      <button class="plain" aria-label="Dismiss" onClick=${() => drop(message)}>✕</button></p>`)}</div>`;
}

function Frame({ children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    dialog.current.showModal();
  }, []);
  const outside = (event) => event.target === dialog.current && event.detail && closeDialog();
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${closeDialog} onMouseDown=${outside}><div class="dialog">${children}</div></dialog>`;
}

export function DialogTitle({ children }) {
  return html`<div class="dialog-head"><h2 id="dialog-title">${children}</h2><button type="button" class="plain" aria-label="Close" onClick=${closeDialog}>✕</button></div>`;
}

function Menu({ menu }) {
  const list = useRef(null);
  const close = () => {
    if (above.menu !== menu) return;
    above.menu = null;
    draw();
  };
  useLayoutEffect(() => {
    const place = menu.anchor.getBoundingClientRect();
    const own = list.current;
    own.showPopover();
    own.style.left = `${Math.max(8, Math.min(place.right - own.offsetWidth, innerWidth - own.offsetWidth - 8))}px`;
    const below = place.bottom + 4;
    own.style.top = `${below + own.offsetHeight < innerHeight ? below : Math.max(8, Math.min(place.top - own.offsetHeight - 4, innerHeight - own.offsetHeight - 8))}px`;
    own.querySelector("[role=menuitem]")?.focus();
  }, []);
  const keys = (event) => {
    const entries = [...list.current.querySelectorAll("[role=menuitem]")];
    const at = entries.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (event.key === "Tab") close();
    if (to === undefined) return;
    event.preventDefault();
    entries.at(to % entries.length)?.focus();
  };
  const choose = (item) => {
    if (item.refusal) return;
    list.current.hidePopover();
    menu.anchor.focus();
    item.run();
  };
  const toggled = (event) => event.newState === "closed" && close();
  return html`<div popover="auto" class="menu" role="menu" aria-label=${menu.label} ref=${list} onKeyDown=${keys} onToggle=${toggled}>
    ${menu.items.map((item) => item.line ? html`<hr />` : html`<button role="menuitem" class=${item.danger ? "danger" : ""} aria-disabled=${item.refusal ? "true" : "false"} tabindex="-1"
      onClick=${() => choose(item)}>${item.label}${item.refusal && html`<span class="reason">${item.refusal}</span>`}</button>`)}</div>`;
}
