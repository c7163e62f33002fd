// The live view of ceased: shows the events of `events`, and cancels jobs and tasks by `mcp`.
//
// Texts of peers reach the page by textContent alone, and without control characters.
"use strict";

const KEY = "ceased.token";
// Codes and tokens of a link of `ceased view`; the browser keeps such a token for this tab alone.
const LINK = /^#?(view-[0-9a-f]{64})$/;
const PROCESSES_MAX = 100;
const RETRY_MS = [1000, 2000, 5000, 10000];
// The daemon writes at least a comment every 15 seconds.
const SILENCE_MS = 40000;
const VERSION = "2026-07-28";

const byId = (id) => document.getElementById(id);

// ---- texts

// Control characters, and marks that change the direction of the text around them.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const clean = (text) => String(text ?? "").replace(UNPRINTABLE, "\ufffd");

function span(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 10) return `${(ms / 1000).toFixed(1)}s`;
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86400)}d${two(Math.floor(seconds / 3600) % 24)}h`;
}

const ago = (ms) => `${span(ms)} ago`;
const millis = (ms) => (ms < 1000 ? `${Math.round(ms)}ms` : `${(ms / 1000).toFixed(1)}s`);
const known = (number) => (number === null || number === undefined ? "unknown" : String(number));
const processes = (count) => `${known(count)} ${count === 1 ? "process" : "processes"}`;
const list = (value) => (Array.isArray(value) ? value : []);

/** Bytes as `ceased top` shows them. */
function bytes(count) {
  const units = ["K", "M", "G", "T", "P"];
  let value = count / 1024;
  let unit = 0;
  for (; value >= 999.5 && unit + 1 < units.length; unit += 1) value /= 1024;
  return `${value.toFixed(value < 9.95 && unit > 0 ? 1 : 0)}${units[unit]}`;
}

/** The name of a user; other identities have their names in them. */
const who = (status, identity) => status.host?.names?.[identity] ?? identity ?? "";

/** The processes as a tree, a line each. */
function tree(all) {
  const children = new Map();
  const pids = new Set(list(all).map((process) => process.pid));
  const roots = [];
  for (const process of list(all)) {
    if (pids.has(process.parent) && process.parent !== process.pid) {
      children.set(process.parent, [...(children.get(process.parent) ?? []), process]);
    } else {
      roots.push(process);
    }
  }
  const lines = [];
  const grow = (siblings, indent) => {
    siblings.forEach((process, at) => {
      if (lines.length >= PROCESSES_MAX) return;
      const isLast = at + 1 === siblings.length;
      lines.push(`${indent}${isLast ? "└ " : "├ "}${process.pid} ${clean(process.name)}`);
      grow(children.get(process.pid) ?? [], `${indent}${isLast ? "  " : "│ "}`);
    });
  };
  grow(roots, "");
  const more = pids.size - lines.length;
  if (more > 0) lines.push(`… and ${more} more processes`);
  return lines.join("\n");
}

// ---- rows: what each section shows, as plain data

// A state is a word and a colour.
const state = (text, tone = "") => ({ text, tone });
const STATES = {
  // Of jobs and turns.
  running: "run", cancelling: "busy", "input required": "busy",
  // Of servers, instances and agents.
  ready: "good", starting: "busy", draining: "busy", ending: "busy", failed: "bad",
  // Of tasks and calls that have ended.
  working: "run", completed: "good", ok: "good", error: "bad", stopped: "busy",
};
const stateOf = (word) => {
  const text = String(word ?? "").replace("_", " ");
  return state(text, Object.hasOwn(STATES, text) ? STATES[text] : "");
};

function jobRows(status) {
  const order = ["cancelling", "running", "input_required", "queued"];
  const rank = (job) => order.indexOf(job.state);
  const jobs = [...list(status.jobs)].sort((a, b) => rank(a) - rank(b) || a.job - b.job);
  return jobs.map((job) => {
    const work = status.host?.jobs?.[job.job] ?? {};
    const details = [];
    if (work.arguments) details.push({ text: work.arguments, kind: "code" });
    const usage = usageOf(work.cpuPercent, work.memoryBytes, status.host?.processes?.[job.job]);
    if (usage) details.push(usage);
    if (job.state === "cancelling") {
      details.push(`cancelling for ${span(job.cancellingMs)}, step ${job.step}: ` +
        `${job.said ?? job.reason}${job.by ? `, by ${who(status, job.by)}` : ""}`);
    }
    if (job.state === "input_required") details.push("waits for an answer of its requestor");
    if (job.state === "queued") details.push(String(job.waiting ?? "waits for a worker"));
    if (job.progress !== undefined) {
      const total = job.total === undefined ? "" : `/${job.total}`;
      details.push(`${job.progress}${total} ${job.message ?? ""}`);
    }
    if (work.lastLine) details.push({ text: `| ${work.lastLine}`, kind: "code" });
    if (job.task) details.push(`task ${job.task}`);
    return {
      key: `job-${job.job}`, id: `#${job.job}`, name: job.tool, owner: who(status, job.identity),
      age: ago(job.elapsedMs), details, state: stateOf(job.state),
      progress: job.total > 0 ? Math.min(1, Math.max(0, job.progress / job.total)) : null,
      tree: tree(status.host?.processes?.[job.job]),
      stop: job.state === "cancelling" ? null : stopOfJob(job.job),
    };
  });
}

