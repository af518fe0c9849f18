/* Curves: values of a metric of a rank over steps and time, in the order in which they were measured. */

const store = new Map(); // by job: Map of "name rank" to {job, name, rank, usage, highest, step, time, value, shapes}

const PER_RANK = /^(ms_per_step|wait_ms|memory_bytes|exposed|balance_|(gpu|sys)\.)/;
const HIDDEN = /^(steps|epoch|parameters|.*_bytes|bytes|digest_.*|round|sync_.*|tokens|samples)$/;
const COUNTERS = ["tokens", "samples"]; // what a job has trained on so far, for the x axis
const ORDER = ["loss", "val_loss", "bits_per_char", "bits_per_byte", "val_acc", "lr", "grad_norm", "tokens_per_s", "samples_per_s",
  "ms_per_step", "wait_ms", "exposed", "memory_bytes"];
const TOGETHER = {val_loss: "loss", wait_ms: "ms_per_step"}; // drawn in the chart of the other one

/* usage: a node has measured it, and the program has not reported it. */
function series_of(job, name, rank, usage) {
  if (!store.has(job)) store.set(job, new Map());
  const all = store.get(job), key = name + " " + rank;
  if (!all.has(key)) all.set(key, {job, name, rank, usage, captured: false, highest: -1, step: [], time: [], value: [], shapes: new Map()});
  return all.get(key);
}

/* Takes the points of a job that the server has: its own metrics, or those that its nodes measure (usage). */
function put_series(job, list, usage) {
  const live = store.get(job);
  store.set(job, new Map([...(live || [])].filter(([, s]) => s.usage !== usage)));
  for (const {name, rank, step, time_ms, value, captured} of list) {
    const s = series_of(job, name, rank, usage);
    s.captured = !!captured;
    const order = [...time_ms.keys()].sort((a, b) => time_ms[a] - time_ms[b] || step[a] - step[b]);
    for (const i of order) push_point(s, step[i], time_ms[i], value[i] ?? NaN);
    // Points that came after the server had read these.
    const newer = live?.get(name + " " + rank), end = s.time.at(-1), {highest} = s;
    for (let i = 0; newer && i < newer.time.length; i++)
      if (newer.time[i] > end || newer.step[i] > highest) push_point(s, newer.step[i], newer.time[i], newer.value[i]);
  }
  for (const [key, s] of live || []) // a metric that the server had no point of yet
    if (s.usage === usage && !store.get(job).has(key)) store.get(job).set(key, s);
}

function push_point(s, step, time, value) {
  s.step.push(step);
  s.time.push(time);
  s.value.push(value);
  s.highest = Math.max(s.highest, step);
  s.shapes.clear();
}

/* A job that goes back to a snapshot repeats steps at later times. A rank that moves to a node whose clock is behind goes on with later
 * steps at earlier times. */
function add_points(job, points, captured, usage) {
  let large = null;
  for (const point of points) {
    const s = series_of(job, point.name, point.rank, usage), end = s.time.length - 1;
    s.captured = point.rank === 0 && captured.includes(point.name);
    const older = end >= 0 && (point.time_ms < s.time[end] || (point.time_ms === s.time[end] && point.step <= s.step[end]));
    if (older && point.step <= s.highest) continue;
    push_point(s, point.step, Math.max(point.time_ms, end >= 0 ? s.time[end] : 0), point.value ?? NaN);
    if (s.step.length > 6000) large = s;
  }
  if (large) (large.usage ? ask_usage : ask_metrics)(job); // the server thins them
}

/* The series of a counter, of the lowest rank. */
function counter_of(job, name) {
  let found = null;
  for (const s of (store.get(job) || new Map()).values())
    if (s.name === name && s.step.length > 1 && (!found || s.rank < found.rank)) found = s;
  return found;
}

/* What the x axis can show of all these jobs. */
const axes_of = (jobs) => ["step", "time", ...COUNTERS.filter((name) => jobs.every((job) => counter_of(job, name)))];

/* The counter at a step: on a straight line between the steps that have it. It begins with 0. */
function count_at(counter, step) {
  const {x, y} = shape_of(counter, "step", 0, 0), i = index_at(x, step), from = i < 0 ? 0 : x[i], had = i < 0 ? 0 : y[i];
  return i === x.length - 1 || x[i + 1] <= from ? had : had + ((y[i + 1] - had) * (step - from)) / (x[i + 1] - from);
}

