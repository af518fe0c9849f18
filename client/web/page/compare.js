/* Two or more jobs side by side: their curves in common charts, and what differs between their job files and environments. */

/* The value of a flow collection, or the text: {type: mlp, sizes: [20, 1]} becomes an object, and lists stay texts. */
function flow_value(text) {
  if (!text.startsWith("{") || !text.endsWith("}")) return text.replace(/^\x22(.*)\x22$/, "$1");
  const table = {};
  let depth = 0, quoted = false, part = "";
  const put = () => {
    const colon = part.indexOf(":");
    if (colon > 0) table[part.slice(0, colon).trim()] = flow_value(part.slice(colon + 1).trim());
    part = "";
  };
  for (const c of text.slice(1, -1)) {
    if (c === "\x22") quoted = !quoted;
    if (!quoted) depth += "[{".includes(c) ? 1 : "]}".includes(c) ? -1 : 0;
    if (c === "," && !depth && !quoted) put();
    else part += c;
  }
  put();
  return table;
}

/* The keys of a job file as the coordinator prints it: "train.optimizer.lr" -> "0.001". */
function job_keys(text) {
  const keys = new Map(), path = [];
  const put = (name, value) => {
    if (typeof value === "object") for (const [key, inner] of Object.entries(value)) put(name + "." + key, inner);
    else keys.set(name, keys.has(name) ? keys.get(name) + " " + value : value);
  };
  for (const line of text.split("\n")) {
    const found = /^(\x20*)([\w.-]+|\x22[^\x22]*\x22):(?:\x20(.*))?$/.exec(line);
    if (found) {
      path.length = found[1].length >> 1;
      path.push(found[2].replaceAll("\x22", ""));
      if (found[3] !== undefined && found[3] !== "") put(path.join("."), flow_value(found[3].trim()));
    } else if (line.trim() && path.length) {
      put(path.join("."), line.trim()); // an item of a list, or a line of a long text
    }
  }
  return keys;
}

/* Where the job ran last and with what, and the variables that came from the submitter's shell. */
function environment_of(job) {
  const table = new Map();
  const put_ranks = (name, value_of) => {
    const times = new Map();
    for (const value of job.ranks.map(value_of).filter(Boolean)) times.set(value, (times.get(value) || 0) + 1);
    if (times.size) table.set(name, [...times].map(([value, n]) => n + " × " + value).join(", "));
  };
  if (job.nodes.length) table.set("nodes", job.nodes.join(" "));
  put_ranks("devices", (rank) => rank.device.replace(/^([a-z]+)\d+\x20?/, "$1 ").trim());
  put_ranks("computes with", (rank) => rank.computes);
  put_ranks("version of ddp", (rank) => rank.version);
  for (const entry of job.env || []) table.set("$" + entry.split("=")[0], entry.slice(entry.indexOf("=") + 1));
  return table;
}

/* The rows of the table: [key, the value of each job]. */
function different_keys(tables) {
  const names = new Set(tables.flatMap((t) => [...t.keys()]));
  return [...names].filter((name) => name !== "name" && new Set(tables.map((t) => t.get(name))).size > 1).map((name) => [name, tables.map((t) => t.get(name))]);
}

/* Rounds fractions of 12 or more decimals to 12 digits, unless values that differ would then look the same. */
function short_values(values) {
  const short = values.map((text) => (/^-?\d+\.\d{12,}(e-?\d+)?$/.test(text) ? String(Number(Number(text).toPrecision(12))) : text));
  return new Set(short).size < new Set(values).size ? values : short;
}

function draw_difference(jobs) {
  const best = (job) => job.progress && job.progress.has_best_val ? number(job.progress.best_val) : "";
  const results = [["state", (j) => state_badge(j.state)], ["step", (j) => (j.progress ? count(j.progress.step) : "")], ["loss", (j) => metric_of(j, "loss")], ["val_loss", (j) => metric_of(j, "val_loss")],
    ["best val_loss", best], ["took", (j) => (j.started_ms ? span((j.ended_ms || Date.now()) - j.started_ms) : "")], ["restarts", (j) => String(j.restarts_used)]];
  const known = jobs.every((job) => job.job_file), rows = known ? different_keys(jobs.map((job) => job_keys(job.job_file))) : []; // the list has no job files
  const around = known ? different_keys(jobs.map(environment_of)) : [];
  const cell = (text) => h("td", text === undefined ? h("span.dim", "–") : plain(text));
  const draw_row_of = ([name, values]) => h("tr", {key: name}, h("th", {scope: "row"}, h("code", plain(name))), short_values(values).map(cell));
  return h("div.scroll", {key: "difference"}, h("table.difference", h("caption", "Results, and what differs in job file and environment"),
    h("thead", h("tr", h("th", {scope: "col"}, ""), jobs.map((job, i) => h("th", {scope: "col", key: job.job}, curve_sample({colour: i, dash: Math.floor(i / 7)}), " ", h("a", {href: "#/job/" + job.job + "/curves"}, "#" + job.job + " " + plain(job.name)))))),
    h("tbody", results.filter(([, value]) => jobs.some((job) => value(job) !== "")).map(([name, value]) =>
      h("tr", {key: name}, h("th", {scope: "row"}, name), jobs.map((job) => h("td", value(job)))))),
    h("tbody.keys", rows.length ? rows.map(draw_row_of) : known && h("tr", {key: "none"}, h("td", {colspan: String(jobs.length + 1)}, "The job files have the same keys and values."))),
    h("tbody.keys.environment", around.map(draw_row_of))));
}

function draw_compare() {
  const jobs = view.jobs.map((number_of) => model.jobs.get(number_of)).filter(Boolean);
  return [h("div.head", {key: "head"}, back_button(), h("h2", "Compare " + view.jobs.length + " jobs")),
    view.jobs.filter((job) => model.failed.has(job)).map((job) => h("p.error", {key: "failed" + job}, "job " + job + ": " + model.failed.get(job))),
    jobs.length ? draw_difference(jobs) : null, curve_controls(view.jobs), draw_charts(view.jobs)];
}