// The requests behind the buttons, and their objects in words.
const stopOfJob = (job) => ((job ?? null) === null ? null : {
  object: `job ${job}`, method: "ceased/cancel", params: { job }, ends: "it has ended when its receipt is listed",
});
const stopOfTask = (task) => ({
  object: `task ${task.task.slice(0, 8)}`, method: "tasks/cancel", params: { taskId: task.task },
  ends: `the node ${task.node} stops its work`,
});

/** CPU, memory and number of processes, as far as known. */
function usageOf(percent, memory, all) {
  const words = [];
  if (percent !== undefined) words.push(`${percent}% CPU`);
  if (memory !== undefined) words.push(bytes(memory));
  if (list(all).length > 0) words.push(processes(all.length));
  return words.join(", ");
}

function receiptRows(status) {
  return list(status.host?.receipts).map((receipt) => {
    const proof = receipt.proof ? `; server ${receipt.server}: ${receipt.proof}` : "";
    return {
      key: `receipt-${receipt.job}`, id: `#${receipt.job}`, name: receipt.tool,
      owner: who(status, receipt.identity), age: ago(receipt.ended_ago_ms),
      state: receiptState(receipt), headline: receiptEnd(receipt),
      details: [`${receipt.reason ?? receipt.why}, by ${who(status, receipt.by)}${proof}`],
    };
  });
}

function receiptEnd(receipt) {
  // Of a request that a server or an agent worked on.
  if (receipt.end) return receipt.end;
  const left = receipt.survivors;
  if (receipt.died_after_ms !== null && receipt.died_after_ms !== undefined) {
    return `${processes(receipt.processes_ended)} ended, ${known(left)} left, ` +
      `in ${millis(receipt.died_after_ms)}`;
  }
  if (left === null || left === undefined) return "its end is not known";
  return `${processes(receipt.processes_ended)} ended, ${left} cannot be ended`;
}

function receiptState(receipt) {
  if (receipt.survivors === 0) return state("ceased", "good");
  // An answer is evidence of an end, but counts no process.
  if (receipt.proof === "answered") return state("answered", "good");
  return state("check", "bad");
}

/** Calls that have ended, the newest first. */
function endedRows(status) {
  return list(status.host?.ended).map((call) => {
    const code = call.exit_code === null || call.exit_code === undefined ? "" : `, exit code ${call.exit_code}`;
    const signal = call.signal === null || call.signal === undefined ? "" : `, signal ${call.signal}`;
    const details = call.arguments ? [{ text: call.arguments, kind: "code" }] : [];
    details.push(`took ${millis(call.duration_ms)}${code}${signal}`);
    if (call.receipt) details.push(receiptEnd(call.receipt));
    return {
      key: `ended-${call.job}`, id: `#${call.job}`, name: call.tool,
      owner: who(status, call.identity), age: ago(call.ended_ago_ms), state: stateOf(call.outcome), details,
    };
  });
}

