/* What scrolls sideways, such as a long line of code or a wide table, takes the keyboard's focus, so that the arrow
   keys scroll it; what does not scroll stays out of the keyboard's way. */
"use strict";

function mark() {
  const parts = [...document.querySelectorAll("pre, .table-wrapper")];
  const wide = parts.map((part) => part.scrollWidth > part.clientWidth); // all are asked before any is changed
  parts.forEach((part, index) => {
    if (wide[index]) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  });
}

addEventListener("load", mark);
addEventListener("resize", mark);