/* The curve as it is drawn: {x, y, smooth}. Over steps and counters, a step that was done again keeps its later value. Over "since", x
 * is the time since the start of the job. */
function shape_of(s, over, smoothing, start) {
  const counter = COUNTERS.includes(over) ? counter_of(s.job, over) : null;
  const name = [over, smoothing, start, counter && counter.step.length].join();
  if (s.shapes.has(name)) return s.shapes.get(name);
  let x, y = s.value;
  if (over === "time" || over === "since") {
    x = s.time.map((t) => (over === "since" ? t - start : t) / 1000);
  } else {
    x = s.usage ? s.time.map((t) => step_at(s.job, t)) : s.step; // nodes know no steps
    let sorted = true;
    for (let i = 1; i < x.length && sorted; i++) sorted = x[i] > x[i - 1];
    if (!sorted) {
      const last = new Map();
      x.forEach((step, i) => last.set(step, y[i]));
      const pairs = [...last].sort((a, b) => a[0] - b[0]);
      x = pairs.map((p) => p[0]);
      y = pairs.map((p) => p[1]);
    }
    if (counter) x = x.map((step) => count_at(counter, step));
  }
  const shape = {x, y, smooth: smoothing > 0 && y.length > 30 ? smooth(y, smoothing) : null}; // a few points show no noise
  if (s.shapes.size > 9) s.shapes.clear(); // of other positions of the smoothing slider
  s.shapes.set(name, shape);
  return shape;
}

/* An exponential moving average without the bias of its first values. Values that are not finite are left out. */
function smooth(values, weight) {
  let mean = 0, total = 0;
  return values.map((v) => {
    if (!Number.isFinite(v)) return v;
    mean = mean * weight + v * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

/* Index of the last x that is not above the wanted one, or -1. */
function index_at(x, wanted) {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/* The step that a job had reached at a time. */
function step_at(job, time) {
  let best = 0;
  for (const s of (store.get(job) || new Map()).values()) {
    if (s.name !== "loss" && s.name !== "ms_per_step") continue;
    const i = index_at(s.time, time);
    if (i >= 0) best = Math.max(best, s.step[i]);
  }
  return best;
}

/* The charts for these jobs: [{title, names, curves: [{job, name, rank, series}]}]. Metrics that each rank measures for itself get a
 * curve for each rank of a single job; of the others, and of several jobs, the lowest rank's is drawn. */
function charts_for(jobs, with_hidden) {
  const charts = new Map();
  for (const job of jobs) {
    const by_name = new Map();
    for (const s of (store.get(job) || new Map()).values()) {
      if (HIDDEN.test(s.name) && !PER_RANK.test(s.name) && !with_hidden) continue;
      if (s.step.length < (with_hidden ? 1 : 2) && s.name !== "loss" && s.name !== "val_loss") continue;
      if (!by_name.has(s.name)) by_name.set(s.name, []);
      by_name.get(s.name).push(s);
    }
    for (const [name, list] of by_name) {
      list.sort((a, b) => a.rank - b.rank);
      const ranks = PER_RANK.test(name) && jobs.length === 1 ? list.slice(0, 32) : list.slice(0, 1);
      const together = ranks.length === 1 && by_name.has(TOGETHER[name]) && jobs.length < 4 ? TOGETHER[name] : name;
      if (!charts.has(together)) charts.set(together, {title: together, names: new Set(), curves: []});
      const chart = charts.get(together);
      chart.names.add(name);
      for (const s of ranks) chart.curves.push({job, name, rank: s.rank, series: s, of: ranks.length});
    }
  }
  const place = (title) => (ORDER.includes(title) ? ORDER.indexOf(title) : 100);
  for (const chart of charts.values())
    chart.curves.sort((a, b) => place(a.name) - place(b.name) || jobs.indexOf(a.job) - jobs.indexOf(b.job) || a.rank - b.rank);
  return [...charts.values()].sort((a, b) => place(a.title) - place(b.title) || (a.title < b.title ? -1 : 1));
}
