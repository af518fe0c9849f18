/* Draws the page, and answers clicks, keys and changes of the view. */

function draw_banner() {
  const texts = {
    refused: "This page has no valid key. Open the address that ddpctl web printed.", broken: "The connection is lost" + (link.why ? ": " + link.why : "") + ". Trying again.",
    away: "The coordinator does not answer: " + link.why,
  };
  const notes = model.cluster ? model.cluster.notes : [];
  if (link.state === "login")
    return [h("form", {key: "login", id: "login"}, h("label", "Log in with your token, as ddpctl has it ", h("input", {name: "token", type: "password", autocomplete: "current-password"})), h("button.main", "Log in")),
      notice ? h("p.bad", {key: "notice"}, plain(notice)) : null];
  return [texts[link.state] ? h("p.bad", {key: "link"}, plain(texts[link.state])) : null, notice ? h("p.bad", {key: "notice"}, plain(notice), button("hide-notice", "close")) : null,
    notes.map((note, i) => h("p", {key: "note" + i}, plain(note)))];
}
let notice = "";

function draw() {
  const log = $("log"), at_end = log && log.scrollTop + log.clientHeight > log.scrollHeight - 24;
  patch($("totals"), draw_totals());
  patch($("who"), model.who && link.state !== "login" ? [plain(model.who.name), link.key ? null : button("logout", "Log out")] : null, link.state === "live" ? h("span.live", {title: "live"}, "● live") : h("span.dim", "○ " + link.state));
  const had_login = $("login");
  patch($("banner"), draw_banner());
  if (!had_login) $("login")?.querySelector("input").focus();
  document.documentElement.classList.toggle("login", link.state === "login");
  patch($("nodes"), draw_nodes());
  patch($("list"), draw_list());
  const shown = view.page !== "jobs";
  $("view").hidden = !shown;
  $("main").className = shown ? "split " + view.page : "";
  document.documentElement.classList.toggle("detail", shown);
  patch($("view"), view.page === "job" ? draw_job() : view.page === "compare" ? draw_compare() : []);
  if (view.page === "compare") fill_charts(view.jobs);
  else if (view.page === "job" && view.tab === "curves") fill_charts([view.job]);
  charts_sweep();
  const now = $("log");
  if (now && follows_log && (!log || at_end)) now.scrollTop = now.scrollHeight;
  const job = model.jobs.get(view.job);
  document.title = job ? "#" + job.job + " " + plain(job.name) + " " + job.state + " – ddp" : "ddp";
}
const draw_soon = once_a(40, draw);

/* The address or the page's own controls have changed the view. */
let shown_jobs = "", shown_logs = "";
function view_changed() {
  const filter = $("filter");
  if (filter.value !== view.q) filter.value = view.q;
  const jobs = watched_jobs(), logs = view.page === "job" && view.tab === "logs" ? view.job : 0;
  if (jobs.join() !== shown_jobs || logs !== shown_logs) {
    if (jobs.join() !== shown_jobs) for (const job of jobs) ask_job(job);
    if (view.page === "job" && jobs.join() !== shown_jobs) ask_why(view.job);
    shown_jobs = jobs.join();
    shown_logs = logs;
    start_listening();
  }
  const wanted = logs ? [logs, view.rank, view.grep].join() : "";
  if (logs && wanted !== asked_logs) ask_logs();
  asked_logs = wanted;
  draw_soon();
  if (view.event) requestAnimationFrame(() => setTimeout(() => $("event-" + view.event)?.scrollIntoView({block: "center"}), 60));
}
let asked_logs = "";

function start_listening() {
  const query = new URLSearchParams();
  if (shown_jobs) query.set("jobs", shown_jobs);
  if (shown_logs) query.set("logs", String(shown_logs));
  link.last = ""; // another list of jobs: the levels come again
  model.begins = true;
  model.frames.clear();
  forget_jobs();
  listen(query.size ? "?" + query : "", take_frame);
}

/* A dialog with a text and buttons. Calls done() if the first button is pressed. */
function confirm_by(title, lines, label, done) {
  const dialog = $("dialog");
  patch(dialog, h("h2", title), lines.map((line) => h("p", line)),
    h("div.buttons", button("close-dialog", label ? "Keep as it is" : "Close"), label ? button("confirm", label, "main") : null));
  confirm_by.done = done;
  dialog.showModal();
}

async function order(path, then) {
  try {
    const reply = await post(path);
    notice = "";
    then?.(reply);
  } catch (error) {
    notice = error.message;
  }
  draw_soon();
}

/* The page begins anew with another user, or without one. */
const log_by = (way, body) => post("log" + way, body).then(() => location.reload(), (error) => {
  notice = error.message;
  draw_soon();
});

const KEYS = [["j k", "next and previous job"], ["Enter", "open the job"], ["Esc", "back to the list"], ["l", "its logs"], ["w", "run ddpctl why again"], ["1 – 6", "the tabs"],
  ["x", "tick the job for a comparison"], ["c", "compare the ticked jobs"], ["/", "filter the jobs"], ["?", "this list"]];

function show_keys() {
  confirm_by("Keyboard", h("dl.shortcuts", KEYS.map(([key, text]) => h("div", h("dt", h("kbd", key)), h("dd", text)))), "", null);
}