function serverRows(status) {
  return list(status.servers).flatMap((server) => {
    const details = [];
    if (server.tools !== null && server.tools !== undefined) details.push(`${server.tools} tools`);
    details.push(`one instance per ${server.share}`);
    if (server.mayStartInMs) details.push(`may start in ${span(server.mayStartInMs)}`);
    const problems = list(server.warnings).map((text) => ({ text: `warning: ${text}`, kind: "bad" }));
    if (server.lastError) problems.unshift(server.lastError);
    const head = {
      key: `server-${server.server}`, id: "", name: server.server, owner: "", age: "",
      state: stateOf(server.state), details: [details.join(", "), ...problems],
    };
    return [head, ...list(server.instances).map((it) => instanceRow(server, it, status))];
  });
}

function instanceRow(server, instance, status) {
  const host = status.host?.instances?.[instance.instance];
  const jobs = list(instance.jobs).map((job) => `job ${job}`).join(", ") || "no call";
  const words = [instance.waiting > 0 ? `${jobs}, ${instance.waiting} waiting` : jobs];
  if (host) words.push(usageOf(undefined, memoryOf(host), host.processes));
  if (instance.why && instance.state !== "ready") words.push(instance.why);
  const errors = list(host?.stderr).slice(-3).map((line) => ({ text: `| ${line}`, kind: "code" }));
  return {
    key: `instance-${instance.instance}`, id: `i${instance.instance}`, name: server.server,
    owner: who(status, instance.identity), age: host ? ago(host.uptimeMs) : "",
    state: stateOf(instance.state),
    details: [words.join(", "), ...errors], tree: tree(host?.processes),
  };
}

const memoryOf = (host) => list(host?.processes).reduce((sum, it) => sum + (it.memoryBytes ?? 0), 0);

/** Clients of ACP agents, each with the requests that its agent works on. */
function agentRows(status) {
  return list(status.agents).flatMap((agent) => list(agent.clients).flatMap((client) => [
    agentRow(agent, client, status),
    ...list(client.requests).map((request) => turnRow(agent, client, request, status)),
  ]));
}

function agentRow(agent, client, status) {
  const host = status.host?.instances?.[client.instance];
  const words = [`on connection ${client.connection}`];
  if (host) words.push(usageOf(undefined, memoryOf(host), host.processes));
  return {
    key: `agent-${client.connection}`, name: agent.agent, owner: who(status, client.identity),
    id: client.instance === undefined ? "" : `i${client.instance}`, age: ago(client.elapsedMs),
    state: stateOf(client.state),
    details: [words.join(", ")], tree: tree(host?.processes),
  };
}

function turnRow(agent, client, request, status) {
  const isCancelling = request.state === "cancelling";
  const by = request.by ? `, cancelled by ${who(status, request.by)}` : "";
  const cause = request.waiting ? `, waits for ${request.waiting}` : "";
  return {
    key: `turn-${request.job}`, id: `#${request.job}`, name: `${agent.agent} ${request.method}${request.object ? ` ${request.object}` : ""}`,
    owner: who(status, client.identity), age: ago(request.elapsedMs),
    state: stateOf(request.state),
    details: [`on connection ${client.connection}${by}${cause}`],
    stop: isCancelling || request.method === "initialize" ? null : stopOfJob(request.job),
  };
}

// The tasks of this node, and those that run at other nodes of its fleet.
function allTasks(status) {
  const own = list(status.taskList);
  const known = new Set(own.map((task) => task.task));
  return own.concat(list(status.host?.fleet?.tasks).filter((task) => !known.has(task.task)));
}

