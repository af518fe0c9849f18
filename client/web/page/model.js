/* What the page knows of the cluster. The server sends whole objects, and the newest one replaces the older one. */

// live: lines of frames that the last answer lacks; newest: what that answer has last of each file.
const NO_LOGS = {job: 0, path: "", lines: [], live: [], newest: new Map(), notes: [], error: "", complete: null};

const model = {
  jobs: new Map(), // by number: JobStatus. Those that are watched have their ranks
  nodes: new Map(), // by name: NodeStatus
  cluster: null, // ListJobsReply without its jobs
  who: null, version: null,
  loaded: false,
  events: new Map(), // by job: events, by time
  why: new Map(), // by job: what `ddpctl why -o json` prints
  logs: NO_LOGS,
  frames: new Map(), // by topic: id of the last frame
  failed: new Map(), // by job: why its details cannot be shown
  begins: true, // the next frame is the first of a stream that goes on from no other
};

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const GLYPHS = {queued: "◷", starting: "▷", running: "▶", recovering: "↻", stopping: "■", succeeded: "✓", failed: "✕", cancelled: "⊘"};

function block_of(job) {
  return ENDED.has(job.state) ? "ended" : job.state === "queued" ? "queued" : "running";
}

/* The queue goes by priority, then by age, and jobs on hold come last. Ended jobs: the newest first. */
function jobs_of(block) {
  const held = (job) => job.reason.startsWith("on hold");
  return [...model.jobs.values()].filter((job) => block_of(job) === block && job_matches(job)).sort((a, b) =>
    block === "ended" ? b.ended_ms - a.ended_ms || b.job - a.job
      : block === "queued" ? held(a) - held(b) || b.priority - a.priority || a.job - b.job : a.job - b.job);
}

