"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const STEP = 200;

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
const count = (value) => value.toLocaleString("en");
const size = (bytes) => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Number(bytes.toFixed(unit === "B" ? 0 : 1)) < 1024) return `${unit === "B" ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return `${bytes.toFixed(1)} TiB`;
};
const duration = (ns) => {
  for (const unit of ["ns", "µs", "ms"]) {
    if (Number(ns.toFixed(unit === "ns" ? 0 : 2)) < 1000) return `${unit === "ns" ? ns : ns.toFixed(2)} ${unit}`;
    ns /= 1000;
  }
  return `${ns.toFixed(2)} s`;
};
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "");

/** A table that sorts by a click; columns: {title, value(row), text(row), number, cell(row)}. */
function table(target, columns, rows, sortedBy, limit) {
  let column = sortedBy;
  let descending = true;
  const head = element("tr");
  const body = element("tbody");
  for (const one of columns) {
    const cell = element("th", undefined, one.number ? "number" : "");
    const button = element("button", one.title);
    button.onclick = () => {
      descending = column === one ? !descending : Boolean(one.number);
      column = one;
      draw();
    };
    cell.append(button);
    one.head = cell;
    head.append(cell);
  }
  const top = element("thead");
  top.append(head);
  target.append(top, body);
  let shown = rows;
  let most = limit;
  function draw() {
    for (const one of columns) one.head.removeAttribute("aria-sort");
    column.head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sorted = [...shown].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (descending ? -1 : 1);
    });
    body.replaceChildren(
      ...sorted.slice(0, most).map((row) => {
        const line = element("tr");
        for (const one of columns) line.append(one.cell ? one.cell(row) : element("td", one.text(row), one.number ? "number" : ""));
        return line;
      }),
    );
  }
  draw();
  return {
    show(wanted, number) {
      shown = wanted;
      most = number;
      draw();
    },
  };
}

const numeric = (title, key, text) => ({ title, key, number: true, value: (row) => row[key], text: (row) => text(row[key]) });

const instructionsOfAll = () => data.functions.reduce((sum, row) => sum + row.self_instructions, 0);

function functions() {
  const whole = instructionsOfAll();
  const columns = [
    {
      title: "function",
      value: (row) => row.name,
      cell: (row) => {
        const cell = element("td", row.name, row.symbol_status.startsWith("none") ? "name nameless" : "name");
        const place = row.file ? `${row.file}${row.line ? `:${row.line}` : ""}` : row.symbol_status.startsWith("none") ? row.symbol_status : "";
        if (place) cell.append(element("small", place));
        return cell;
      },
    },
    { title: "module", value: (row) => row.module, text: (row) => row.module.split("/").pop() },
    { title: "category", value: (row) => row.category, text: (row) => row.category },
    numeric("calls", "calls", count),
    numeric("self instructions", "self_instructions", count),
    { title: "%", number: true, value: (row) => row.self_instructions, text: (row) => share(row.self_instructions, whole) },
    numeric("total instructions", "total_instructions", count),
    numeric("self time", "self_ns", duration),
    numeric("total time", "total_ns", duration),
  ];
  const first = columns.find((one) => one.key === data.sorted_by);
  const shownTable = table(document.getElementById("function-table"), columns, data.functions, first, STEP);
  const filter = document.getElementById("filter");
  const more = document.getElementById("more");
  let most = STEP;
  const refresh = () => {
    const wanted = filter.value.toLowerCase();
    const rows = data.functions.filter((row) => `${row.name} ${row.module} ${row.category} ${row.file}`.toLowerCase().includes(wanted));
    shownTable.show(rows, most);
    document.getElementById("shown").textContent = `${count(Math.min(most, rows.length))} of ${count(rows.length)} functions`;
    more.hidden = rows.length <= most;
  };
  filter.oninput = () => {
    most = STEP;
    refresh();
  };
  more.onclick = () => {
    most *= 4;
    refresh();
  };
  refresh();
}

/** Tabs for what is not known of every session. */
function tableWhereKnown(view, id, columns, rows, sortedBy) {
  document.querySelector(`[data-view=${view}]`).hidden = !rows?.length;
  if (rows?.length) table(document.getElementById(id), columns, rows, sortedBy, Infinity);
}

function categories() {
  const whole = instructionsOfAll();
  const self = numeric("self instructions", "self_instructions", count);
  const columns = [
    { title: "category", value: (row) => row.category, text: (row) => row.category },
    numeric("functions", "functions", count),
    numeric("calls", "calls", count),
    self,
    numeric("%", "self_instructions", (value) => share(value, whole)),
    numeric("self time", "self_ns", duration),
  ];
  tableWhereKnown("categories", "category-table", columns, data.categories, self);
}

function inlined() {
  const functions = new Map(data.functions.map((row) => [row.function, row]));
  const instructions = numeric("instructions", "instructions", count);
  const nameOf = (row) => functions.get(row.function)?.name ?? "";
  const part = (row) => share(row.instructions, functions.get(row.function)?.self_instructions);
  const columns = [
    { title: "function", value: nameOf, text: nameOf },
    { title: "inlined into it", value: (row) => row.chain, text: (row) => row.chain },
    instructions,
    { title: "% of the function", number: true, value: (row) => parseFloat(part(row)) || 0, text: part },
  ];
  tableWhereKnown("inlined", "inlined-table", columns, data.inlined, instructions);
}

function listNotes(id, notes) {
  for (const note of notes) {
    const item = element("li", note.text);
    if (note.way_out) item.append(element("small", note.way_out));
    document.getElementById(id).append(item);
  }
}

function facts() {
  document.title = `${data.session.target} ${data.session.session_id} - permille`;
  document.getElementById("title").textContent = `permille: ${data.session.target}`;
  const list = document.getElementById("facts");
  for (const [name, value] of data.facts) list.append(element("dt", name), element("dd", value));
  listNotes("notes", data.notes);
  listNotes("picture-notes", data.picture_notes);
}

function losses() {
  const { lost_bytes: lost, raw_bytes: recorded, unrecorded_bytes: unrecorded } = data.session;
  // What cannot be decoded lies within what was recorded.
  const part = share(lost, recorded + unrecorded);
  document.getElementById("loss-total").textContent = lost
    ? `${size(lost)} of trace are lost${part && `: ${part} of all`}. What is lost is in no other table.`
    : data.losses.length
      ? "No trace was lost; the places below could not be followed."
      : "Nothing was lost.";
  if (!data.losses.length) return;
  const bytes = numeric("trace", "size_bytes", (value) => (value ? size(value) : ""));
  table(
    document.getElementById("loss-table"),
    [
      { title: "reason", value: (row) => row.reason, text: (row) => row.reason },
      numeric("places", "places", count),
      bytes,
      numeric("time", "length_ns", (value) => (value ? duration(value) : "")),
      { title: "what makes it less", value: (row) => row.knob, text: (row) => row.knob },
    ],
    data.losses,
    bytes,
    Infinity,
  );
}

function threads() {
  const instructions = numeric("instructions", "instructions", count);
  table(
    document.getElementById("thread-table"),
    [
      { title: "thread", value: (row) => row.thread, text: (row) => row.thread },
      numeric("pid", "pid", String),
      numeric("tid", "tid", String),
      instructions,
      numeric("conditional branches", "branches", count),
      numeric("trace", "size_bytes", size),
      numeric("lost", "lost_bytes", (value) => (value ? size(value) : "0")),
      numeric("errors", "errors", count),
      { title: "buffer", value: (row) => row.buffer_full, text: (row) => (row.buffer_full ? "ran full" : "") },
    ],
    data.segments,
    instructions,
    Infinity,
  );
}

/** The viewer calls this with what it cannot cope with: by itself it shows no more than that something is wrong. */
window.permilleFailed = (error) => {
  const told = document.getElementById("viewer-failed");
  if (!told.hidden) return;
  told.hidden = false;
  told.textContent = `The viewer cannot draw these calls: ${error}. With fewer it may: permille report ${data.session.session_id} --html FILE --max-calls N`;
};

/** The viewer calls this when it is there. */
window.permilleShow = (speedscope) => {
  const name = `${data.session.target} ${data.session.session_id}`;
  try {
    speedscope.loadFileFromBase64(`${name}.speedscope.json`, document.getElementById("profile").textContent.trim());
  } catch (error) {
    permilleFailed(error);
  }
};

let opened = false;
function openViewer() {
  if (opened) return;
  opened = true;
  if (!data.has_calls) {
    document.getElementById("no-calls").hidden = false;
    return;
  }
  const bytes = Uint8Array.from(atob(document.getElementById("viewer").textContent.trim()), (c) => c.charCodeAt(0));
  const frame = element("iframe");
  frame.title = "flame graph and time line";
  frame.srcdoc = new TextDecoder().decode(bytes);
  document.getElementById("view-pictures").append(frame);
  frame.addEventListener("load", () => {
    frame.contentWindow.addEventListener("error", (event) => permilleFailed(event.error ?? event.message));
    frame.contentWindow.addEventListener("unhandledrejection", (event) => permilleFailed(event.reason));
  });
}

function select(view) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(chosen));
    document.getElementById(`view-${tab.dataset.view}`).hidden = !chosen;
  }
  if (view === "pictures") openViewer();
}

facts();
functions();
categories();
inlined();
losses();
threads();
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.onclick = () => {
    select(tab.dataset.view);
    history.replaceState(null, "", `#${tab.dataset.view}`);
  };
}
const asked = location.hash.slice(1);
if (document.querySelector(`[data-view="${CSS.escape(asked)}"]`)) select(asked);