function taskRows(status) {
  return allTasks(status).map((task) => {
    const isStopping = task.status === "cancelled" && (task.job !== undefined || task.work === "ending");
    // One of this node is cancelled by its job; one of another identity by its owner alone.
    const isAway = task.node !== undefined && task.node !== status.host.fleet.node &&
      task.identity === status.identity && ["working", "input_required"].includes(task.status);
    const details = [];
    if (task.statusMessage) details.push(task.statusMessage);
    if (task.ttlLeftMs !== undefined) details.push(`kept for ${span(task.ttlLeftMs)}`);
    if (task.job !== undefined) details.push(`job ${task.job}`);
    if (task.node !== undefined) details.push(`at the node ${task.node}`);
    if (task.work !== undefined && !isStopping) details.push(`its work: ${task.work}`);
    return {
      key: `task-${task.task}`, id: task.task.slice(0, 8), name: task.tool, owner: who(status, task.identity),
      age: ago(task.ageMs), details: details.length ? [details.join(", ")] : [],
      state: isStopping ? state("cancelled, cancelling its job", "busy") : stateOf(task.status),
      stop: isAway ? stopOfTask(task) : null,
    };
  });
}

function peerRows(status) {
  return list(status.peers).map((peer) => ({
    key: `peer-${peer.connection}`, id: peer.connection, name: peer.protocol === "ACP" ? "ACP" : `MCP ${peer.protocol}`,
    owner: who(status, peer.identity), age: ago(peer.elapsedMs), state: state(""),
    details: [`${peer.requests} requests, ${peer.inFlight} unanswered`],
  }));
}

const SECTIONS = {
  receipts: receiptRows, jobs: jobRows, agents: agentRows, servers: serverRows, tasks: taskRows,
  ended: endedRows, peers: peerRows,
};
// Rows that are shown before "Show all"; a filter finds all of them.
const FIRST = { receipts: 3, ended: 5 };
// Sections that are shown where they have rows alone.
const OPTIONAL = ["agents"];

// ---- elements

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function makeRow() {
  const row = element("li", "row");
  row.tabIndex = -1;
  const head = element("div", "head");
  for (const part of ["id", "name", "owner", "state badge", "age", "actions"]) {
    head.append(element("span", part));
  }
  const progress = element("progress");
  progress.max = 1;
  row.append(head, element("p", "headline"), progress, element("div", "details"), element("pre"));
  return row;
}

function fillRow(row, data) {
  const part = (name) => row.querySelector(`.head > .${name}`);
  for (const name of ["id", "name", "owner", "age"]) setText(part(name), clean(data[name]));
  const state = part("state");
  setText(state, clean(data.state.text));
  state.className = `state badge ${data.state.tone}`;
  state.hidden = data.state.text === "";
  const headline = row.querySelector(".headline");
  setText(headline, clean(data.headline));
  headline.className = `headline ${data.state.tone}`;
  headline.hidden = !data.headline;
  const progress = row.querySelector("progress");
  const share = data.progress ?? null;
  progress.hidden = share === null;
  if (share !== null) progress.value = share;
  const details = row.querySelector(".details");
  const lines = list(data.details).map((line) => (line.kind ? line : { text: line, kind: "" }));
  while (details.children.length > lines.length) details.lastChild.remove();
  lines.forEach((line, at) => {
    if (!details.children[at]) details.append(element("div"));
    details.children[at].className = `detail ${line.kind}`;
    setText(details.children[at], clean(line.text));
  });
  const pre = row.querySelector("pre");
  setText(pre, data.tree ?? "");
  pre.hidden = !data.tree;
  fillActions(row, part("actions"), data.stop ?? null);
}

