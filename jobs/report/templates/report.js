"use strict";
// The page of questions. Texts come from logs: they reach the page as text nodes only, never as markup.
(() => {
  const SHOWN = 25, KEPT = 12, FIRST = 10;
  const byId = (id) => document.getElementById(id);

  // Only what really scrolls is a stop for the keyboard.
  function stops() {
    for (const one of document.querySelectorAll(".scroll")) {
      if (one.scrollWidth > one.clientWidth) one.setAttribute("tabindex", "0"); else one.removeAttribute("tabindex");
    }
  }
  stops();
  window.addEventListener("resize", stops);
  document.addEventListener("toggle", stops, true);

  const browser = byId("browser"), note = byId("browser-note");
  if (!browser) return;
  if (typeof DecompressionStream !== "function") return;
  const collections = JSON.parse(byId("collections").textContent);
  if (!collections.length) return;

  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) {
      if (child !== null && child !== undefined) made.append(child instanceof Node ? child : document.createTextNode(child));
    }
    return made;
  }

  async function unpack(id) {
    const packed = atob(byId(id).textContent.trim());
    const bytes = new Uint8Array(packed.length);
    for (let n = 0; n < bytes.length; n++) bytes[n] = packed.charCodeAt(n);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).json();
  }

  const kept = new Map();
  function load(id) {
    if (!kept.has(id)) {
      for (const old of kept.keys()) if (kept.size >= KEPT && !old.startsWith("index")) kept.delete(old);
      kept.set(id, unpack(id));
    }
    return kept.get(id);
  }

  const ends = (counts) => { let sum = 0; return counts.map((n) => [sum, sum += n]); };
  const number = (value) => value.toLocaleString("en");
  const rankText = (rank) => rank > 0 ? `rank ${number(rank)}` : rank === 0 ? "not found" : "not judged";

  const state = { collection: 0, index: null, found: [], page: 0, open: null, shown: null, redraw: null };
  const form = make("form", { onsubmit: (event) => event.preventDefault() });
  const status = make("p", { role: "status", class: "note" });
  const list = make("div", { id: "list" });
  const pager = make("div", { class: "pager" });
  const detail = make("article", { id: "detail", hidden: true, "aria-label": "Question" });
  const fields = {};

  function field(name, word, control) {
    fields[name] = control;
    control.setAttribute("id", `field-${name}`);
    control.addEventListener(control.tagName === "INPUT" ? "input" : "change", () => {
      if (name === "collection") { choose(Number(control.value)); return; }
      filter();
      if (name === "a" || name === "b") { state.shown = null; state.redraw?.(); }
    });
    form.append(make("div", {}, make("label", { for: `field-${name}` }, word), control));
  }

  function options(control, words) {
    control.replaceChildren(...words.map(([value, word]) => make("option", { value }, word)));
  }

  const OUTCOMES = [
    ["all", "all questions"],
    ["first", "first preset ranks evidence higher"],
    ["second", "second preset ranks evidence higher"],
    ["differ", "they differ"],
    ["miss", `first preset has none in the first ${FIRST}`],
    ["both", `both have none in the first ${FIRST}`],
    ["unjudged", "not judged"],
  ];

  function outcome(a, b) {
    const higher = (x, y) => x > 0 && (y <= 0 || x < y);
    const misses = (x) => x === 0 || x > FIRST;
    return {
      all: true, first: higher(a, b), second: higher(b, a), differ: a !== b, miss: misses(a), both: misses(a) && misses(b), unjudged: a < 0,
    };
  }

  function build() {
    if (collections.length > 1) {
      field("collection", "Generations", make("select"));
      options(fields.collection, collections.map((one, n) => [n, one.name]));
    }
    field("text", "Question or case holds", make("input", { type: "search", autocomplete: "off", spellcheck: "false" }));
    for (const [name, word] of [["type", "Type"], ["a", "First preset"], ["b", "Second preset"], ["outcome", "Show"]]) field(name, word, make("select"));
    options(fields.outcome, OUTCOMES);
    browser.append(form, make("div", { class: "found" }, status, pager), list, detail);
    browser.hidden = false;
    note.hidden = true;
  }

  async function choose(number) {
    state.collection = number;
    state.index = null;
    status.textContent = "Unpacking the questions ...";
    const index = await load(`index-${number}`);
    const told = collections[number];
    index.lower = index.text.map((text, n) => `${text}\n${index.cases[index.case[n]]}`.toLowerCase());
    state.index = index;
    state.shown = state.open = state.redraw = null;
    detail.hidden = true;
    options(fields.type, [["", "all types"], ...index.types.map((name, n) => [n, name || "(no type)"])]);
    for (const [control, chosen] of [[fields.a, told.chosen[0]], [fields.b, told.chosen[1]]]) {
      options(control, told.presets.map((name, n) => [n, name]));
      control.value = chosen;
    }
    filter();
  }

  function filter() {
    const { index } = state;
    if (!index) return;
    const wanted = fields.text.value.toLowerCase(), type = fields.type.value, show = fields.outcome.value;
    const a = index.first[fields.a.value] || [], b = index.first[fields.b.value] || [];
    state.found = [];
    for (let n = 0; n < index.text.length; n++) {
      if (type !== "" && index.type[n] !== Number(type)) continue;
      if (wanted && !index.lower[n].includes(wanted)) continue;
      if (show !== "all" && !outcome(a[n] ?? -1, b[n] ?? -1)[show]) continue;
      state.found.push(n);
    }
    state.page = 0;
    draw();
  }

  function draw() {
    const { index, found } = state, told = collections[state.collection];
    const pages = Math.max(1, Math.ceil(found.length / SHOWN));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    status.textContent = `${number(found.length)} of ${number(index.text.length)} questions`;
    const turn = (by) => () => { state.page += by; draw(); };
    pager.replaceChildren(
      make("button", { type: "button", disabled: state.page === 0, onclick: turn(-1) }, "Previous page"),
      make("span", {}, `${number(state.page + 1)} of ${number(pages)}`),
      make("button", { type: "button", disabled: state.page === pages - 1, onclick: turn(1) }, "Next page"),
    );
    const level = told.level ? ` (first evidence, ${told.level} level)` : "";
    const chosen = [fields.a.value, fields.b.value];
    const rows = found.slice(state.page * SHOWN, (state.page + 1) * SHOWN).map((n) => make("tr", { class: n === state.open ? "current" : null },
      make("th", { scope: "row" }, make("button", { type: "button", onclick: () => go(n) }, make("bdi", {}, index.text[n] || "(no text)"))),
      make("td", { class: "kind" }, index.types[index.type[n]]),
      make("td", { class: "kind" }, index.cases[index.case[n]]),
      chosen.map((preset) => make("td", { class: "number" }, index.first[preset] ? rankText(index.first[preset][n]) : "")),
    ));
    list.replaceChildren(rows.length ? make("table", {},
      make("caption", { class: "unseen" }, `Questions${level}`),
      make("thead", {}, make("tr", {},
        make("th", { scope: "col" }, "question"), make("th", { scope: "col", class: "kind" }, "type"), make("th", { scope: "col", class: "kind" }, "case"),
        chosen.map((preset) => make("th", { scope: "col", class: "number" }, told.presets[preset] ?? "")))),
      make("tbody", {}, rows)) : make("p", { class: "missing" }, "No question is like that."));
  }

  function go(n) {
    const wanted = `#q${state.collection}-${n}`;
    if (location.hash === wanted) follow(); else location.hash = wanted;
  }

  async function follow() {
    const asked = /^#q(\d+)-(\d+)$/.exec(location.hash);
    if (!asked || !collections[asked[1]]) return;
    const chosen = Number(asked[1]), n = Number(asked[2]);
    if (chosen !== state.collection || !state.index) {
      if (fields.collection) fields.collection.value = chosen;
      await choose(chosen);
    }
    if (n < state.index.text.length) await open(n);
  }

  async function open(n) {
    const { index } = state;
    let block = 0;
    while (block + 1 < index.starts.length && index.starts[block + 1] <= n) block++;
    const data = await load(`block-${state.collection}-${block}`);
    state.open = n;
    const place = state.found.indexOf(n);
    if (place >= 0) state.page = Math.floor(place / SHOWN);
    show(data, n, n - index.starts[block]);
    draw();
    const title = detail.querySelector("h3");
    title.focus({ preventScroll: true });
    detail.scrollIntoView({ block: "start" });
  }

  function show(data, n, own) {
    state.redraw = () => show(data, n, own);
    state.shown ||= new Set([Number(fields.a.value), Number(fields.b.value)]);
    const { index } = state, told = collections[state.collection];
    data.ends ||= { gold: ends(data.gold.n), top: data.top.map((one) => ends(one.n)) };
    const place = state.found.indexOf(n);
    const step = (by, word) => make("button", {
      type: "button", disabled: place < 0 || place + by < 0 || place + by >= state.found.length, onclick: () => go(state.found[place + by]),
    }, word);
    const [from, to] = data.ends.gold[own];
    const golds = data.gold.row.slice(from, to);
    const about = [["case", index.cases[index.case[n]]], ["id", data.question[own]], ["type", index.types[index.type[n]]], ["asked at", data.asked[own]],
      ["answer", data.answer[own]], ["holds", data.expected[own].join(" | ")], ["answerable", data.answerable[own] ? "" : "no"]];
    detail.replaceChildren(
      make("div", { class: "found" }, make("div", { class: "pager" }, step(-1, "Previous question"), step(1, "Next question"))),
      make("h3", { tabindex: "-1", dir: "auto" }, index.text[n] || "(no text)"),
      make("dl", { class: "about" }, about.filter(([, text]) => text).flatMap(([word, text]) => [make("dt", {}, word), make("dd", { dir: "auto" }, text)])),
      make("details", { open: golds.length > 0 && golds.length < 4 },
        make("summary", {}, golds.length ? `Evidence: ${number(data.gold.all[own])}${data.gold.all[own] > golds.length ? `, ${golds.length} shown` : ""}` : "No evidence is named"),
        make("ol", { class: "hits" }, golds.map((row) => hit(data, row, 1, null)))),
      make("ul", { class: "chips", "aria-label": "Presets shown" }, told.presets.map((name, preset) => make("li", {}, make("button", {
        type: "button", "aria-pressed": state.shown.has(preset) ? "true" : "false",
        onclick: () => { if (!state.shown.delete(preset)) state.shown.add(preset); show(data, n, own); detail.querySelectorAll(".chips button")[preset].focus(); },
      }, `${name}: ${rankText(index.first[preset][n])}`)))),
      make("div", { class: "cards" }, told.presets.map((name, preset) => state.shown.has(preset) ? card(data, name, preset, own) : null)),
    );
    detail.hidden = false;
  }

  function card(data, name, preset, own) {
    const top = data.top[preset], [from, to] = data.ends.top[preset][own];
    const hits = [];
    for (let at = from; at < to; at++) hits.push(hit(data, top.row[at], top.mark[at], { rank: at - from + 1, score: top.score[at] }));
    const why = data.why && data.why[preset][own];
    return make("section", { class: "card" }, make("h4", {}, name),
      why ? make("details", {}, make("summary", {}, "Why"), make("pre", { class: "why" }, why)) : null,
      hits.length ? make("ol", { class: "hits" }, hits) : make("p", { class: "missing" }, "This preset returned nothing."));
  }

  function hit(data, row, mark, ranked) {
    const told = ranked ? [`${ranked.rank}.`, `score ${ranked.score}`] : [];
    const where = [data.id[row], data.sessions[data.session[row]], data.speakers[row], data.time[row]].filter((text) => text);
    const text = data.text[row], cut = data.length[row] - [...text].length;
    return make("li", { class: mark === 1 ? "gold" : mark === 2 ? "beside" : null },
      make("p", { class: "meta" }, told.map((word) => make("span", {}, word)),
        ranked && mark === 1 ? make("b", {}, "evidence") : ranked && mark === 2 ? make("span", {}, "session with evidence") : null,
        where.map((word) => make("bdi", {}, word))),
      make("p", { class: "text", dir: "auto" }, make("span", { class: "said" }, text),
        cut > 0 ? make("span", { class: "cut" }, ` … ${number(cut)} more characters`) : null));
  }

  build();
  window.addEventListener("hashchange", follow);
  const asked = /^#q(\d+)-/.exec(location.hash);
  if (asked && collections[asked[1]]) follow(); else choose(0);
})();
