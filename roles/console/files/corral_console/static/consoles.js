// A guest's display or serial console: it comes back by itself where the guest runs, also on another host.

import { html, useEffect, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { ask, state } from "/static/server.js";
import { guestLink, shown } from "/static/words.js";

const ENDED = 4000;
const LASTING = [4404, 4429]; // what trying again does not change: no such console, too many of them
const ATTEMPTS = 12;
const STABLE_MS = 10000;
const ANSWER_MS = 20000; // a QEMU that hangs takes connections and says nothing

const runningGuest = (uuid) => [...state.guest.values()].find((guest) => guest.uuid === uuid && (guest.state === "running" || guest.state === "paused"));

// A view of a console, made when the server has said "ok": what follows belongs to it. Rejects with the server's reason.
async function opened(uuid, kind, takeOver, show) {
  const { ticket, host } = await ask("/api/tickets", { uuid, kind, take_over: takeOver });
  const socket = new WebSocket(`wss://${location.host}/api/console?ticket=${encodeURIComponent(ticket)}`);
  socket.binaryType = "arraybuffer";
  const view = await new Promise((done, failed) => {
    socket.onmessage = () => done(show(socket));
    socket.onclose = (event) => failed(Object.assign(new Error(event.reason || "the connection was refused"), { code: event.code }));
  });
  return { view, host };
}

// Libraries come first: a message that arrives while one is loaded would be lost.
async function displays() {
  const { default: RFB } = await import("/static/lib/novnc/core/rfb.js");
  return (place, socket, closed) =>
    new Promise((done, failed) => {
      place.replaceChildren();
      const rfb = new RFB(place, socket, { shared: true });
      rfb.scaleViewport = true;
      rfb.background = "#000";
      let gone = false;
      const view = {
        end: () => gone || rfb.disconnect(),
        focus: () => rfb.focus(),
        ctrlAltDel: () => rfb.sendCtrlAltDel(),
        viewOnly: (value) => (rfb.viewOnly = value),
        type: (text) => typeText(rfb, text),
      };
      const silent = setTimeout(() => {
        failed(new Error("the display does not answer"));
        view.end();
      }, ANSWER_MS);
      rfb.addEventListener("connect", () => {
        clearTimeout(silent);
        done(view);
      });
      rfb.addEventListener("disconnect", () => {
        clearTimeout(silent);
        gone = true;
        failed(new Error("the display was closed"));
        closed();
      });
    });
}

// Keys as on a US keyboard, which the guest must have; others as their Unicode keysym.
const SHIFTED = /[A-Z~!@#$%^&*()_+{}|:"<>?]/;
const SHIFT = 0xffe1;
const NAMED = { "\n": 0xff0d, "\t": 0xff09 };

async function typeText(rfb, text) {
  for (const letter of text.replace(/\r\n?/g, "\n")) {
    const point = letter.codePointAt(0);
    const keysym = NAMED[letter] || (point < 0x100 ? point : 0x01000000 + point);
    const shift = SHIFTED.test(letter);
    if (shift) rfb.sendKey(SHIFT, "ShiftLeft", true);
    rfb.sendKey(keysym, null, true);
    rfb.sendKey(keysym, null, false);
    if (shift) rfb.sendKey(SHIFT, "ShiftLeft", false);
    await new Promise((done) => setTimeout(done, 15)); // a guest's keyboard controller holds few keys
  }
}

async function serials() {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("/static/lib/xterm/xterm.mjs"), import("/static/lib/xterm-fit/addon-fit.mjs")]);
  styleByScript();
  return (place, socket, closed) => {
    place.replaceChildren();
    const terminal = new Terminal({ cursorBlink: true, screenReaderMode: true, scrollback: 5000 });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(place);
    fit.fit();
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(place);
    let viewOnly = false;
    const send = (bytes) => !viewOnly && socket.readyState === WebSocket.OPEN && socket.send(bytes);
    const sendText = (text) => send(new TextEncoder().encode(text));
    terminal.onData(sendText);
    terminal.onBinary((text) => send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    socket.onmessage = (event) => terminal.write(new Uint8Array(event.data));
    socket.onclose = closed;
    return {
      end: () => {
        observer.disconnect();
        socket.onclose = null;
        socket.close();
        terminal.dispose();
      },
      focus: () => terminal.focus(),
      viewOnly: (value) => (viewOnly = value),
      type: (text) => sendText(text.replace(/\r?\n/g, "\r")),
    };
  };
}

// xterm.js writes style elements and style attributes, which the page's policy forbids; from a script they are allowed.
let styled = false;

function styleByScript() {
  if (styled) return;
  styled = true;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => (name === "style" ? sheetElement(create) : create(name, options));
  const set = Element.prototype.setAttribute;
  HTMLSpanElement.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else set.call(this, name, value);
  };
}

