// Jobs: what was done, by whom, and what is done now, with its log.

import { html, useEffect, useRef, useState } from "/static/lib/htm/standalone.module.js";
import { ask, keepJob, state } from "/static/server.js";
import { actionOf, active, again, cancel, label } from "/static/actions.js";
import { SURE } from "/static/forms.js";
import { Table } from "/static/parts.js";
import { Plan } from "/static/plan.js";
import { DialogTitle, closeDialog, openDialog } from "/static/ui.js";
import { STATES, ago, duration, guestLink, hostLink, readable, shown } from "/static/words.js";

function JobState({ job }) {
  const words = { waiting: "Waiting", running: "Running", succeeded: job.changed === false ? "Done, nothing to change" : "Done", failed: "Failed", cancelled: "Cancelled", lost: "Lost", unreadable: "Unreadable" };
  return html`<span class=${`state job-${job.state}`} data-job-state=${job.state}>${words[job.state] || job.state}</span>`;
}

const took = (job) => (job.started ? duration((job.ended || Date.now() / 1000) - job.started) : "");

function Objects({ job }) {
  const guests = (job.guests || []).map((guest) => {
    const live = [...state.guest.values()].find((each) => each.uuid === guest.uuid);
    return live ? html`<a href=${guestLink(live)}>${shown(guest.name)}</a>` : shown(guest.name);
  });
  const hosts = (job.hosts || []).map((name) => html`<a href=${hostLink(name)}>${name}</a>`);
  const goal = job.to || job.arguments?.to;
  const about = guests.length ? guests : job.creates ? [shown(job.creates)] : null;
  const to = about && goal && html` → ${goal}`;
  return html`${(about || (hosts.length ? hosts : ["all hosts"])).map((each, index) => html`${index > 0 && ", "}${each}`)}${to}`;
}

function jobRows(jobs) {
  return jobs.map((job) => [
    html`<span title=${new Date(job.created * 1000).toLocaleString()}>${ago(job.created)}</span>`,
    html`<a href=${`#/jobs/${job.id}`}>${label(job.action)}${job.check ? " (check)" : ""}</a>`,
    html`<${Objects} job=${job} />`, job.user, html`<${JobState} job=${job} />${job.error && html`<div class="cut quiet why" title=${readable(job.error)}>${readable(job.error).split("\n", 1)[0]}</div>`}`, took(job),
  ]);
}

const JOB_COLUMNS = ["When", "Job", "Of", "User", "State", "Took"];

// Jobs of the past are asked for; those of the present come by themselves, and count where both are known.
function useJobs(query) {
  const [asked, setAsked] = useState({ jobs: [], more: true });
  const [problem, setProblem] = useState("");
  const read = async (before, known) => {
    try {
      const found = await ask(`/api/jobs?limit=50${query}${before ? `&before=${encodeURIComponent(before)}` : ""}`);
      const jobs = found.jobs || found;
      setAsked({ jobs: [...known, ...jobs], more: jobs.length === 50 });
    } catch (error) {
      setProblem(error.message);
    }
  };
  useEffect(() => {
    setAsked({ jobs: [], more: true });
    read("", []);
  }, [query]);
  const more = () => read(asked.jobs.at(-1)?.id, asked.jobs);
  return { jobs: asked.jobs, more: asked.more && asked.jobs.length > 0 && more, problem };
}

const newestFirst = (one, other) => other.created - one.created;

function merged(jobs, fits) {
  const all = new Map(jobs.map((job) => [job.id, job]));
  for (const job of state.job.values()) if (fits(job) && !(all.get(job.id)?.sequence > job.sequence)) all.set(job.id, job);
  return [...all.values()].sort(newestFirst);
}

export function Jobs() {
  const [wanted, setWanted] = useState("");
  const [checks, setChecks] = useState(false);
  const { jobs, more, problem } = useJobs(wanted ? `&state=${wanted}` : "");
  const listed = merged(jobs, (job) => !wanted || job.state === wanted).filter((job) => checks || !job.check);
  return html`<div class="title"><h1>Jobs</h1></div>
    <div class="tools"><label>State <select id="job-state" value=${wanted} onChange=${(event) => setWanted(event.target.value)}>
        <option value="">All</option>${["running", "waiting", "succeeded", "failed", "cancelled", "lost", "unreadable"].map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label><input type="checkbox" checked=${checks} onChange=${(event) => setChecks(event.target.checked)} /> Show checks</label></div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <${Table} title="All jobs" empty="No jobs." columns=${JOB_COLUMNS} rows=${jobRows(listed)} />
    ${more && html`<p><button onClick=${more}>Show older</button></p>`}`;
}

