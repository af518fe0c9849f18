/* The curves of one or several jobs: the controls, the charts and the marks of events. */

const FAULTS = new Set(["rank_failed", "late_rank_ended", "survivors_ended", "rank_stuck", "gpu_sick", "snapshots_missing", "snapshot_failed",
  "snapshot_waits", "not_restarted", "job_unsaved"]);
const CHANGES = new Set(["tune_applied", "job_resized", "handed_over", "generation_drained", "job_from_scratch", "sync_chosen"]);

const event_is_fault = (event) => FAULTS.has(event.what) || (event.what === "job_ended" && event.text.startsWith("failed"));

function marks_of(job, over) {
  const counter = counter_of(job, over), at = (time) => (counter ? count_at(counter, step_at(job, time)) : step_at(job, time));
  return (model.events.get(job) || []).filter((e) => event_is_fault(e) || CHANGES.has(e.what)).map((e) => ({
    id: e.id, fault: event_is_fault(e), text: clock(e.time_ms) + " " + e.text, x: over === "time" ? e.time_ms / 1000 : at(e.time_ms),
  }));
}

/* The x axis of these jobs: the time of several jobs counts from the start of each. */
function axis_shown(jobs) {
  return !axes_of(jobs).includes(view.x) ? "step" : view.x === "time" && jobs.length > 1 ? "since" : view.x;
}

function curve_controls(jobs) {
  const shown = axis_shown(jobs).replace("since", "time");
  const choice = (value) => h("label", {key: value}, h("input", {type: "radio", name: "x", value, checked: shown === value, "data-set": "x"}), h("span", value));
  return h("form.controls", {key: "controls"},
    h("fieldset.switch", h("legend", "x axis"), axes_of(jobs).map(choice)),
    h("label", h("input", {type: "checkbox", checked: view.log === "1", "data-set": "log"}), " log y"),
    h("label", "smoothing ", h("input", {type: "range", min: "0", max: "0.98", step: "0.02", value: view.smooth, "data-set": "smooth"}),
      h("output", Number(view.smooth) ? Number(view.smooth).toFixed(2) : "off")),
    h("label", h("input", {type: "checkbox", checked: view.all === "1", "data-set": "all"}), " all metrics"),
    view.from !== "" ? button("unzoom", "show everything") : null);
}

/* Colours tell jobs apart, or the ranks or metrics of one job. Line styles tell apart what shares a colour. */
function style_curves(chart, jobs) {
  const names = [...chart.names], many = jobs.length > 1;
  return chart.curves.map((c) => {
    const job = model.jobs.get(c.job), at = many ? jobs.indexOf(c.job) : c.of > 1 ? c.rank : names.indexOf(c.name);
    const label = [many ? "#" + c.job : "", names.length > 1 ? c.name : "", c.of > 1 ? "rank " + c.rank : ""].filter(Boolean).join(" ");
    const dash = many && names.length > 1 ? names.indexOf(c.name) : many || c.of > 1 ? Math.floor(at / 7) : at;
    return {...c, colour: at, dash, label, full: many && job ? label + " " + plain(job.name) : label, start: job ? job.started_ms : 0};
  });
}

/* Says of which curves the numbers come from the program's output: the program itself has not reported them. */
function captured_words(chart) {
  const names = [...new Set(chart.curves.filter((c) => c.series.captured).map((c) => c.name))];
  if (!names.length) return null;
  const from = model.jobs.get(chart.curves[0].job)?.metrics_from || "its output";
  return h("span.captured", {key: "captured", title: "ddp has read these numbers from " + plain(from)},
    (names.length < chart.names.size ? plain(names.join(", ")) + " " : "") + "read from " + plain(from));
}

function draw_charts(jobs) {
  const list = charts_for(jobs, view.all === "1");
  return h("div.charts", {key: "charts"}, list.map((chart) =>
    h("figure", {key: chart.title, class: chart.title === "loss" ? "chart large" : "chart", "data-chart": chart.title},
      h("figcaption", h("span.title", plain([...chart.names].join(", "))), captured_words(chart), h("span.legend", {own: true})),
      h("div.plot", {own: true, role: "img", "aria-label": chart_words(chart, jobs)}))));
}

/* The chart in words: the first and the last value of each curve. */
function chart_words(chart, jobs) {
  const over = axis_shown(jobs);
  const place = (x) => " at " + (over === "time" ? clock(x * 1000) : over === "since" ? span(x * 1000) : over + " " + count(Math.round(x)));
  return style_curves(chart, jobs).slice(0, 8).map((c) => {
    const {x, y} = shape_of(c.series, over, 0, c.start), n = x.length - 1;
    return (c.label || c.name) + ": " + number(y[0]) + place(x[0]) + ", " + number(y[n]) + place(x[n]);
  }).join("; ");
}

/* Fills the plots that draw_charts() made. */
function fill_charts(jobs) {
  const over = axis_shown(jobs), marks = jobs.length === 1 ? marks_of(jobs[0], over) : [];
  const by_title = new Map(charts_for(jobs, view.all === "1").map((chart) => [chart.title, chart]));
  let first = true;
  for (const figure of document.querySelectorAll("#view figure")) {
    const chart = by_title.get(figure.dataset.chart);
    if (!chart) continue;
    chart_update(figure.querySelector(".plot"), {
      curves: style_curves(chart, jobs), marks, over, log: view.log === "1" && chart.title !== "lr", smoothing: Number(view.smooth) || 0,
      from: view.from, to: view.to, first,
    }, figure.querySelector(".legend"));
    first = false;
  }
}