const acts = {
  help: show_keys,
  back: () => go({page: "jobs"}),
  tab: (e) => go({tab: e.dataset.tab}),
  unzoom: () => go({from: "", to: ""}),
  event: (e) => go({tab: "events", event: e.dataset.event}),
  compare: () => go({page: "compare", jobs: [...ticked].sort((a, b) => a - b)}),
  logs: ask_logs,
  untick: () => ticked.clear(),
  "all-ended": () => (all_ended = true),
  logout: () => log_by("out"),
  "hide-notice": () => (notice = ""),
  "close-dialog": () => $("dialog").close(),
  confirm: () => {
    $("dialog").close();
    confirm_by.done?.();
  },
  cancel: () => {
    const job = model.jobs.get(view.job);
    confirm_by("Cancel job #" + job.job + " " + plain(job.name) + "?", [job.kind === "train" ? "It writes a snapshot first, if it has a snapshot directory. Resume continues it later." : "Its processes get SIGTERM."], "Cancel the job",
      () => order("jobs/" + job.job + "/cancel"));
  },
  resume: () => {
    const job = model.jobs.get(view.job);
    confirm_by("Resume job #" + job.job + " " + plain(job.name) + "?", ["A new job continues it from its last snapshot."], "Resume", () => order("jobs/" + job.job + "/resume", (reply) => reply.job && open_job(reply.job)));
  },
  copy: () => navigator.clipboard.writeText(model.jobs.get(view.job).job_file).then(() => {
    copied = true;
    draw_soon();
    setTimeout(() => (copied = false), 2000);
  }, () => (notice = "the browser does not allow copying here")),
  open: (e) => open_job(Number(e.dataset.job)),
};

function tick(job, on) {
  if (on) ticked.add(job);
  else ticked.delete(job);
  draw_soon();
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("td.tick, [data-tick]") || (target.closest("a") && !target.closest("[data-act=open]"))) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const element = target.closest("[data-act]");
  if (!element) return;
  if (element.dataset.act === "open" && String(getSelection())) return; // someone selects text
  event.preventDefault();
  acts[element.dataset.act](element);
  draw_soon();
});

document.addEventListener("input", ({target}) => {
  if (target.id === "filter") return go({q: target.value});
  if (target.dataset.tick) return tick(Number(target.dataset.tick), target.checked);
  if (target.dataset.follow) follows_log = target.checked;
  const name = target.dataset.set;
  if (name === "grep") return later(() => go({grep: target.value}));
  if (name === "x") go({x: target.value, from: "", to: ""});
  else if (name) go({[name]: target.type === "checkbox" ? (target.checked ? "1" : "") : target.value});
});
let timer = 0;
function later(f) {
  clearTimeout(timer);
  timer = setTimeout(f, 300);
}

function move(by) {
  const order_of = [...document.querySelectorAll("#list tr[data-job]")].map((row) => Number(row.dataset.job));
  const at = order_of.indexOf(view.at), next = order_of[at < 0 ? (by > 0 ? 0 : order_of.length - 1) : Math.min(order_of.length - 1, Math.max(0, at + by))];
  if (next === undefined) return;
  if (view.page === "job") open_job(next);
  else view.at = next;
  draw();
  document.querySelector("#list tr[data-job='" + next + "']")?.scrollIntoView({block: "nearest"});
}

const keys = {
  j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
  Enter: () => view.at && open_job(view.at),
  l: () => view.at && open_job(view.at, "logs"),
  w: () => {
    if (!view.at) return;
    if (view.page !== "job") open_job(view.at);
    ask_why(view.at);
  },
  x: () => view.at && tick(view.at, !ticked.has(view.at)),
  c: () => {
    if (ticked.size > 1) acts.compare();
    else if (view.at) tick(view.at, true);
  },
  "/": () => $("filter").focus(), "?": show_keys,
  Escape: () => view.page !== "jobs" && go({page: "jobs"}),
};

document.addEventListener("keydown", (event) => {
  const {target, key} = event;
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  if (target.matches("[role=tab]") && (key === "ArrowRight" || key === "ArrowLeft")) {
    go({tab: TABS[(TABS.indexOf(view.tab) + (key === "ArrowRight" ? 1 : TABS.length - 1)) % TABS.length]});
    draw();
    return $("tab-" + view.tab).focus();
  }
  if (target.matches("input:not([type=checkbox]), select, textarea")) {
    if (key === "Escape" || (key === "Enter" && target.id === "filter")) target.blur();
    return;
  }
  if (key === "Enter" && target.matches("a, button")) return;
  if (key.startsWith("Arrow") && target.matches(".log, .file, input")) return;
  if (view.page === "job" && /^[1-6]$/.test(key)) return go({tab: TABS[key - 1]});
  if (!keys[key]) return;
  event.preventDefault();
  keys[key]();
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.id === "login") log_by("in", {token: event.target.elements.token.value.trim()});
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return link.controller?.abort(); // a page that nobody sees listens to nothing
  ask_cluster();
  for (const job of watched_jobs()) ask_job(job);
  start_listening();
});
addEventListener("hashchange", () => {
  if (/^#k=/.test(location.hash)) {
    take_key();
    ask_cluster();
    shown_jobs = "?";
  }
  read_view();
  view_changed();
});
addEventListener("popstate", () => {
  read_view();
  view_changed();
});
addEventListener("resize", draw_soon);
addEventListener("scroll", draw_soon, {passive: true});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts_restyle);
setInterval(() => document.hidden || draw_soon(), 1000); // ages and times
setInterval(() => {
  if (document.hidden || link.state === "login") return;
  if (view.job && !ENDED.has(model.jobs.get(view.job)?.state)) ask_why(view.job);
}, 10000);

take_key();
read_view();
shown_jobs = "?";
ask_cluster();
view_changed();
draw();