function sheetElement(create) {
  const element = create("template");
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", { set: (text) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

// Keeps one console open in `place` until it is ended.
class Keeper {
  constructor(uuid, kind, place, tell) {
    Object.assign(this, { uuid, kind, place, tell, attempts: 0, ended: false, view: null });
  }

  async open(takeOver = false) {
    clearTimeout(this.timer);
    this.tell({ status: "Connecting …", busy: true });
    let since = Infinity; // until it is up, a failure is told by the rejection alone
    try {
      const show = await (this.kind === "vnc" ? displays() : serials());
      const made = (socket) => {
        this.view?.end(); // what it has shown last was left to read
        return show(this.place, socket, () => this.closed(since));
      };
      const { view, host } = await opened(this.uuid, this.kind, takeOver, made);
      if (this.ended) return view.end();
      since = Date.now();
      this.view = view;
      this.tell({ status: `Connected, on ${host}`, host, up: true });
      view.focus();
    } catch (error) {
      this.failed(error);
    }
  }

  closed(since) {
    if (this.ended || since === Infinity) return;
    if (Date.now() - since > STABLE_MS) this.attempts = 0;
    this.again("The console was closed");
  }

  failed(error) {
    const inUse = Boolean(error.code) && error.code !== ENDED && /in use/.test(error.message);
    const waits = error.status === 409 && !/not set up/.test(error.message); // for the guest to run
    if (inUse || LASTING.includes(error.code) || (error.status >= 400 && error.status < 500 && !waits)) {
      this.tell({ status: error.message, inUse });
    } else {
      this.again(error.message);
    }
  }

  again(reason) {
    if (this.attempts >= ATTEMPTS) return this.tell({ status: reason });
    const running = runningGuest(this.uuid);
    if (running) this.attempts += 1; // a guest that is off is waited for
    this.tell({ status: running ? `${reason}; connecting again …` : "Waiting for the guest to run …", busy: true });
    this.timer = setTimeout(() => (runningGuest(this.uuid) ? this.open() : this.again(reason)), Math.min(400 * 1.6 ** this.attempts, 8000));
  }

  anew(takeOver) {
    this.attempts = 0;
    this.open(takeOver);
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
    this.view?.end();
  }
}

export function Console({ uuid, kind }) {
  const place = useRef(null);
  const dialog = useRef(null);
  const keeper = useRef(null);
  const [told, setTold] = useState({ status: "" });
  const [viewOnly, setViewOnly] = useState(false);
  useEffect(() => {
    keeper.current = new Keeper(uuid, kind, place.current, setTold);
    keeper.current.open();
    return () => keeper.current.end();
  }, [uuid, kind]);
  useEffect(() => keeper.current.view?.viewOnly(viewOnly), [viewOnly, told.up]);
  const guest = runningGuest(uuid) || [...state.guest.values()].find((each) => each.uuid === uuid);
  const paste = (event) => {
    if (event.target.returnValue === "send") keeper.current.view?.type(event.target.querySelector("textarea").value);
    event.target.querySelector("textarea").value = "";
    keeper.current.view?.focus();
  };
  const name = guest ? shown(guest.name) : "guest";
  return html`<div class="title"><h1>${guest ? html`<a href=${guestLink(guest)}>${name}</a>` : name}: ${kind === "vnc" ? "display" : "serial console"}</h1>
      <span role="status" id="console-status" data-up=${told.up ? "yes" : "no"} data-host=${told.host || ""}>${told.status}</span>
      <span class="buttons">
        ${told.inUse && html`<button class="primary" onClick=${() => keeper.current.anew(true)}>Take over</button>`}
        ${!told.up && !told.busy && html`<button onClick=${() => keeper.current.anew(false)}>Connect</button>`}
        ${kind === "vnc" && html`<button disabled=${!told.up || viewOnly} onClick=${() => keeper.current.view.ctrlAltDel()}>Ctrl-Alt-Del</button>`}
        <button disabled=${!told.up || viewOnly} onClick=${() => dialog.current.showModal()}>Paste as keys</button>
        <button aria-pressed=${viewOnly ? "true" : "false"} onClick=${() => setViewOnly(!viewOnly)}>View only</button>
        <button onClick=${() => place.current.requestFullscreen()}>Full screen</button>
        <a class="button" target="_blank" href=${`#/console/${uuid}/${kind}`}>Own window</a>
      </span></div>
    <div class="screen" ref=${place} role="application" aria-label=${`${kind === "vnc" ? "Display" : "Serial console"} of ${name}`}></div>
    <dialog ref=${dialog} onClose=${paste} aria-labelledby="paste-title"><form method="dialog"><h2 id="paste-title">Paste as keys</h2>
      <p>The guest gets each character as a key of a US keyboard.</p>
      <label>Text <textarea></textarea></label>
      <p><button class="primary" value="send">Send</button> <button value="no">Cancel</button></p></form></dialog>`;
}
