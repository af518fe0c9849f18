/* The bar of nodes and the three lists of jobs. */

const ticked = new Set(); // jobs to compare

/* For each slot, on GPUs if there are some: the number of the job, 0 if that is unknown, or -1 if it is free or its GPU is
 * sick. On drained and lost nodes nothing is free, so there the ranks of their jobs are counted. */
function busy_units(node) {
  const gpus = node.gpus.length, per = node.slots_per_gpu || 1, owners = [];
  const well = [...Array(gpus ? gpus * per : node.slots).keys()].map((i) => !gpus || node.gpus[Math.floor(i / per)].healthy);
  for (const number_of of node.jobs) {
    const job = model.jobs.get(number_of);
    const here = job && job.ranks.length ? job.ranks.filter((r) => r.node === node.name && r.state !== "exited" && (!gpus || r.device.startsWith("gpu"))).length
      : job && job.nodes.length ? Math.round(job.world_size / job.nodes.length) : 1;
    for (let i = 0; i < here; i++) owners.push(number_of);
  }
  if (/alive|suspect/.test(node.state)) {
    const busy = well.filter(Boolean).length - (gpus ? node.gpus_free : node.slots_free);
    while (owners.length < busy) owners.push(node.jobs.at(-1) || 0);
    owners.splice(Math.max(0, busy));
  }
  return well.map((fine) => (fine ? owners.shift() ?? -1 : -1));
}

function draw_square(node, job, i) {
  const at = node.gpus.length ? Math.floor(i / (node.slots_per_gpu || 1)) : i, gpu = node.gpus[at], sick = gpu && !gpu.healthy;
  const load = gpu ? gpu.utilisation : node.load;
  const unit = (gpu ? "GPU " : "slot ") + at;
  const title = unit + (sick ? ": sick: " + plain(gpu.problem) : job > 0 ? ": job " + job + ", load " + Math.round(load * 100) + " %" : job === 0 ? ": busy" : ": free");
  return h("span", {class: "square " + (sick ? "sick" : job > 0 ? "k" + (job % 7) : job === 0 ? "busy" : "free"), title,
    css: {"--load": sick || job < 0 ? "0" : Math.round(15 + 85 * Math.min(1, load || 0)) + "%"}}, sick ? "×" : job > 0 ? String(job % 1000) : "");
}

function draw_nodes() {
  const nodes = [...model.nodes.values()].sort((a, b) => a.name.localeCompare(b.name, "en", {numeric: true}));
  return h("ul", {key: "nodes"}, nodes.map((node) => {
    const fine = node.state === "alive", squares = busy_units(node);
    const busy = squares.filter((s) => s >= 0).length, unit = !node.gpus.length ? "slots" : node.slots_per_gpu > 1 ? "slots on GPUs" : "GPUs";
    return h("li", {key: node.name, class: fine ? "node" : "node off", title: plain([node.address, "load " + Math.round(node.load * 100) + " %",
      node.memory_free ? bytes(node.memory_free) + " of " + bytes(node.memory_bytes) + " memory free" : "", node.note].filter(Boolean).join(", "))},
      h("span.name", plain(node.name)), fine ? null : h("span.state", node.state, node.note ? ": " + plain(node.note) : ""),
      h("span.squares", {"aria-hidden": "true"}, squares.map((job, i) => draw_square(node, job, i))),
      h("span.hidden", busy + " of " + squares.length + " " + unit + " busy" + (node.jobs.length ? ", jobs " + node.jobs.join(", ") : "")));
  }));
}

function draw_totals() {
  const c = model.cluster;
  if (!c) return [];
  const nodes = [...model.nodes.values()], alive = nodes.filter((n) => n.state === "alive").length;
  const queue = [...model.jobs.values()].filter((j) => j.state === "queued").length;
  const part = (value, label, kind) => h("span", {class: kind || ""}, h("b", value), " " + label);
  return [part(alive < nodes.length ? alive + "/" + nodes.length : nodes.length, nodes.length === 1 ? "node" : "nodes"),
    c.gpus ? part(c.gpus_busy + "/" + c.gpus, "GPUs busy") : part(c.slots_busy + "/" + c.slots, "slots busy"),
    c.gpus_sick.length ? part(c.gpus_sick.length, "sick", "bad") : null, part(queue, "queued")];
}

function draw_spark(values) {
  const good = (values || []).filter(Number.isFinite);
  if (good.length < 2) return null;
  const min = Math.min(...good), max = Math.max(...good), k = max > min ? 14 / (max - min) : 0;
  const points = good.map((v, i) => (1 + (i * 58) / (good.length - 1)).toFixed(1) + "," + (17 - (v - min) * k).toFixed(1)).join(" ");
  return h("svg.spark", {width: "60", height: "20", viewBox: "0 0 60 20", "aria-hidden": "true"}, h("polyline", {points}));
}

function draw_bar(progress) {
  if (!progress || !(progress.step || progress.steps)) return null;
  const part = progress.steps ? Math.min(1, progress.step / progress.steps) : 0;
  return h("span.progress",
    progress.steps ? h("span.bar", {role: "progressbar", "aria-valuenow": String(Math.round(part * 100)), "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": "progress"}, h("span", {css: {width: (part * 100).toFixed(2) + "%"}})) : null,
    progress.steps ? h("span.percent", Math.floor(part * 100) + " %") : null,
    h("span.steps.wide", count(progress.step) + (progress.steps ? "/" + count(progress.steps) : " steps")));
}

