/* The view of one job: its sentence, its tabs, and what may be done with it. */

function draw_sentence(job) {
  const why = model.why.get(job.job), failure = job.failure && job.state !== "running" && job.state !== "succeeded" ? job.failure : null;
  const sentence = why && why.sentence ? why.sentence : job.reason;
  const kind = job.state === "failed" || job.stall ? "bad" : job.state === "running" || job.state === "succeeded" ? "" : "wait";
  const tail = failure ? failure.stderr_tail : [];
  return h("div", {class: "why " + kind, key: "why"},
    sentence ? h("p.sentence", plain(sentence)) : null,
    notes_of(job).filter((n) => n !== sentence && n !== job.reason).map((n) => h("p.note", n)),
    job.last_restart.map((text) => h("p.restart", "last restart: " + plain(text))),
    job.not_restarted ? h("p.note", plain(job.not_restarted)) : null,
    tail.length ? h("pre.tail", tail.map(plain).join("\n")) : null,
    why && why.details ? h("details", h("summary", "evidence"), h("pre", plain(why.details))) : null,
    why && why.next ? h("p.next", h("code", plain(why.next.trim()))) : null);
}

const back_button = () => h("button.back", {type: "button", "data-act": "back", "aria-label": "Back to the list"}, "‹");

function draw_head(job) {
  const p = job.progress, ended = ENDED.has(job.state), facts = [];
  const fact = (name, value) => value && facts.push(h("div", {key: name}, h("dt", name), h("dd", value)));
  fact("loss", metric_of(job, "loss"));
  fact("val loss", metric_of(job, "val_loss"));
  fact("best val", p && p.has_best_val ? number(p.best_val) + " at " + count(p.best_val_step) : "");
  fact("speed", ended ? "" : speed_of(job));
  fact("left", eta_of(job));
  fact(ended ? "took" : "runs for", job.started_ms ? span((job.ended_ms || Date.now()) - job.started_ms) : "");
  fact("ranks", job.ranks_wanted ? job.ranks_present + " of " + job.ranks_wanted : job.world_size || "");
  fact("generation", job.generation || "");
  fact("restarts", job.restarts_used ? job.restarts_used + " of " + job.max_restarts : "");
  return [h("div.head", {key: "head"},
    back_button(),
    h("h2", h("span.id", "#" + job.job), " ", plain(job.name)), state_badge(job.state),
    h("span.sub", plain([job.user, job.nodes.join(" + ")].filter(Boolean).join(" · "))),
    h("span.actions",
      ended ? null : order_button(job, "cancel", "Cancel job", "danger"),
      ended && job.kind === "train" ? order_button(job, "resume", "Resume") : null)),
  h("div.numbers", {key: "numbers"}, p ? draw_bar(p) : null, facts.length ? h("dl", facts) : null)];
}

/* Users may change their own jobs, operators all jobs, and others none. */
function order_button(job, act, label, kind) {
  const {who} = model;
  if (who && who.role === "view") return null;
  if (!who || who.role === "operate" || who.name === job.user) return button(act, label, kind);
  return h(kind ? "button." + kind : "button", {type: "button", disabled: true, title: "Only " + plain(job.user) + " or an operator may do this. You are " + plain(who.name) + "."}, label);
}

function draw_tabs() {
  return h("div.tabs", {role: "tablist", "aria-label": "Views of the job", key: "tabs"}, TABS.map((tab) =>
    h("button", {type: "button", role: "tab", id: "tab-" + tab, "aria-controls": "panel", "aria-selected": view.tab === tab ? "true" : "false",
      tabindex: view.tab === tab ? "0" : "-1", "data-act": "tab", "data-tab": tab}, tab)));
}

