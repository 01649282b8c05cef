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

  // Charts are copied as images where the browser lets a page write to the clipboard.
  for (const button of document.querySelectorAll("button.copy")) {
    if (!navigator.clipboard || !window.ClipboardItem) continue;
    button.hidden = false;
    const drawing = button.closest("figure").querySelector(".chart img");
    const png = async () => {
      const picture = new Image();
      picture.src = drawing.src;
      await picture.decode();
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
      const pen = canvas.getContext("2d");
      pen.fillStyle = "white";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
      return new Promise((done) => canvas.toBlob(done, "image/png"));
    };
    button.addEventListener("click", async () => {
      const said = await navigator.clipboard.write([new ClipboardItem({ "image/png": png() })]).then(() => "Copied", () => "Not allowed here");
      button.textContent = said;
    });
  }

  // An image, large, with its neighbours and all predictions; #image=SECTION-PLACE leads to it.
  const viewer = document.getElementById("viewer");
  const tiles = new Map();
  for (const section of document.querySelectorAll("main section")) {
    [...section.querySelectorAll(".tile")].filter((tile) => tile.querySelector("img")).forEach((tile, place) => {
      tiles.set(`${section.id}-${place + 1}`, tile);
      const image = tile.querySelector("img");
      tile.dataset.address = `${section.id}-${place + 1}`;
      image.tabIndex = 0;
      image.setAttribute("role", "button");
      image.addEventListener("click", () => look(tile));
      image.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        look(tile);
      });
    });
  }
  const shown = (tile) => tile && !tile.hidden && tile.dataset.address;
  const look = (tile) => {
    const image = tile.querySelector("img");
    viewer.dataset.address = tile.dataset.address;
    viewer.querySelector("h2").textContent = image.alt;
    const large = viewer.querySelector(".seen img");
    [large.src, large.alt] = [image.src, image.alt];
    viewer.querySelector(".words").replaceChildren(...[...tile.querySelectorAll(".answers")].map((list) => list.cloneNode(true)));
    viewer.querySelector(".others").replaceChildren(...[...tile.parentElement.children].filter(shown).map((other) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const small = new Image();
      [small.src, small.alt] = [other.querySelector("img").src, ""];
      button.type = "button";
      button.append(small, other.dataset.caption);
      if (other === tile) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => look(other));
      item.append(button);
      return item;
    }));
    history.replaceState(null, "", `#image=${encodeURIComponent(tile.dataset.address)}`);
    if (!viewer.open) viewer.showModal();
    viewer.querySelector("h2").focus({ preventScroll: true });
  };
  viewer.querySelector(".close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("click", (event) => event.target === viewer && viewer.close());
  viewer.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
    tiles.get(viewer.dataset.address)?.querySelector("img").focus({ preventScroll: true });
  });
  viewer.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const tile = tiles.get(viewer.dataset.address);
    const row = [...tile.parentElement.children].filter(shown);
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") return look(row[(row.indexOf(tile) + step + row.length) % row.length]);
    const photos = [...tile.closest("section").querySelectorAll(".tiles")].filter((list) => [...list.children].some(shown));
    const next = [...photos[(photos.indexOf(tile.parentElement) + step + photos.length) % photos.length].children].filter(shown);
    look(next.find((other) => other.dataset.caption === tile.dataset.caption) ?? next[0]);
  });

  // Filters of a section with many images.
  const FEW = 8;
  const LEVELS = { "below 50 %": [0, 50], "50 to 89 %": [50, 90], "90 % or more": [90, 101] };
  const sure = (answer, level) => {
    const percent = parseInt(answer.querySelector(".confidence")?.textContent ?? "", 10);
    return percent >= LEVELS[level][0] && percent < LEVELS[level][1];
  };
  for (const section of document.querySelectorAll("main section:not(.front)")) {
    const own = [...section.querySelectorAll(".tile")];
    const photos = [...section.querySelectorAll(".photo")];
    if (own.filter(shown).length <= FEW) continue;
    const distinct = (values) => [...new Set(values)].filter(Boolean);
    const choices = {
      Class: distinct(photos.map((photo) => photo.dataset.label)),
      Condition: distinct(own.map((tile) => tile.dataset.caption)),
      Model: distinct([...section.querySelectorAll(".answers li.right, .answers li.wrong")].map((answer) => answer.dataset.who)),
      Prediction: section.querySelector(".answers li.right, .answers li.wrong") ? ["right", "wrong"] : [],
      Confidence: section.querySelector(".answers .confidence") ? Object.keys(LEVELS) : [],
    };
    const form = document.createElement("form");
    form.className = "filters";
    form.setAttribute("aria-label", "Filter the images");
    const chosen = {};
    for (const [name, values] of Object.entries(choices)) {
      if (values.length < 2 || values.length > 200) continue;
      const label = document.createElement("label");
      const select = document.createElement("select");
      select.name = name.toLowerCase();
      select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
      label.append(name, " ", select);
      form.append(label);
      chosen[name] = select;
    }
    if (!form.children.length) continue;
    const count = document.createElement("output");
    form.append(count);
    const value = (name) => chosen[name]?.value ?? "";
    form.addEventListener("change", () => {
      for (const tile of own) {
        const fits = [...tile.querySelectorAll(".answers li")].some((answer) =>
          (!value("Model") || answer.dataset.who === value("Model")) &&
          (!value("Prediction") || answer.classList.contains(value("Prediction"))) &&
          (!value("Confidence") || sure(answer, value("Confidence"))));
        tile.hidden =
          (value("Condition") && tile.dataset.caption !== value("Condition")) ||
          ((value("Model") || value("Prediction") || value("Confidence")) && !fits);
      }
      for (const photo of photos) {
        const left = [...photo.querySelectorAll(".tile")].some((tile) => !tile.hidden);
        photo.hidden = !left || (value("Class") && photo.dataset.label !== value("Class"));
      }
      count.value = `${own.filter((tile) => !tile.hidden && !tile.closest(".photo").hidden).length} of ${own.length} images`;
    });
    photos[0].before(form);
  }

  // A link to a folded section opens it; on paper all are open.
  const unfold = () => {
    const named = /^#image=(.+)$/.exec(location.hash);
    const seen = named && tiles.get(decodeURIComponent(named[1]));
    if (seen) return look(seen);
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
