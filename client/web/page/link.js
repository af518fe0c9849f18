/* Requests to the server, and the stream of changes. Every request carries the key of the URL that ddpctl printed, or the cookie of a
 * login to the coordinator's own page. */

const link = {key: "", last: "", controller: null, state: "connecting", why: ""};

function take_key() {
  const found = /^#k=([\w-]+)(?:&(.*))?$/.exec(location.hash);
  if (found) {
    link.key = found[1];
    history.replaceState(null, "", "#" + (found[2] || "/"));
  }
  try {
    if (found) localStorage.setItem("ddp-key", link.key);
    link.key = localStorage.getItem("ddp-key") || "";
  } catch {
    // The browser keeps nothing: the key lives as long as the page.
  }
}

async function api(path, options = {}) {
  const headers = {...options.headers};
  if (link.key) headers["X-DDP-Key"] = link.key;
  const reply = await fetch("api/" + path, {...options, headers, credentials: "same-origin", cache: "no-store"});
  if (reply.ok) return reply;
  if (reply.status === 401) link_state("login");
  let text = "";
  try {
    text = (await reply.json()).error;
  } catch {
    text = "";
  }
  const error = new Error(text || "the server answered with " + reply.status);
  error.status = reply.status;
  throw error;
}

const get = async (path, signal) => (await api(path, {signal})).json();

async function post(path, body) {
  const headers = {"X-DDP": "1", "Content-Type": "application/json"};
  return (await api(path, {method: "POST", headers, body: body ? JSON.stringify(body) : ""})).json();
}

function link_state(state, why) {
  if (link.state === state && link.why === (why || "")) return;
  link.state = state;
  link.why = why || "";
  draw_soon();
}

/* Skips a frame that cannot be read or shown. Else the server would send it again, before all others, at each new connection. */
function take_event(event, take) {
  if (!event.data) return;
  try {
    take(event.event, JSON.parse(event.data), event.id);
  } catch (error) {
    console.error(error);
  }
  if (event.id) link.last = event.id;
}

/* Reads server-sent events until the stream ends. EventSource cannot send the key. */
async function read_stream(reply, take) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", event = {event: "", data: "", id: ""};
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (!line) {
        take_event(event, take);
        event = {event: "", data: "", id: ""};
        continue;
      }
      const colon = line.indexOf(":"), field = line.slice(0, colon);
      if (Object.hasOwn(event, field)) event[field] += line.slice(colon + (line[colon + 1] === " " ? 2 : 1)); // others are comments
    }
  }
}

/* Listens until listen() is called again or the page is hidden, and connects again when the stream breaks. */
async function listen(query, take) {
  link.controller?.abort();
  if (document.hidden) return;
  const mine = (link.controller = new AbortController());
  for (let pause = 250; !mine.signal.aborted; pause = Math.min(pause * 2, 5000)) {
    try {
      const headers = link.last ? {"Last-Event-ID": link.last} : {};
      const reply = await api("watch" + query, {headers, signal: mine.signal});
      link_state("live");
      pause = 250;
      await read_stream(reply, take);
      if (!mine.signal.aborted) link_state("broken", "");
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.status === 401) return;
      if (error.status === 403) return link_state("refused", error.message);
      link_state("broken", error.status ? error.message : "");
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
}