/* Each word of the filter is in the number, name, user, state or a node of the job. */
function job_matches(job) {
  const text = ["#" + job.job, job.name, job.user, job.state, ...job.nodes].join(" ").toLowerCase();
  return view.q.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/* Whether no frame of the topic was missed. The frame of a topic that is new to us says nothing about that. */
function frame_follows(topic, data, id) {
  const had = model.frames.get(topic);
  if (id) model.frames.set(topic, id);
  return had !== undefined && String(data.previous) === had;
}

function add_events(job, events) {
  const known = new Map((model.events.get(job) || []).map((e) => [e.id, e]));
  for (const event of events) known.set(event.id, event);
  model.events.set(job, [...known.values()].sort((a, b) => a.time_ms - b.time_ms || a.id - b.id));
}

function put_job(job) {
  const had = model.jobs.get(job.job);
  // The list's objects have no ranks. Those of a watched job are kept until it sends newer ones.
  if (had && !job.ranks.length && had.ranks.length && !watched_jobs().includes(job.job)) job.ranks = had.ranks;
  model.jobs.set(job.job, job);
  if (!had || had.state !== job.state || had.stall !== job.stall || had.missing !== job.missing || had.generation !== job.generation)
    if (view.page === "job" && view.job === job.job) ask_why(job.job);
}

const file_of = (line) => line.rank + (line.stderr ? "!" : " ") + line.generation;

/* Of each file the time of the last line, and how often each text has that time. The lines of a file are in the order of time. */
function newest_of(lines) {
  const newest = new Map();
  for (const line of lines) {
    const file = file_of(line);
    let last = newest.get(file);
    if (!last || last.ms !== line.written_ms) newest.set(file, (last = {ms: line.written_ms, texts: new Map()}));
    last.texts.set(line.text, (last.texts.get(line.text) || 0) + 1);
  }
  return newest;
}

/* The lines that come after those. An answer and a frame may both have a line, because they are made at different times. */
function lines_after(newest, lines) {
  return lines.filter((line) => {
    const last = newest.get(file_of(line));
    if (!last || line.written_ms !== last.ms) return !last || line.written_ms > last.ms;
    const left = last.texts.get(line.text) || 0;
    last.texts.set(line.text, left - 1);
    return left <= 0;
  });
}

const takers = {
  job: (data) => put_job(data),
  node: (data) => model.nodes.set(data.name, data),
  cluster: (data) => (model.cluster = data),
  gone: (data) => (data.node ? model.nodes.delete(data.node) : watched_jobs().includes(data.job) || model.jobs.delete(data.job)), // the view keeps its jobs
  point: (data, id) => {
    const follows = frame_follows("point" + data.job, data, id);
    add_points(data.job, data.points, data.captured || [], false);
    if (!follows) ask_metrics(data.job);
  },
  usage: (data, id) => {
    const follows = frame_follows("usage" + data.job, data, id);
    add_points(data.job, data.points, data.captured || [], true);
    if (!follows) ask_usage(data.job);
  },
  event: (data, id) => {
    const follows = frame_follows("event" + data.job, data, id);
    add_events(data.job, data.events);
    if (!follows) ask_events(data.job);
  },
  log: (data, id) => {
    const follows = frame_follows("log" + data.job, data, id);
    if (data.job !== model.logs.job) return;
    if (view.grep) return ask_logs_soon(); // the server searches
    const lines = lines_after(model.logs.newest, data.lines.filter((line) => view.rank === "" || line.rank === Number(view.rank)));
    model.logs.lines = model.logs.lines.concat(lines).slice(-2000);
    model.logs.live = model.logs.live.concat(lines).slice(-2000);
    model.logs.notes = model.logs.notes.concat(data.notes);
    if (!follows) ask_logs_soon();
  },
  reset: () => {
    model.frames.clear();
    model.jobs.clear();
    model.nodes.clear();
    for (const job of watched_jobs()) ask_job(job);
  },
  away: (data) => link_state("away", data.error),
  back: () => link_state("live"),
};

/* A stream that goes on from no other brings all jobs and nodes. What it does not bring has gone while nobody listened. */
function begin_level() {
  for (const job of model.jobs.keys())
    if (!watched_jobs().includes(job)) model.jobs.delete(job);
  model.nodes.clear();
  model.begins = false;
}

/* A page that stays open for days forgets the curves of the jobs that it showed first. */
function forget_jobs() {
  for (const job of store.keys())
    if (store.size > 60 && !watched_jobs().includes(job)) for (const map of [store, model.events, model.why]) map.delete(job);
}

function take_frame(kind, data, id) {
  if (model.begins) begin_level();
  takers[kind]?.(data, id);
  draw_soon();
}

/* Asks for something, and puts a failure where the view shows it. Requests for the same thing do not overlap. */
const asked = new Set();
async function ask(path, take, failed) {
  if (asked.has(path)) return;
  asked.add(path);
  try {
    take(await get(path));
  } catch (error) {
    failed?.(error);
  }
  asked.delete(path);
  draw_soon();
}

function ask_cluster() {
  ask("jobs", (reply) => {
    for (const job of reply.jobs) put_job(job);
    model.cluster = {...reply, jobs: []};
    model.loaded = true;
  }, (error) => error.status === 403 && link_state("refused", error.message));
  ask("nodes", (reply) => reply.nodes.forEach((node) => model.nodes.set(node.name, node)));
  ask("whoami", (reply) => (model.who = reply));
  ask("version", (reply) => (model.version = reply));
}

function ask_job(job) {
  ask("jobs/" + job, (reply) => {
    model.failed.delete(job);
    put_job(reply);
  }, (error) => model.failed.set(job, error.message));
  ask_metrics(job);
  ask_usage(job);
  ask_events(job);
}

const ask_metrics = (job) => ask("jobs/" + job + "/metrics?points=800&form=series", (reply) => put_series(job, reply.series, false));
const ask_usage = (job) => ask("jobs/" + job + "/metrics?usage=1&points=800&form=series", (reply) => put_series(job, reply.series, true));

const ask_events = (job) => ask("jobs/" + job + "/events", (reply) => add_events(job, reply.events));
const ask_why = (job) => ask("jobs/" + job + "/why", (reply) => model.why.set(job, reply));

function ask_logs() {
  if (!view.job) return;
  const query = new URLSearchParams({tail: "500"});
  if (view.rank !== "") query.set("rank", view.rank);
  if (view.grep) query.set("grep", view.grep);
  const path = "jobs/" + view.job + "/logs?" + query;
  const put = (change) => model.logs.path === path && Object.assign(model.logs, change);
  if (model.logs.path !== path) model.logs = {...NO_LOGS, job: view.job, path};
  ask(path, ({lines, notes, complete}) => {
    const newest = newest_of(lines), live = model.logs.path === path && !view.grep ? lines_after(newest, model.logs.live) : [];
    put({lines: lines.concat(live).slice(-2000), live, newest, notes, error: "", complete});
  }, (error) => put({error: error.message, lines: [], live: [], newest: new Map()}));
}
const ask_logs_soon = once_a(2000, ask_logs);
