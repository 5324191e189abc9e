// What was used in the last hour or day. The library is loaded where graphs are shown.

import { html, useEffect, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { useAnswer } from "/static/parts.js";
import { bytes } from "/static/words.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The page's colours are light-dark() pairs, which a canvas does not resolve.
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = colour(name);
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function options(title, labels, unit, width) {
  const [line, other, quiet, track] = ["--fill", "--warn", "--quiet", "--track"].map(resolved);
  const words = unit === "%" ? (value) => `${Math.round(value)} %` : (value) => `${bytes(value)}/s`;
  const axis = { stroke: quiet, grid: { stroke: track, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const value = (_plot, each) => (each === null || each === undefined ? "–" : words(each));
  return {
    width, height: 150, title: "", cursor: { drag: { x: false, y: false }, points: { size: 6 } }, legend: { live: true },
    scales: { y: { range: unit === "%" ? [0, 100] : (_plot, _low, high) => [0, Math.max(high * 1.1, 1024)] } },
    axes: [{ ...axis, size: 28, values: (_plot, marks) => marks.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })) }, { ...axis, size: 76, values: (_plot, marks) => marks.map(words) }],
    series: [{ label: "Time", value: (_plot, at) => (at ? new Date(at * 1000).toLocaleTimeString() : "–") }, ...labels.map((label, index) => ({ label, stroke: index ? other : line, width: 2, points: { show: false }, value, fill: labels.length === 1 ? `color-mix(in srgb, ${line} 18%, transparent)` : undefined }))],
  };
}

function Graph({ title, labels, columns, unit }) {
  const place = useRef(null);
  useEffect(() => {
    let plot = null;
    let gone = false;
    const draw = async () => {
      const { default: Plot } = await import("/static/lib/uplot/uPlot.esm.js");
      if (gone) return;
      plot?.destroy();
      plot = new Plot(options(title, labels, unit, place.current.clientWidth), columns, place.current);
    };
    draw();
    const resized = new ResizeObserver(() => plot?.setSize({ width: place.current.clientWidth, height: 150 }));
    resized.observe(place.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      gone = true;
      resized.disconnect();
      dark.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [columns]);
  const last = columns.slice(1).map((column) => column.findLast((value) => value !== null));
  const words = (value) => (value === undefined ? "unknown" : unit === "%" ? `${Math.round(value)} %` : `${bytes(value)}/s`);
  const summary = labels.map((label, index) => `${label} ${words(last[index])}`).join(", ");
  return html`<figure class="graph"><figcaption>${title}</figcaption><div ref=${place} role="img" aria-label=${`${title}; last: ${summary}`}></div></figure>`;
}

const GRAPHS = [
  ["CPU", ["CPU"], ["cpu"], "%"],
  ["Memory", ["Memory"], ["memory"], "%"],
  ["Disk", ["Read", "Written"], ["read", "written"], "B"],
  ["Network", ["Received", "Sent"], ["received", "sent"], "B"],
];

export function Graphs({ path }) {
  const [span, setSpan] = useState("hour");
  const [again, setAgain] = useState(0);
  const answer = useAnswer(`${path}?span=${span}`, again);
  useEffect(() => {
    const timer = setInterval(() => setAgain((count) => count + 1), 30000);
    return () => clearInterval(timer);
  }, []);
  const found = answer.value;
  const shown = found ? GRAPHS.filter(([, , names]) => names.some((name) => found[name].some((value) => value !== null))) : [];
  return html`<section class="panel"><div class="title"><h2>History</h2><span class="buttons" role="group" aria-label="Span">${["hour", "day"].map((each) => html`<button aria-pressed=${span === each ? "true" : "false"} onClick=${() => setSpan(each)}>Last ${each}</button>`)}</span></div>
    ${answer.problem && html`<p class="problem">${answer.problem}</p>`}
    ${found && !shown.length && html`<p class="quiet">Nothing was measured yet.</p>`}
    <div class="graphs">${shown.map(([title, labels, names, unit]) => html`<${Graph} key=${title} title=${title} labels=${labels} unit=${unit} columns=${columnsOf(found, names)} />`)}</div></section>`;
}

const known = new WeakMap();

// The same columns for the same answer, so that a graph is drawn anew only for news.
function columnsOf(found, names) {
  if (!known.has(found)) known.set(found, new Map());
  const made = known.get(found);
  const key = names.join();
  if (!made.has(key)) made.set(key, [found.at, ...names.map((name) => found[name])]);
  return made.get(key);
}