/* The rank that computes longest, if it takes 10 % longer than the middle one: [rank, part]. */
function slowest_rank(ranks) {
  const busy = ranks.map((r) => [r.rank, r.ms_per_step - r.wait_ms]).filter(([, ms]) => ms > 0).sort((a, b) => a[1] - b[1]);
  if (busy.length < 2 || busy.length < ranks.length) return null;
  const [rank, most] = busy.at(-1), middle = busy[(busy.length - 1) >> 1][1];
  return most > middle * 1.1 ? [rank, most / middle - 1] : null;
}

function draw_ranks(job) {
  if (!job.ranks.length) return h("p.empty", "The job has no ranks at present.");
  const slow = slowest_rank(job.ranks), most = Math.max(...job.ranks.map((r) => r.ms_per_step), 1e-9);
  const bar = (r) => h("span.split", {title: number(r.ms_per_step - r.wait_ms) + " ms computing, " + number(r.wait_ms) + " ms waiting"},
    h("span.compute", {css: {width: (Math.max(0, r.ms_per_step - r.wait_ms) / most) * 100 + "%"}}), h("span.waiting", {css: {width: (Math.min(r.wait_ms, r.ms_per_step) / most) * 100 + "%"}}));
  return [h("div.scroll", h("table.ranks",
    h("caption.hidden", "Ranks of job " + job.job),
    h("thead", h("tr", ["Rank", "Node", "Device", "State", "Step", "ms/step", "", "Wait ms", "CPU", "GPU", "Memory", "PID", ""].map((t) => h("th", {scope: "col", class: /Step|ms|PU|Memory|PID|Rank/.test(t) ? "num" : ""}, t)))),
    h("tbody", job.ranks.map((r) => h("tr", {key: r.rank},
      h("th", {scope: "row", class: "num"}, h("a", {href: "#/job/" + job.job + "/logs?rank=" + r.rank, title: "its logs"}, r.rank)), h("td", plain(r.node)), h("td", plain(r.device)),
      h("td", r.state), h("td.num", r.step ? count(r.step) : ""), h("td.num", r.ms_per_step ? number(r.ms_per_step) : ""),
      h("td", r.ms_per_step ? bar(r) : null), h("td.num", r.ms_per_step ? number(r.wait_ms) : ""), h("td.num", r.usage ? number(r.usage.cpu) : ""),
      h("td.num", r.usage && r.usage.gpus ? Math.round(r.usage.gpu_utilisation * 100) + " %" : ""), h("td.num", bytes(r.memory_bytes || (r.usage ? r.usage.memory_bytes : 0))),
      h("td.num", r.pid || ""), h("td.text", slow && slow[0] === r.rank ? h("b.slow", "slowest: +" + Math.round(slow[1] * 100) + " %") : null, plain(r.detail))))))),
    job.ranks.some((r) => r.ms_per_step) ? h("p.key", h("span.box.compute"), " computing ", h("span.box.waiting"), " waiting for other ranks") : null];
}

