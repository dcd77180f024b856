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

function makeSortable(table) {
  const announcement = document.createElement("p");
  announcement.className = "announcement";
  announcement.setAttribute("role", "status");
  table.parentElement.after(announcement);
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // The first press shows the largest figures, or the first letters of the alphabet.
      const first = column === 0 ? "ascending" : "descending";
      const second = column === 0 ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      sortBy(table, column, order === "ascending" ? 1 : -1);
      announcement.textContent = `sorted by ${button.textContent}, ${order}`;
    });
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