/** The cancel button of a row, or the question that it leads to. */
function fillActions(row, actions, wish) {
  if (wish === null) {
    if (actions.firstChild) {
      const hadFocus = actions.contains(document.activeElement);
      actions.replaceChildren();
      if (hadFocus) row.focus();
    }
    return;
  }
  if (actions.firstChild) return;
  const ask = element("button", "cancel", "Cancel");
  ask.type = "button";
  ask.setAttribute("aria-label", `Cancel ${wish.object}`);
  const keep = element("button", "keep", "Keep it");
  const stop = element("button", "stop strong", `Cancel ${wish.object}`);
  keep.type = stop.type = "button";
  const show = (isAsking) => {
    ask.hidden = isAsking;
    stop.hidden = keep.hidden = !isAsking;
    (isAsking ? stop : ask).focus();
  };
  ask.addEventListener("click", () => show(true));
  keep.addEventListener("click", () => show(false));
  stop.addEventListener("click", () => {
    show(false);
    cancel(wish);
  });
  stop.hidden = keep.hidden = true;
  actions.append(ask, stop, keep);
}

function textOf(data) {
  const details = list(data.details).map((line) => line.text ?? line);
  const texts = [data.id, data.name, data.owner, data.state.text, data.age, data.headline, ...details, data.tree];
  return clean(texts.join(" ")).toLowerCase();
}

/** Shows the rows that match the filter; elements stay, so that the focus stays. */
function fillSection(id, rows) {
  const section = byId(id);
  const wanted = byId("filter").value.trim().toLowerCase();
  const found = rows.filter((data) => textOf(data).includes(wanted));
  const most = wanted !== "" || page.whole.has(id) ? found.length : FIRST[id] ?? found.length;
  const shown = found.slice(0, most);
  const more = section.querySelector("button.more");
  if (more) more.hidden = shown.length === found.length;
  const target = section.querySelector("ul");
  const before = new Map([...target.children].map((row) => [row.dataset.key, row]));
  const focused = document.activeElement;
  let lost = target.contains(focused) ? focused.closest("li")?.dataset.key : undefined;
  shown.forEach((data, at) => {
    const row = before.get(data.key) ?? makeRow();
    before.delete(data.key);
    row.dataset.key = data.key;
    fillRow(row, data);
    if (target.children[at] !== row) target.insertBefore(row, target.children[at] ?? null);
    if (data.key === lost) lost = undefined;
  });
  for (const row of before.values()) row.remove();
  if (document.activeElement === document.body && target.contains(focused)) focused.focus();
  // The row with the focus is gone: its place goes on to another row.
  if (lost !== undefined) (rowsShown()[0] ?? byId("filter")).focus();
  const all = rows.length;
  setText(section.querySelector(".count"), shown.length === all ? String(all) : `${shown.length} of ${all}`);
  section.hidden = OPTIONAL.includes(id) && all === 0;
  const empty = section.querySelector(".empty");
  empty.hidden = shown.length > 0;
  empty.dataset.text ??= empty.textContent;
  setText(empty, all > 0 ? "Nothing matches the filter." : empty.dataset.text);
}

const rowsShown = () => [...document.querySelectorAll("#view li.row")];

// ---- the page

const page = { status: null, token: null, stream: null, failures: 0, timer: 0, ended: [], whole: new Set() };

function show(status) {
  // Not every status has the calls that have ended.
  if (status.host?.ended) page.ended = status.host.ended;
  else if (status.host) status.host.ended = page.ended;
  page.status = status;
  setText(byId("name"), `${clean(status.server)} ${clean(status.version)}`);
  const host = status.host ?? {};
  const seen = status.operator ? "the jobs of all users" : "your own jobs";
  const asking = status.inputRequired > 0 ? `, ${status.inputRequired} waiting for an answer` : "";
  const counts = `${status.running} running${asking}, ${status.queued} queued, ` +
    `${status.cancelling} cancelling`;
  const left = host.survivors ?? list(host.receipts).reduce((sum, it) => sum + (it.survivors ?? 0), 0);
  const drains = status.draining ? ", shutting down" : "";
  const nodes = list(host.fleet?.nodes).map((node) => `${node.name} (${node.tasks} live${node.state === "live" ? "" : `, ${node.state}`})`);
  const fleet = nodes.length ? ` · node ${host.fleet.node} of ${nodes.join(", ")}` : "";
  setText(byId("summary"), clean(`up ${span(host.uptimeMs ?? 0)}${drains} · ${who(status, status.identity)}, ` +
    `showing ${seen} · ${counts} · processes left after cancels: ${left}${fleet}`));
  notice(status.identity === "anonymous"
    ? "Without a link or a token the daemon cannot know which jobs are yours, so it lists none: " +
      "open the link that `ceased view` prints on this machine, or set token_file at this listener."
    : "");
  const jobs = status.running + (status.inputRequired ?? 0) + status.queued + status.cancelling;
  document.title = `${jobs} jobs · ${clean(status.server)}`;
  byId("view").hidden = false;
  byId("token-form").hidden = true;
  byId("forget").hidden = page.token === null;
  fill();
}

