/* What the page shows. The URL holds all of it: #/job/9/curves?x=time&log=1, #/compare/9,12, #/?q=gpt */

const TABS = ["curves", "ranks", "logs", "events", "configuration", "snapshots"];
const DEFAULTS = {q: "", x: "step", log: "", smooth: "0", from: "", to: "", rank: "", grep: "", event: "", all: ""};

const view = {page: "jobs", job: 0, tab: "curves", jobs: [], at: 0, ...DEFAULTS};

function read_view() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [, page, what, tab] = path.split("/");
  Object.assign(view, DEFAULTS);
  for (const [name, value] of new URLSearchParams(query || ""))
    if (name in DEFAULTS) view[name] = value;
  const numbers = (what || "").split(",").map(Number).filter((n) => Number.isSafeInteger(n) && n > 0).slice(0, 50);
  view.page = page === "job" && numbers.length ? "job" : page === "compare" ? "compare" : "jobs";
  view.job = view.page === "job" ? numbers[0] : 0;
  if (view.job) view.at = view.job;
  view.tab = TABS.includes(tab) ? tab : "curves";
  if (view.page === "compare") view.jobs = [...new Set(numbers)];
}

function view_url() {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS))
    if (view[name] !== value) query.set(name, view[name]);
  const path = view.page === "job" ? "/job/" + view.job + "/" + view.tab
    : view.page === "compare" ? "/compare/" + view.jobs.join(",") : "/";
  return "#" + path + (query.size ? "?" + query : "");
}

/* Changes the view. A change of the page or the tab can be undone with the browser's Back. */
function go(change) {
  const before = view.page + view.job + view.tab;
  Object.assign(view, change);
  if ("page" in change || "job" in change) Object.assign(view, {from: "", to: "", rank: "", grep: "", event: ""}, change);
  const url = view_url();
  if (before !== view.page + view.job + view.tab) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
  view_changed();
}

function open_job(job, tab) {
  go({page: "job", job, at: job, tab: tab || (view.page === "job" ? view.tab : "curves")});
}

/* The jobs that the view needs the curves of. */
function watched_jobs() {
  return view.page === "job" ? [view.job] : view.page === "compare" ? view.jobs : [];
}