function draw_logs(job) {
  const {logs} = model, ranks = job.ranks.length ? job.ranks.map((r) => r.rank) : [...Array(job.world_size).keys()];
  return [h("form.controls", {key: "controls"},
    h("label", "rank ", h("select", {"data-set": "rank", value: view.rank}, h("option", {value: ""}, "all"), ranks.map((r) => h("option", {value: String(r)}, r)))),
    h("label", "grep ", h("input", {type: "search", value: view.grep, "data-set": "grep", placeholder: "regular expression", spellcheck: "false"})),
    h("label", h("input", {type: "checkbox", checked: follows_log, "data-follow": "1"}), " follow"),
    h("span.state", logs.complete !== null && logs.job === job.job ? count(logs.lines.length) + (logs.lines.length === 1 ? " line" : " lines") : "")),
  logs.error ? h("p.error", {key: "error"}, plain(logs.error)) : null,
  logs.complete === false ? h("p.note", {key: "missing"}, "Output is missing. ", button("logs", "Ask again")) : null,
  logs.notes.map((note, i) => h("p.note", {key: "note" + i}, plain(note))),
  h("div.log", {key: "log", id: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output"}, logs.job !== job.job ? null
    : logs.lines.length ? logs.lines.map((line) => h("div", {class: line.stderr ? "line err" : "line"},
      h("span", {class: "rank k" + (line.rank % 7), title: line.stderr ? "standard error" : "standard output"}, "[" + line.rank + "]" + (line.stderr ? "!" : " ")),
      h("span.text", (line.shown ??= plain(line.text))))) : h("p.empty", logs.complete ? "No output." : ""))];
}
let follows_log = true;

function draw_events(job) {
  const events = [...(model.events.get(job.job) || [])].reverse();
  if (!events.length) return h("p.empty", "No events.");
  return h("div.scroll", h("table.events", h("caption.hidden", "Events of job " + job.job + ", the newest first"),
    h("thead", h("tr", ["Time", "Gen.", "", "Event"].map((t) => h("th", {scope: "col"}, t)))),
    h("tbody", events.map((e) => h("tr", {key: e.id, id: "event-" + e.id, class: String(e.id) === view.event ? "at" : ""},
      h("td.time", clock(e.time_ms)), h("td.num", e.generation || ""),
      h("td.what", h("span", {class: event_is_fault(e) ? "mark fault" : CHANGES.has(e.what) ? "mark change" : ""}, event_is_fault(e) ? "▲" : CHANGES.has(e.what) ? "◆" : "")),
      h("td.text", plain(e.text)))))));
}

function draw_configuration(job) {
  return [h("div.controls", {key: "controls"}, button("copy", copied ? "Copied" : "Copy job file"),
    h("span.state", "submitted by " + plain(job.user) + " " + clock(job.created_ms) + ", logs in ", h("code", plain(job.log_dir)))),
  h("pre.file", {tabindex: "0", key: "file"}, plain(job.job_file))];
}
let copied = false;

function draw_snapshots(job) {
  const s = job.snapshot, events = (model.events.get(job.job) || []).filter((e) => /snapshot/.test(e.what)).reverse();
  const row = (name, value) => value && h("tr", h("th", {scope: "row"}, name), h("td", value));
  return [s ? h("table.facts", {key: "last"}, h("caption", "Last committed snapshot"), h("tbody", row("step", count(s.step)), row("generation", String(s.generation)), row("committed", clock(s.committed_ms) + " (" + ago(s.committed_ms) + ")"),
    row("path", h("code", plain(s.path))), row("size", bytes(s.bytes)), row("on", plain(s.nodes.join(", "))), row("digest", h("code", plain(s.digest))))) : h("p.empty", {key: "none"}, "The job has committed no snapshot."),
  job.continues ? h("p", {key: "continues"}, "Continues job ", h("a", {href: "#/job/" + job.continues + "/curves"}, "#" + job.continues)) : null,
  events.length ? h("ul.plain", {key: "events"}, events.map((e) => h("li", {key: e.id}, clock(e.time_ms) + " " + plain(e.text)))) : null];
}

const PANELS = {ranks: draw_ranks, logs: draw_logs, events: draw_events, configuration: draw_configuration, snapshots: draw_snapshots,
  curves: (job) => [curve_controls([job.job]), (store.get(job.job) || new Map()).size ? draw_charts([job.job])
    : h("p.empty", {key: "none"}, job.kind === "train" ? "No metrics yet." : "No metrics: the program has reported none (import ddp, DDP_REPORT_FD), and ddp has found none in the output of rank 0.")]};

function draw_job() {
  const job = model.jobs.get(view.job);
  if (!job) return h("p.empty", {key: "none"}, back_button(), model.failed.get(view.job) || "Loading job " + view.job + " …");
  return [draw_head(job), draw_sentence(job), draw_tabs(), h("div.panel", {id: "panel", role: "tabpanel", "aria-labelledby": "tab-" + view.tab, key: "panel-" + view.tab}, PANELS[view.tab](job))];
}