function fill() {
  if (!page.status) return;
  for (const [id, rows] of Object.entries(SECTIONS)) fillSection(id, rows(page.status));
}

function notice(text) {
  setText(byId("notice"), text);
  byId("notice").hidden = text === "";
}

function setLink(text, tone) {
  const link = byId("link");
  setText(link, text);
  link.className = `badge ${tone}`;
}

const say = (text) => setText(byId("said"), clean(text));

// ---- the token

function storedToken() {
  try {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
  } catch {
    return page.token;
  }
}

/** Keeps a token: one of a link for this tab, another for this browser. */
function keepToken(token) {
  const isOfLink = LINK.test(page.token ?? "") || LINK.test(token ?? "");
  page.token = token;
  try {
    const storage = isOfLink ? sessionStorage : localStorage;
    if (token === null) storage.removeItem(KEY);
    else storage.setItem(KEY, token);
  } catch {
    // Without storage the token lasts as long as the page.
  }
}

/** Takes the code of a link out of the address, so that it stays in no history. */
function takeLink() {
  const code = LINK.exec(location.hash)?.[1];
  if (code === undefined) return false;
  history.replaceState(null, "", location.pathname + location.search);
  page.token = code;
  return true;
}

function askForToken(problem) {
  hideView();
  setLink("no access", "bad");
  setText(byId("token-problem"), problem);
  byId("token-form").hidden = false;
  byId("token").value = "";
  byId("token").focus();
}

/** Removes all rows: they belong to a user that is gone. */
function hideView() {
  page.status = null;
  page.ended = [];
  byId("view").hidden = true;
  byId("forget").hidden = true;
  for (const target of document.querySelectorAll("#view ul")) target.replaceChildren();
  setText(byId("summary"), "");
  setText(byId("name"), "ceased");
  document.title = "ceased";
  say("");
  notice("");
}

const authorization = () => (page.token === null ? {} : { Authorization: `Bearer ${page.token}` });

// ---- the stream

function connect() {
  clearTimeout(page.timer);
  page.stream?.abort();
  const stream = new AbortController();
  page.stream = stream;
  read(stream).catch((error) => `the daemon cannot be reached (${error.message})`).then((why) => {
    if (page.stream !== stream) return;
    page.stream = null;
    if (why === null) return;
    setLink("not connected", "bad");
    notice(`${why}; trying again`);
    const wait = RETRY_MS[Math.min(page.failures, RETRY_MS.length - 1)];
    page.failures += 1;
    page.timer = setTimeout(connect, wait);
  });
}

/** Shows the events of a stream until its end. Returns why it ended, or null for no retry. */
async function read(stream) {
  if (page.status === null) setLink("connecting", "");
  const headers = { Accept: "text/event-stream", ...authorization() };
  const response = await fetch("events", { headers, signal: stream.signal, cache: "no-store" });
  if (page.stream !== stream) return null;
  if (response.status === 401) {
    let problem = page.token === null ? "" : "The daemon does not know this token.";
    if (LINK.test(page.token ?? "")) {
      problem = "This link has been used or has ended: run `ceased view` for another.";
    }
    keepToken(null);
    askForToken(problem);
    return null;
  }
  if (!response.ok) {
    return `the daemon refuses (${response.status}): ${clean((await response.text()).trim().slice(0, 300))}`;
  }
  const granted = response.headers.get("ceased-view-token");
  if (granted !== null) keepToken(granted);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const silence = setTimeout(() => stream.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (page.stream !== stream) return null;
    if (done) return "the daemon has closed the stream";
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) take(event);
  }
}

