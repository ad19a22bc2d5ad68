/* On a narrow screen a table that does not fit becomes cards; see reach.css. What scrolls sideways, such as a long line of code or a wide table, takes the keyboard's focus, so that the arrow
   keys scroll it; what does not scroll stays out of the keyboard's way. */
"use strict";

const NARROW = matchMedia("(max-width: 46rem)");
const ROLES = { thead: "rowgroup", tbody: "rowgroup", tr: "row", th: "columnheader", td: "cell" };

/** Name the column in each cell, and say what a table is although it is not laid out as one. */
function makeCards(table) {
  const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, index) => (cell.dataset.column = names[index] ?? ""));
  }
  table.setAttribute("role", "table");
  for (const [tag, role] of Object.entries(ROLES)) {
    for (const part of table.querySelectorAll(tag)) part.setAttribute("role", role);
  }
  table.classList.add("cards");
}

function arrange() {
  const tables = [...document.querySelectorAll("table.docutils")].filter((table) => table.tHead && table.tBodies[0]);
  for (const table of tables) table.classList.remove("cards");
  if (!NARROW.matches) return;
  const wide = tables.filter((table) => table.scrollWidth > table.parentElement.clientWidth);
  wide.forEach(makeCards);
}

function mark() {
  arrange();
  const parts = [...document.querySelectorAll("pre, .table-wrapper")];
  const wide = parts.map((part) => part.scrollWidth > part.clientWidth); // all are asked before any is changed
  parts.forEach((part, index) => {
    if (wide[index]) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  });
}

addEventListener("load", mark);
addEventListener("resize", mark);