export function JobsOf({ query, fits }) {
  const { jobs } = useJobs(query);
  const listed = merged(jobs, fits).filter((job) => !job.check).slice(0, 20);
  return html`<${Table} title="Jobs" empty="No jobs." columns=${JOB_COLUMNS} rows=${jobRows(listed)} />`;
}

function Log({ job }) {
  const [lines, setLines] = useState([]);
  const place = useRef(null);
  const follows = useRef(true);
  const running = active(job);
  useEffect(() => {
    let current = true;
    let timer = 0;
    let since = 0;
    const read = async (last) => {
      const found = await ask(`/api/jobs/${job.id}/log?since=${since}`).catch((error) => ({ lines: [], status: error.status }));
      if (!current || (found.status >= 400 && found.status < 500)) return;
      if (found.lines.length) {
        since = found.next;
        setLines((known) => [...known, ...found.lines.map(readable)]);
      }
      const live = state.job.get(job.id) || job;
      if (found.lines.length || active(live) || !last) timer = setTimeout(() => read(!active(live)), active(live) ? 700 : 100);
    };
    read(false);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [job.id]);
  useEffect(() => {
    if (follows.current && place.current) place.current.scrollTop = place.current.scrollHeight;
  }, [lines.length]);
  const scrolled = () => (follows.current = place.current.scrollTop + place.current.clientHeight > place.current.scrollHeight - 30);
  return html`<section class="panel"><h2>Log</h2><pre class="log" ref=${place} tabindex="0" role="log" aria-label="Log" onScroll=${scrolled}>${lines.join("\n")}${!lines.length && (running ? "Nothing yet." : "Empty.")}</pre></section>`;
}

function Again({ job }) {
  const run = (event) => {
    event.preventDefault();
    closeDialog();
    again(job);
  };
  const name = label(job.action);
  return html`<form onSubmit=${run}><${DialogTitle}>${name} again: <${Objects} job=${job} /><//>
    <p>${SURE[job.action] || "A new job is made, with the same arguments and with your rights."}</p>
    <div class="dialog-foot"><button type="button" onClick=${closeDialog}>Cancel</button>
      <button class=${actionOf(job.action)?.destructive ? "primary danger" : "primary"} autofocus>${name}</button></div></form>`;
}

// What a job that did not come to its end has made, as far as it is there.
function Left({ job }) {
  const begun = ["cancelled", "lost"].includes(job.state) || (job.state === "failed" && /already done/.test(job.error));
  const guest = job.action === "create" && !job.check && begun && [...state.guest.values()].find((each) => each.name === job.creates);
  if (!guest) return null;
  return html`<p class="notice" role="status">It left the guest <a href=${guestLink(guest)}>${shown(guest.name)}</a> on ${guest.host} (${STATES[guest.state] || guest.state}). Change what was wrong with it and start it, or purge it.</p>`;
}

export function Job({ id }) {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setProblem("");
    ask(`/api/jobs/${encodeURIComponent(id)}`).then(keepJob, (error) => setProblem(error.message));
  }, [id, state.job.get(id)?.state]);
  const job = state.job.get(id);
  if (!job) return html`<h1>Job</h1>${problem ? html`<p class="problem" role="alert">${problem}</p>` : html`<p class="quiet" role="status">Loading …</p>`}`;
  const values = Object.entries(job.arguments || {}).filter(([name]) => name !== "guest");
  return html`<nav class="path" aria-label="Path"><a href="#/jobs">Jobs</a></nav>
    <div class="title"><h1>${label(job.action)}${job.check ? " (check)" : ""} <${Objects} job=${job} /></h1><${JobState} job=${job} />
      <span class="buttons">${active(job) ? html`<button onClick=${() => cancel(job)}>Cancel</button>` : html`<button onClick=${() => (job.check ? again(job) : openDialog(html`<${Again} job=${job} />`))}>Run again</button>`}</span></div>
    <p class="quiet">${job.user}, ${new Date(job.created * 1000).toLocaleString()}${job.started && `, ${took(job)}`}</p>
    ${job.error && html`<p class="problem" role="alert">${readable(job.error)}</p>`}
    <${Left} job=${job} />
    ${job.omitted?.length > 0 && html`<p class="notice">Left out, because no job can name them: ${job.omitted.map(shown).join(", ")}. Rename them on their host: <code>virsh domrename</code></p>`}
    ${(job.report?.length > 0 || job.plan) && html`<section class="panel"><h2>${job.check ? "What it would do" : "What was done"}</h2><${Plan} job=${job} /></section>`}
    ${values.length > 0 && html`<section class="panel"><h2>Arguments</h2><dl class="facts">${values.map(([name, value]) => html`<div><dt>${name}</dt><dd><code>${readable(typeof value === "string" ? value : JSON.stringify(value))}</code></dd></div>`)}</dl></section>`}
    <${Log} key=${job.id} job=${job} />`;
}