function take(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  if (lines.length === 0) return;
  const message = JSON.parse(lines.map((line) => line.slice(5).trimStart()).join("\n"));
  if (message.error) {
    setLink("not live", "bad");
    notice(clean(message.error.message));
    return;
  }
  page.failures = 0;
  setLink("live", "good");
  show(message.result);
}

// ---- cancelling

let lastRequest = 0;

/** Cancels a job or a task. */
async function cancel({ object, method, params, ends }) {
  lastRequest += 1;
  const able = { extensions: { "io.modelcontextprotocol/tasks": {} } };
  const meta = { "io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": able };
  const body = JSON.stringify({
    jsonrpc: "2.0", id: lastRequest, method, params: { ...params, reason: "live view", _meta: meta },
  });
  const headers = {
    "Content-Type": "application/json", Accept: "application/json",
    "MCP-Protocol-Version": VERSION, "Mcp-Method": method, ...authorization(),
  };
  if (params.taskId !== undefined) headers["Mcp-Name"] = params.taskId;
  try {
    const response = await fetch("mcp", { method: "POST", headers, body, cache: "no-store" });
    const text = await response.text();
    let answer = null;
    try {
      answer = JSON.parse(text);
    } catch {
      // A refusal is a line of text.
    }
    if (answer?.result) say(`stopping ${object}; ${ends}`);
    else say(`${object} is not cancelled: ${answer?.error?.message ?? text.trim()}`);
  } catch (error) {
    say(`${object} is not cancelled: the daemon cannot be reached (${error.message})`);
  }
}

// ---- keys

function move(by) {
  const rows = rowsShown();
  const at = rows.indexOf(document.activeElement?.closest("li.row"));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next]?.focus();
  rows[next]?.scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || byId("view").hidden) return;
  const filter = byId("filter");
  if (event.target === filter) {
    if (event.key === "Escape") {
      filter.value = "";
      fill();
      filter.blur();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      move(1);
    } else {
      return;
    }
    event.preventDefault();
    return;
  }
  const row = event.target.closest?.("li.row");
  const button = (name) => row?.querySelector(`button.${name}:not([hidden])`);
  const keys = {
    "/": () => filter.select(),
    "j": () => move(1), "ArrowDown": () => move(1),
    "k": () => move(-1), "ArrowUp": () => move(-1),
    "c": () => button("cancel")?.click(),
    "Escape": () => (button("keep") ? button("keep").click() : row?.blur()),
  };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

// ---- start

for (const button of document.querySelectorAll("button.more")) {
  button.addEventListener("click", () => {
    page.whole.add(button.closest("section").id);
    fill();
  });
}
if (["127.0.0.1", "localhost", "[::1]"].includes(location.hostname)) {
  const port = location.port || (location.protocol === "https:" ? "443" : "80");
  setText(byId("tunnel"), `ssh -L ${port}:${location.hostname}:${port} HOST`);
  byId("ssh").hidden = false;
}
byId("filter").addEventListener("input", fill);
document.addEventListener("keydown", onKey);
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) {
    askForToken("A token has no spaces, and letters and digits of English alone.");
    return;
  }
  keepToken(token);
  connect();
});
byId("forget").addEventListener("click", () => {
  keepToken(null);
  hideView();
  connect();
});
// A page in the background costs the daemon nothing.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    if (!page.stream && byId("token-form").hidden) connect();
    return;
  }
  clearTimeout(page.timer);
  page.stream?.abort();
  page.stream = null;
});
// A link that is opened in the tab of the page.
window.addEventListener("hashchange", () => {
  if (!takeLink()) return;
  byId("token-form").hidden = true;
  hideView();
  connect();
});
if (!takeLink()) page.token = storedToken();
connect();
