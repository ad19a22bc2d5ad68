// The playground: shows the frames that zkwire's own code has made, and asks it for other runs.
// What there is to decide is decided in docs/playground/playground.py.
"use strict";

(() => {
  const WORKER = new URL("playground-worker.js", document.currentScript.src);
  const LONGEST = 60_000; // milliseconds for a run; to load Python takes what it takes
  const $ = (name) => document.getElementById(`play-${name}`);
  const picture = $("picture").attachShadow({ mode: "open" });
  const fitting = new CSSStyleSheet(); // small letters at most, and no wider than it must be
  // The heads of the lanes stay in sight: a copy of the drawing's beginning, above what scrolls.
  const ABOVE = 18; // pixels of the drawing, as it is made: what is left out above the heads
  const HEADS = 30; // and how high they are
  fitting.replaceSync(`
    svg { display: block; height: auto; max-width: max(100%, 44rem); }
    .heads { height: 0; left: 0; position: sticky; top: 0; z-index: 1; }
    .heads svg { border-bottom: 1px solid #8a8a8a; box-sizing: content-box; }`);
  picture.adoptedStyleSheets = [fitting];
  const LANDING = "landing";
  const FIELDS = ["lesson", "flags", "code"];

  let lessons = [];
  let wanted = { lesson: "", flags: "", code: "", actions: [], search: false };
  let result = null;
  let shown = 0; // index of the frame

  // --- Python, in a worker ----------------------------------------------------------------------

  let worker = null;
  let asks = 0;
  const waiting = new Map();

  /** What zkwire answers; a run that never ends is ended, with the worker. */
  function ask(request) {
    if (worker === null) {
      worker = new Worker(WORKER, { type: "module" });
      worker.onmessage = ({ data }) => settle(data.number, data);
      worker.onerror = () => stop("Python could not be loaded: is Pyodide beside this page?");
    }
    const number = ++asks;
    return new Promise((resolve, reject) => {
      const late = () => stop("That took more than a minute, and was stopped.");
      const timer = request.ask === "run" ? setTimeout(late, LONGEST) : undefined;
      waiting.set(number, { resolve, reject, timer });
      worker.postMessage({ number, asked: JSON.stringify(request) });
    });
  }

  function settle(number, { answered, failed }) {
    const { resolve, reject, timer } = waiting.get(number);
    waiting.delete(number);
    clearTimeout(timer);
    if (failed) reject(new Error(failed));
    else resolve(JSON.parse(answered));
  }

  function stop(why) {
    worker.terminate();
    worker = null;
    for (const number of [...waiting.keys()]) settle(number, { failed: why });
  }

  // --- a run ------------------------------------------------------------------------------------

  let latest = 0;

  /**
   * Run what is wanted, and show the step behind so many events, or of the newest action; at
   * LANDING that of the failure.
   */
  async function run(at) {
    const mine = ++latest;
    say(wanted.search ? "The explorer is looking ..." : "Running ...");
    let answer;
    try {
      answer = await ask({ ask: "run", ...wanted });
    } catch (error) {
      if (mine === latest) say(error.message);
      return;
    }
    if (mine !== latest) return; // another run was asked for
    if (answer.error) {
      say(answer.error);
      return;
    }
    result = answer;
    say("");
    const behind = at === LANDING ? result.landing : at ?? (result.marks[wanted.actions.length - 1] ?? 0) + 1;
    const index = result.frames.findIndex((frame) => frame.at >= behind);
    $("at").max = result.frames.length;
    $("output").hidden = !result.printed;
    $("output").querySelector("pre").textContent = result.printed;
    $("run").hidden = false;
    listActions();
    show(index < 0 ? result.frames.length - 1 : index);
    performance.mark("play-shown");
  }

  function say(text) {
    $("status").textContent = text;

  }

  // --- a step -----------------------------------------------------------------------------------

  function show(index) {
    const frames = result.frames;
    shown = Math.min(Math.max(index, 0), frames.length - 1);
    const frame = frames[shown];
    picture.innerHTML = frame.svg;
    picture.prepend(heads(picture.querySelector("svg")));
    $("picture").scrollTop = $("picture").scrollHeight;
    $("where").textContent =
      `Step ${shown + 1} of ${frames.length}, ${frame.time.toFixed(3)} s` +
      (shown ? "" : `. Cast: ${result.cast}`);
    $("at").value = shown + 1;
    $("at").setAttribute("aria-valuetext", `${shown + 1} of ${frames.length}: ${frame.text}`);
    for (const name of ["first", "back"]) disable($(name), shown === 0);
    for (const name of ["forward", "last"]) disable($(name), shown === frames.length - 1);
    $("words").replaceChildren(...words(frame));
    if (shown === frames.length - 1) $("words").append(...ending());
    fill($("locks"), frame.locks.map((l) => [l.path, l.server || "none", l.lease || "none", l.fence || "none"]));
    fill($("clients"), frame.clients.map((c) => [c.name, c.state, `${c.lease.toFixed(3)} s`]));
    listClients(frame.clients.map((client) => client.name));
    history.replaceState(null, "", link(frame.at));
    $("link").href = link(frame.at);
  }

  /** The beginning of the drawing, with the names of the lanes, for the eye alone. */
  function heads(drawing) {
    const copy = drawing.cloneNode(true);
    const width = drawing.viewBox.baseVal.width;
    for (const part of copy.querySelectorAll("g, title, desc")) part.remove();
    copy.setAttribute("viewBox", `0 ${ABOVE} ${width} ${HEADS}`);
    copy.setAttribute("height", HEADS);
    for (const name of ["role", "aria-labelledby"]) copy.removeAttribute(name);
    copy.setAttribute("aria-hidden", "true");
    return make("div", { class: "heads" }, copy);
  }

  /** A disabled button would lose the focus, and the keyboard its place. */
  function disable(button, disabled) {
    button.setAttribute("aria-disabled", String(disabled));
  }

  const SIGNS = { ask: "? ", cut: "✕ ", end: "┴ ", server: "■ ", stop: "● ", go: "● ", held: "● ", free: "● " };

  function words(frame) {
    if (frame.kind === "table") {
      const table = make("table", {});
      table.append(...frame.rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell)))));
      return [table];
    }
    if (frame.kind === "code") return [make("pre", {}, frame.text)];
    const sign = frame.kind === "expect" ? (frame.passed ? "✓ " : "✗ ") : (SIGNS[frame.kind] ?? "");
    const detail = frame.detail ? [make("span", { class: "play-small" }, `  ${frame.detail}`)] : [];
    const name = frame.kind === "frame" ? `${frame.client}: ` : "";
    return [make("p", { class: `play-${frame.kind}` }, sign + name + frame.text, ...detail)];
  }

  function ending() {
    return [
      make("p", {}, make("strong", {}, `Remember: ${result.remember}`)),
      make("p", { class: "play-small" }, `In your code: ${result.in_code}`),
    ];
  }

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function fill(table, rows) {
    table.hidden = rows.length === 0;
    const lines = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))));
    table.tBodies[0].replaceChildren(...lines);
  }

  function listClients(names) {
    const before = $("client").value;
    $("client").replaceChildren(...names.map((name) => make("option", {}, name)));
    if (names.includes(before)) $("client").value = before;
    for (const name of ["client", "cut", "expire", "pause", "seconds"]) {
      $(name).disabled = names.length === 0;
    }
  }

  // --- what the reader does ---------------------------------------------------------------------

  function act(kind, seconds = 0) {
    const action = [result.frames[shown].at, kind, $("client").value, seconds];
    // What comes later belongs to a run that does not happen any more.
    wanted.actions = [...wanted.actions.filter(([at]) => at <= action[0]), action];
    run();
  }

  function listActions() {
    const lines = wanted.actions.map(([at, kind, client, seconds], index) => {
      const text = `${kind} ${client}${seconds ? ` for ${seconds} s` : ""}, behind event ${at}`;
      const button = make("button", { type: "button", "aria-label": `Undo: ${text}` }, "Undo");
      button.onclick = () => {
        wanted.actions = wanted.actions.filter((_, other) => other !== index);
        run(at);
      };
      return make("li", {}, `${text} `, button);
    });
    $("actions").replaceChildren(...lines);
  }

  function choose(name, flags = "", code = "", actions = [], search = false) {
    const lesson = lessons.find((one) => one.name === name) ?? lessons[0];
    wanted = { lesson: lesson.name, flags, code, actions, search };
    $("search").hidden = !lesson.bug;
    $("flagged").hidden = $("faults").hidden = lesson.bug;
    $("lesson").value = lesson.name;
    $("flags").value = flags;
    $("flags-known").textContent = lesson.flags.join(" · ");
    $("code").value = code || lesson.code;
    $("editor").open = Boolean(code) || lesson.bug;
  }

  // --- the link ---------------------------------------------------------------------------------

  function link(at) {
    const search = new URLSearchParams();
    for (const name of FIELDS) if (wanted[name]) search.set(name, wanted[name]);
    if (wanted.search) search.set("search", "yes");
    for (const action of wanted.actions) search.append("do", action.join(","));
    search.set("at", at);
    return `#${search}`;
  }

  /** Choose what the address names; the step in it. */
  function follow() {
    const search = new URLSearchParams(location.hash.slice(1));
    const [lesson, flags, code] = FIELDS.map((name) => search.get(name) ?? "");
    const actions = search.getAll("do").map((text) => {
      const [at, kind, ...rest] = text.split(",");
      const seconds = Number(rest.pop());
      return [Number(at), kind, rest.join(","), seconds];
    });
    choose(lesson, flags, code, actions, search.has("search"));
    const asksForAFailure = code || search.has("search") || search.get("at") === "fault";
    return Number(search.get("at")) || (asksForAFailure ? LANDING : 1);
  }

  // --- buttons and keys -------------------------------------------------------------------------

  const steps = {
    first: () => 0,
    back: () => shown - 1,
    forward: () => shown + 1,
    last: () => result.frames.length - 1,
  };
  for (const [name, index] of Object.entries(steps)) $(name).onclick = () => show(index());
  const keys = { ArrowLeft: "back", ArrowRight: "forward", Home: "first", End: "last" };
  $("picture").onkeydown = (event) => {
    if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(steps[keys[event.key]]());
  };
  $("at").oninput = () => show(Number($("at").value) - 1);
  $("cut").onclick = () => act("cut");
  $("expire").onclick = () => act("expire");
  $("pause").onclick = () => act("pause", Math.min(Math.max(Number($("seconds").value) || 7, 0.1), 120));
  $("lesson").onchange = () => {
    choose($("lesson").value);
    run(1);
  };
  $("choice").onsubmit = (event) => {
    event.preventDefault();
    choose(wanted.lesson, $("flags").value.trim(), wanted.code);
    run(1);
  };
  /** Run the code as it stands in the editor; with ``search``, where it goes wrong. */
  function runCode(search) {
    const own = lessons.find((lesson) => lesson.name === wanted.lesson).code;
    wanted.code = $("code").value === own ? "" : $("code").value;
    wanted.actions = [];
    wanted.search = search;
    run(search ? LANDING : 1);
  }
  $("run-code").onclick = () => runCode(false);
  $("search").onclick = () => runCode(true);
  $("reset-code").onclick = () => {
    choose(wanted.lesson, wanted.flags);
    $("editor").open = true;
    run(1);
  };
  window.addEventListener("hashchange", () => run(follow()));

  (async () => {
    say("Loading Python and zkwire: 13 MB, once ...");
    try {
      lessons = await ask({ ask: "lessons" });
    } catch (error) {
      say(error.message);
      return;
    }
    for (const [label, bug] of [["Lessons", false], ["Find the bug", true]]) {
      const listed = lessons.filter((lesson) => lesson.bug === bug);
      const options = listed.map(({ name, about }) => make("option", { value: name }, `${name}: ${about}`));
      $("lesson").append(make("optgroup", { label }, ...options));
    }
    $("choice").hidden = false;
    await run(follow());
  })();
})();
