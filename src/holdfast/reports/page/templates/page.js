(() => {
  "use strict";
  const narrow = window.matchMedia("(max-width: 700px)");
  const charts = JSON.parse(document.getElementById("charts").textContent);

  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const entry = charts[figure.dataset.chart];
    const button = figure.querySelector("button.interactive");
    if (!entry || !window.vegaEmbed) continue;
    const place = figure.querySelector(".chart");
    const still = [...place.childNodes];
    let view = null;
    let isBusy = false; // the chart is being made
    button.hidden = false;
    button.addEventListener("click", async () => {
      if (isBusy) return;
      if (view) {
        view.finalize();
        view = null;
        place.replaceChildren(...still);
        place.classList.remove("live");
        button.textContent = "Make interactive";
        return;
      }
      const spec = Object.assign({ datasets: entry.datasets }, narrow.matches || figure.closest(".front") ? entry.narrow : entry.wide);
      place.replaceChildren();
      place.classList.add("live");
      isBusy = true;
      // The interpreter instead of compiled functions: the page forbids eval.
      const made = window.vegaEmbed(place, spec, { ast: true, actions: false, renderer: "svg" });
      view = await made.finally(() => (isBusy = false));
      button.textContent = "Back to the still figure";
    });
  }

  const value = (row, index) => {
    const text = row.cells[index].dataset.sort ?? "";
    const number = text === "" ? NaN : Number(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  for (const button of document.querySelectorAll("button.sort")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const table = button.closest("table");
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows];
      rows.sort((a, b) => {
        const [left, right] = [value(a, head.cellIndex), value(b, head.cellIndex)];
        if (left === "" || right === "") return (left === "") - (right === "");
        return falling ? compare(right, left) : compare(left, right);
      });
      body.append(...rows);
    });
  }

  // A link to a folded section opens it; on paper all are open.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let place = target; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    for (const section of target ? target.querySelectorAll(":scope > details.section") : []) section.open = true;
    if (target) target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  unfold();
  for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => setTimeout(unfold));
  window.addEventListener("beforeprint", () => {
    for (const section of document.querySelectorAll("details.section")) section.open = true;
  });

  const wide = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth + 1);
  });
  for (const table of document.querySelectorAll(".table")) wide.observe(table);

  const contents = document.querySelector("nav details");
  contents.open = !window.matchMedia("(max-width: 1100px)").matches;
})();
