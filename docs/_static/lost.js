// The chooser of connection-loss-reference.md: which lines of its tables fit what the reader knows.
"use strict";

(() => {
  const form = document.getElementById("lost");
  const { failures, lesson, rows } = JSON.parse(document.getElementById("lost-data").textContent);
  const status = form.querySelector(".lost-status");
  const output = form.querySelector(".lost-lines");
  const MOST = 24; // lines at once
  const NO_ERROR = "no error";
  const REPEATED = "`python3 -m tests.connection_loss`";
  const PARTS = {
    operations: "Operations",
    members: "Changing the ensemble",
    recipes: "Locks",
    services: "Services",
    classic: "Counters, queues, barriers, claims",
    watches: "Watches",
    sessions: "Sessions",
  };

  for (const row of rows) {
    row.options ??= "";
    row.errors ??= [NO_ERROR];
    row.key = `${row.part} ${row.call}`; // a read and its watch have one name
    const { flags, ...said } = row;
    row.words = Object.values(said).flat().join(" ").replaceAll("`", "").toLowerCase();
  }

  /** An element with children, which may be texts. */
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  /** A text in Markdown, as nodes: code and bold are all that there is. */
  function marked(text) {
    return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((piece) => {
      if (piece.startsWith("`")) return make("code", {}, piece.slice(1, -1));
      if (piece.startsWith("**")) return make("strong", {}, piece.slice(2, -2));
      return piece;
    });
  }

  function capital(text) {
    return /^[a-z]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  }

  /** Offer these values in a list; what was chosen stays if it is among them. */
  function offer(name, any, choices) {
    const select = form.elements[name];
    const chosen = select.value;
    const options = choices.map(([value, text]) => make("option", { value }, text));
    select.replaceChildren(make("option", { value: "" }, any), ...options);
    select.value = choices.some(([value]) => value === chosen) ? chosen : "";
    select.disabled = choices.length < 2 && select.value === "";
  }

  function offerCalls() {
    const select = form.elements.call;
    select.append(make("option", { value: "" }, "any call"));
    for (const [part, label] of Object.entries(PARTS)) {
      const calls = new Map(rows.filter((row) => row.part === part).map((row) => [row.key, row.call]));
      const group = make("optgroup", { label });
      for (const [value, text] of calls) group.append(make("option", { value }, text));
      select.append(group);
    }
  }

  /** The lines that fit what has been chosen, each choice narrowing the next. */
  function narrowed() {
    const { call, options, errors, failure, words } = form.elements;
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = rows.filter((row) => !call.value || row.key === call.value);
    const ways = call.value ? [...new Set(left.map((row) => row.options))] : [];
    offer("options", "any way", ways.map((way) => [way || "-", way || "plain"]));
    if (options.value) left = left.filter((row) => (row.options || "-") === options.value);
    const got = [...new Set(left.flatMap((row) => row.errors))].sort();
    offer("errors", "anything", got.map((name) => [name, name]));
    if (errors.value) left = left.filter((row) => row.errors.includes(errors.value));
    const kinds = Object.entries(failures).filter(([kind]) => left.some((row) => row.failure === kind));
    offer("failure", "not known", kinds);
    if (failure.value) left = left.filter((row) => row.failure === failure.value);
    return left.filter((row) => wanted.every((word) => row.words.includes(word)));
  }

  /** What is safe to do next. */
  function advice(row) {
    if (row.advice) return row.advice;
    if (row.errors[0] !== NO_ERROR) return `as the class says: ${row.errors.map((e) => `\`${e}\``).join(", ")}`;
    return row.part === "recipes" ? "nothing: the lock goes on by itself" : "nothing";
  }

  function fact(term, ...nodes) {
    return make("div", {}, make("dt", {}, term), make("dd", {}, ...nodes));
  }

  /** To the playground, where the lesson plays this failure. */
  function link(row) {
    const search = new URLSearchParams({ lesson, flags: row.flags, at: "fault" });
    return make("a", { href: `playground.html#${search}` }, `zkwire lesson ${lesson} ${row.flags}`);
  }

  function line(row, named) {
    const item = make("li", {});
    const name = row.options ? `${row.call}, ${row.options}` : row.call;
    const point = marked(named ? `\`${name}\`: ${row.point}` : capital(row.point));
    item.append(make("a", { href: `#${row.id}` }, ...point));
    const facts = [
      ["on the server", row.server],
      [row.part === "watches" ? "events" : "the caller gets", row.client],
      ["sent by itself", row.sent_after?.map((request) => `\`${request}\``).join(", ")],
      ["then", row.end],
    ];
    const list = make("dl", {});
    for (const [term, text] of facts) {
      if (text) list.append(fact(term, ...marked(text)));
    }
    list.append(row.flags === undefined ? fact("all experiments again", ...marked(REPEATED)) : fact("run it", link(row)));
    item.append(list);
    return item;
  }

  /** Lines with one advice stand together, the advice first. */
  function card(text, together, named) {
    const title = make("p", { class: "lost-advice" }, ...marked(capital(text)));
    if (text.startsWith("as the class")) title.append(" (", make("a", { href: "connection-loss.html#tonight" }, "Tonight"), ")");
    const list = make("ul", {}, ...together.map((row) => line(row, named)));
    return make("section", { class: "lost-card" }, title, list);
  }

  function show() {
    const left = narrowed();
    const asked = [...form.elements].some((field) => field.name && field.value);
    const shown = asked ? left.slice(0, MOST) : [];
    const cards = grouped(shown);
    const named = new Set(shown.map((row) => row.key + row.options)).size > 1;
    output.replaceChildren(...[...cards].map(([text, together]) => card(text, together, named)));
    status.textContent = said(asked, left.length, cards.size);
  }

  /** The lines by their advice, in the order of the tables. */
  function grouped(shown) {
    const found = new Map();
    for (const row of shown) found.set(advice(row), [...(found.get(advice(row)) ?? []), row]);
    return found;
  }

  function said(asked, count, ways) {
    if (!asked) return `${rows.length} lines: choose what you know, or type a word.`;
    if (!count) return "No line fits: take a choice or a word away.";
    if (count > MOST) return `${count} lines fit, the first ${MOST} are shown: choose more, or type a word.`;
    const lines = count === 1 ? "1 line fits" : `${count} lines fit`;
    return ways === 1 && count > 1 ? `${lines}, with one advice.` : `${lines}.`;
  }

  offerCalls();
  // No `change` of the words: leaving them for a link would take the link away under the pointer.
  form.elements.words.addEventListener("input", show);
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", show);
  form.addEventListener("reset", () => setTimeout(show)); // the fields are empty after the event
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
  form.hidden = false;
})();