function eta_of(job) {
  const p = job.progress;
  return p && p.steps && p.steps_per_s > 0 && job.state === "running" ? span(((p.steps - p.step) / p.steps_per_s) * 1000) : "";
}

function speed_of(job) {
  const m = job.progress ? job.progress.metrics : {};
  return m.tokens_per_s ? number(m.tokens_per_s) + " tok/s" : m.samples_per_s ? number(m.samples_per_s) + " smp/s"
    : job.progress && job.progress.steps_per_s ? number(job.progress.steps_per_s) + " steps/s" : "";
}

/* What a user should know of a running job, shortest first. */
function notes_of(job) {
  return [job.missing, job.stall, ...job.notes, job.state === "running" ? "" : job.reason].filter(Boolean).map(plain);
}

/* The last line that the failed rank wrote says more than its exit code. */
function end_of(job) {
  const tail = job.failure && job.state === "failed" ? job.failure.stderr_tail.filter((line) => line.trim()) : [];
  return plain(tail.length ? tail.at(-1).trim() + " (rank " + job.failure.rank + ", " + job.failure.node + ")" : job.state === "succeeded" ? "" : job.reason);
}

const state_badge = (state) => h("span", {class: "badge " + state}, h("span", {"aria-hidden": "true"}, (GLYPHS[state] || "·") + " "), state);

const metric_of = (job, name) => (job.progress && name in job.progress.metrics ? number(job.progress.metrics[name]) : "");

const COLUMNS = {
  running: [["Progress", "", (j) => [j.state === "running" ? null : state_badge(j.state), draw_bar(j.progress)]],
    ["Loss", "num", (j) => metric_of(j, "loss")], ["Curve", "wide mid", (j) => draw_spark(j.progress && j.progress.loss_history)],
    ["Val", "num wide", (j) => metric_of(j, "val_loss")], ["Speed", "num wide", speed_of], ["Left", "num mid", eta_of],
    ["Nodes", "wide mid", (j) => plain(j.nodes.join(" "))], ["User", "wide", (j) => plain(j.user)],
    ["Time", "num wide mid", (j) => (j.started_ms ? span(Date.now() - j.started_ms) : "")]],
  queued: [["Asks", "", (j) => j.asks], ["Reason", "text", (j) => plain(j.reason)], ["User", "wide mid", (j) => plain(j.user)],
    ["Waits", "num mid", (j) => span(Date.now() - j.created_ms)]],
  ended: [["State", "", (j) => state_badge(j.state)], ["Loss", "num mid", (j) => metric_of(j, "loss")],
    ["Curve", "wide mid", (j) => draw_spark(j.progress && j.progress.loss_history)], ["Reason", "text wide", end_of],
    ["User", "wide mid", (j) => plain(j.user)], ["Took", "num wide mid", (j) => (j.started_ms ? span(j.ended_ms - j.started_ms) : "")],
    ["Ended", "num mid", (j) => ago(j.ended_ms)]],
};
const TITLES = {running: "Running", queued: "Queued", ended: "Ended"};
const EMPTY = {running: "No job runs.", queued: "", ended: ""};
const SHOWN_ENDED = 30;
let all_ended = false;

function draw_row(job, columns) {
  const at = view.at === job.job, notes = block_of(job) === "running" ? notes_of(job) : [];
  return h("tr", {key: job.job, class: at ? "at" : "", "data-job": String(job.job), "data-act": "open", "aria-current": at && "true"},
    h("td.tick", h("input", {type: "checkbox", "data-tick": String(job.job), checked: ticked.has(job.job), "aria-label": "compare job " + job.job})),
    h("td.id", "#" + job.job),
    h("th.name", {scope: "row"}, h("a", {href: "#/job/" + job.job + "/curves"}, plain(job.name)), notes.map((n) => h("span.note", n))),
    columns.map(([, kind, cell]) => h("td", {class: kind}, cell(job))));
}

function draw_block(block) {
  const jobs = jobs_of(block), columns = COLUMNS[block];
  if (!jobs.length) return block === "running" && model.loaded ? h("p.empty", {key: "none"}, view.q ? "No running job matches." : EMPTY[block]) : null;
  const shown = block === "ended" && !all_ended && !view.q ? jobs.slice(0, SHOWN_ENDED) : jobs;
  return h("section", {key: block, class: "block " + block},
    h("table", h("caption", TITLES[block], h("span.count", jobs.length)),
      h("thead", h("tr", h("th.tick", {scope: "col"}, h("span.hidden", "Compare")), h("th.id", {scope: "col"}, "Job"), h("th.name", {scope: "col"}, "Name"),
        columns.map(([title, kind]) => h("th", {class: kind, scope: "col"}, title)))),
      h("tbody", shown.map((job) => draw_row(job, columns)))),
    shown.length < jobs.length ? button("all-ended", "Show " + (jobs.length - shown.length) + " older jobs", "more") : null);
}

function draw_list() {
  return [["running", "queued", "ended"].map(draw_block),
    ticked.size ? h("div.compare-bar", {key: "compare"}, h("span", ticked.size === 1 ? "#" + [...ticked][0] + " ticked: tick another job to compare" : [...ticked].map((j) => "#" + j).join(" ")),
      ticked.size > 1 ? button("compare", "Compare " + ticked.size + " jobs", "main") : null,
      button("untick", "Clear")) : null];
}
