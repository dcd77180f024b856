"use strict";
// Everything on the page can be read without this script. It lets tables be sorted, and opens what is folded
// when the page is printed.

const missingLast = (one, other) => Number.isNaN(one) - Number.isNaN(other);

function sortBy(table, column, direction) {
  const value = (row) => row.cells[column].dataset.value;
  const isText = [...table.tBodies[0].rows].some((row) => value(row) && Number.isNaN(Number(value(row))));
  const number = (row) => (value(row) === "" ? NaN : Number(value(row)));
  const compare = isText
    ? (one, other) => direction * value(one).localeCompare(value(other), undefined, { numeric: true })
    : (one, other) => missingLast(number(one), number(other)) || direction * (number(one) - number(other));
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

function arrange(table, column, order) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", order);
  sortBy(table, column, order === "ascending" ? 1 : -1);
}

function makeSortable(table) {
  const announcement = document.createElement("p");
  announcement.className = "announcement";
  announcement.setAttribute("role", "status");
  table.parentElement.after(announcement);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // The first press shows the largest figures, or the first letters of the alphabet.
      const [first, second] = column === 0 ? ["ascending", "descending"] : ["descending", "ascending"];
      const order = head.getAttribute("aria-sort") === first ? second : first;
      arrange(table, column, order);
      announcement.textContent = `sorted by ${button.textContent}, ${order}`;
    });
  });
}

function enliven(part) {
  part.querySelectorAll("table.sortable").forEach(makeSortable);
}

enliven(document);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
