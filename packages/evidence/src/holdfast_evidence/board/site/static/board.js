"use strict";
// The page of tables: tabs, sorting, filters, charts; compare.js sets two models side by side. Nothing is fetched:
// what a page needs beyond itself comes as script files of this folder.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (name, attributes = {}, ...children) => {
    const one = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...children);
    return one;
  };
  const told = () => new URLSearchParams(location.hash.slice(1));
  const tell = (values) => {
    const kept = new URLSearchParams();
    for (const [key, value] of Object.entries(values)) if (value) kept.set(key, value);
    history.replaceState(null, "", `#${kept}`);
  };
  const choices = (select, items, wanted) => {
    select.replaceChildren(...items.map(([value, text]) => make("option", { value }, text)));
    if (items.some(([value]) => value === wanted)) select.value = wanted;
  };

  // Tables

  const AT_ONCE = 100; // rows on the page: a browser lays out a hundred in a tenth of the time of a thousand

  class Board {
    constructor(section) {
      this.section = section;
      this.body = $("tbody", section);
      this.rows = $$("tr", this.body);
      this.heads = $$("thead th[data-key]", section);
      this.values = {};
      for (const head of this.heads) this.values[head.dataset.key] = this.rows.map((row) => this.value(row, head));
      this.ranked = new Set(this.rows.flatMap((row) => [...($(".rank", row)?.attributes ?? [])].map((a) => a.name)));
      this.key = section.dataset.main;
      this.down = this.head(this.key).dataset.best === "high";
      this.by = this.key;
      this.order = this.rows;
      this.most = AT_ONCE;
      $(".all", section).addEventListener("click", () => { this.most = Infinity; this.show(); });
      for (const head of this.heads) this.button(head);
      this.sorter();
    }

    head(key) { return this.heads.find((head) => head.dataset.key === key); }

    value(row, head) {
      if (head.dataset.key === "title") return $("th", row).textContent.toLowerCase();
      const cell = $(`td[data-key="${head.dataset.key}"]`, row);
      const value = cell?.dataset.v;
      if (head.dataset.kind === "text") return value ?? "";
      return value === undefined ? NaN : Number(value);
    }

    button(head) {
      const button = make("button", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const best = head.dataset.best === "high";
        const down = this.key === head.dataset.key ? !this.down : best;
        page.sort(head.dataset.key, down);
      });
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const buttons = $$("thead button", this.section);
        buttons[(buttons.indexOf(button) + step + buttons.length) % buttons.length].focus();
        event.preventDefault();
      });
    }

    sorter() { // where the head of the table is out of sight
      const box = $(".sorter", this.section);
      box.hidden = false;
      const select = $("select", box);
      choices(select, this.heads.map((head) => [head.dataset.key, head.textContent]), this.key);
      select.addEventListener("change", () => page.sort(select.value, this.head(select.value).dataset.best === "high"));
      $("button", box).addEventListener("click", () => page.sort(this.key, !this.down));
    }

    sort(key, down) {
      const head = this.head(key);
      if (!head) return;
      [this.key, this.down] = [key, down];
      for (const other of this.heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const values = this.values[key], titles = this.values.title, sign = down ? -1 : 1;
      const text = head.dataset.kind === "text";
      const order = this.rows.map((_, at) => at).sort((a, b) => {
        const x = values[a], y = values[b];
        const missing = text ? (x === "") - (y === "") : Number.isNaN(x) - Number.isNaN(y);
        if (missing) return missing;
        return (x < y ? -sign : x > y ? sign : 0) || (titles[a] < titles[b] ? -1 : titles[a] > titles[b] ? 1 : a - b);
      });
      this.order = order.map((at) => this.rows[at]);
      this.show();
      if (this.ranked.has(this.rankOf(key))) this.by = key;
      this.showRanks();
      $(".sorter select", this.section).value = key;
      const turn = $(".sorter button", this.section);
      turn.textContent = down ? "↓" : "↑";
      turn.setAttribute("aria-label", down ? "descending; turn around" : "ascending; turn around");
    }

    show() { // the rows that the filters leave, in order; beyond the first hundred only if asked
      const left = this.order.filter((row) => !row.hidden);
      this.body.replaceChildren(...left.slice(0, this.most));
      const all = $(".all", this.section);
      all.hidden = left.length <= this.most;
      all.textContent = `Show all ${left.length}`;
    }

    rankOf(key) { return `data-rank-${key.replaceAll("_", "-")}`; }

    showRanks() {
      const head = $("thead .by", this.section);
      if (!head) return;
      head.textContent = `by ${this.head(this.by)?.textContent.toLowerCase() ?? ""}`;
      const name = this.rankOf(this.by);
      for (const row of this.rows) $("td.rank", row).textContent = row.querySelector(".rank").getAttribute(name) ?? "–";
    }

    filter({ q, kind, most, holds }) {
      const words = q.toLowerCase().split(/\s+/).filter(Boolean);
      const sizes = this.values.parameters;
      let left = 0;
      this.rows.forEach((row, at) => {
        const fits = words.every((word) => row.dataset.name.includes(word)) && (!kind || row.dataset.kind === kind)
          && (!most || (sizes && sizes[at] <= Number(most) * 1e6)) && (!holds || row.dataset.holds === holds);
        row.hidden = !fits;
        left += fits;
      });
      this.show();
      $(".none", this.section).hidden = left > 0;
      this.chart?.draw();
      return left;
    }
  }

  // Charts

  const SVG = "http://www.w3.org/2000/svg";
  const draw = (name, attributes, parent, text) => {
    const one = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (text !== undefined) one.textContent = text;
    parent.append(one);
    return one;
  };

  class Chart {
    constructor(board) {
      this.board = board;
      this.figure = $(".chart", board.section);
      this.axes = new Map();
      for (const head of board.heads) {
        const { key, best, kind } = head.dataset;
        if (kind !== "text" && key !== "speed") this.axes.set(key, { key, best, kind, title: head.textContent, at: board.values[key] });
      }
      const cells = board.rows.map((row) => $('td[data-key="speed"]', row));
      for (const machine of new Set(cells.map((cell) => cell?.dataset.hardware).filter(Boolean))) {
        const at = cells.map((cell) => (cell?.dataset.hardware === machine ? Number(cell.dataset.v) : NaN));
        this.axes.set(`speed on ${machine}`, { key: "speed", best: "high", kind: "count", title: `Images a second on ${machine}`, at });
      }
      for (const [key, axis] of this.axes) if (axis.at.filter(Number.isFinite).length < 2) this.axes.delete(key);
      const up = [...this.axes].filter(([, axis]) => axis.kind !== "count").map(([key, axis]) => [key, axis.title]);
      const across = [...this.axes].map(([key, axis]) => [key, axis.title]);
      const { x, y } = board.section.dataset;
      const both = board.rows.filter((_, at) => Number.isFinite(this.axes.get(x)?.at[at]) && Number.isFinite(this.axes.get(y)?.at[at]));
      if (both.length < 2) return;
      this.figure.hidden = false;
      [this.y, this.x] = [$("select[name=y]", this.figure), $("select[name=x]", this.figure)];
      choices(this.y, up, y);
      choices(this.x, across, x);
      for (const select of [this.x, this.y]) select.addEventListener("change", () => this.draw());
      board.chart = this;
    }

    points() {
      const [x, y] = [this.axes.get(this.x.value), this.axes.get(this.y.value)];
      const reach = (row, axis) => {
        const cell = $(`td[data-key="${axis.key}"]`, row).dataset;
        return [Number(cell.l ?? cell.v), Number(cell.h ?? cell.v)];
      };
      return this.board.rows.map((row, at) => ({ row, x: x.at[at], y: y.at[at] }))
        .filter((one) => !one.row.hidden && Number.isFinite(one.x) && Number.isFinite(one.y))
        .map((one) => ({ ...one, xs: reach(one.row, x), ys: reach(one.row, y) }));
    }

    front(points, x, y) { // no one is at least as good in both and better in one
      const good = (value, axis) => (axis.best === "high" ? value : -value);
      const order = [...points].sort((a, b) => good(b.x, x) - good(a.x, x) || good(b.y, y) - good(a.y, y));
      const found = [];
      let best = -Infinity, last;
      for (const one of order) {
        const height = good(one.y, y);
        if (height > best || (last && one.x === last.x && one.y === last.y)) { found.push(one); best = height; last = one; }
      }
      return found;
    }

    draw() {
      const plot = $(".plot", this.figure), width = Math.max(plot.clientWidth || 300, 280), height = width < 600 ? 320 : 420;
      const [x, y] = [this.axes.get(this.x.value), this.axes.get(this.y.value)];
      const points = this.points();
      plot.replaceChildren();
      plot.classList.toggle("crowded", points.length > 150);
      const line = $(".front", this.figure);
      line.textContent = "";
      if (!points.length) return;
      const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${y.title} against ${x.title}; the table below has the numbers` }, plot);
      const room = { left: 56, right: 16, top: 14, bottom: 44 };
      const across = scale(points.flatMap((one) => one.xs), x, room.left, width - room.right);
      const up = scale(points.flatMap((one) => one.ys), y, height - room.bottom, room.top);
      for (const tick of across.ticks) {
        draw("line", { class: "grid", x1: across.at(tick), x2: across.at(tick), y1: room.top, y2: height - room.bottom }, svg);
        draw("text", { x: across.at(tick), y: height - room.bottom + 16, "text-anchor": "middle" }, svg, across.text(tick));
      }
      for (const tick of up.ticks) {
        draw("line", { class: "grid", x1: room.left, x2: width - room.right, y1: up.at(tick), y2: up.at(tick) }, svg);
        draw("text", { x: room.left - 6, y: up.at(tick) + 4, "text-anchor": "end" }, svg, up.text(tick));
      }
      draw("text", { class: "axis", x: (room.left + width - room.right) / 2, y: height - 8, "text-anchor": "middle" }, svg, x.title + (x.best === "low" ? " (less is better)" : ""));
      draw("text", { class: "axis", x: 12, y: room.top + (height - room.bottom - room.top) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${room.top + (height - room.bottom - room.top) / 2})` }, svg, y.title + (y.best === "low" ? " (less is better)" : ""));
      const front = this.front(points, x, y), on = new Set(front);
      const steps = [...front].sort((a, b) => a.x - b.x).map((one) => [across.at(one.x), up.at(one.y)]);
      if (steps.length > 1) draw("path", { class: "step", d: steps.map(([a, b], at) => (at ? `L${a} ${b}` : `M${a} ${b}`)).join("") }, svg);
      for (const one of points) this.point(svg, one, on.has(one), across, up);
      const nameless = this.names(svg, [...front, ...points.filter((one) => !on.has(one))], across, up, width, height);
      const names = front.map((one) => $("th a", one.row).textContent);
      line.textContent = `Pareto front (no one is at least as good in both and better in one), by the estimates: ${names.slice(0, 12).join(", ")}${names.length > 12 ? ` and ${names.length - 12} more` : ""}.`;
      if (nameless.length) line.textContent += ` Marks whose names have no room: ${nameless.join(", ")}; point at a mark to see its name.`;
    }

    point(svg, one, on, across, up) {
      const printed = one.row.dataset.kind === "printed", [a, b] = [across.at(one.x), up.at(one.y)];
      const link = draw("a", { href: $("th a", one.row).getAttribute("href"), tabindex: "-1", class: `${on ? "on" : ""} ${printed ? "printed" : ""}` }, svg);
      if (one.xs[0] !== one.xs[1]) draw("line", { class: "reach", x1: across.at(one.xs[0]), x2: across.at(one.xs[1]), y1: b, y2: b }, link);
      if (one.ys[0] !== one.ys[1]) draw("line", { class: "reach", x1: a, x2: a, y1: up.at(one.ys[0]), y2: up.at(one.ys[1]) }, link);
      if (printed) draw("path", { d: `M${a} ${b - 6}L${a + 6} ${b}L${a} ${b + 6}L${a - 6} ${b}Z` }, link);
      else draw("circle", { cx: a, cy: b, r: on ? 5.5 : 4.5 }, link);
      draw("title", {}, link, `${$("th a", one.row).textContent}: ${across.text(one.x, true)}, ${up.text(one.y, true)}`);
    }

    /** Write every name next to its point, else further away with a line to it; return the names that have no room. */
    names(svg, points, across, up, width, height) {
      const nameless = [], most = Math.max(18, Math.floor(width / 16));
      const taken = points.map((one) => ({ from: across.at(one.x) - 5, to: across.at(one.x) + 5, y: up.at(one.y) }));
      for (const one of points) {
        const name = $("th a", one.row).textContent, short = name.length > most ? `${name.slice(0, most - 10)}…${name.slice(-9)}` : name;
        const [a, b] = [across.at(one.x), up.at(one.y)], size = short.length * 6.6 + 4;
        const places = [[a + 9, b - 5], [a - 9 - size, b - 5], [a - size / 2, b - 13], [a - size / 2, b + 18], [a + 9, b + 13], [a - 9 - size, b + 13]];
        for (let reach = 30; reach <= 150; reach += 15)
          for (let turn = 0; turn < 12; turn++) {
            const [side, rise] = [Math.cos(turn * Math.PI / 6), Math.sin(turn * Math.PI / 6)];
            places.push([a + reach * side - (side < -0.1 ? size : side > 0.1 ? 0 : size / 2), b + reach * rise + 4]);
          }
        const place = places.find(([from, y]) => from > 50 && from + size < width && y > 10 && y < height - 48
          && !taken.some((other) => Math.abs(other.y - (y - 4)) < 12 && other.from < from + size && from < other.to));
        if (!place) { nameless.push(name); continue; }
        if (places.indexOf(place) > 5) {
          const end = Math.min(Math.max(a, place[0]), place[0] + size - 4);
          draw("line", { class: "leader", x1: a, y1: b, x2: end, y2: place[1] + (place[1] > b ? -10 : 3) }, svg);
        }
        taken.push({ from: place[0], to: place[0] + size, y: place[1] - 4 });
        draw("text", { class: "who", x: place[0], y: place[1] }, svg, short);
      }
      return nameless;
    }
  }

  function scale(values, axis, from, to) {
    const log = axis.kind === "count";
    const turn = log ? Math.log10 : (value) => value;
    let low = Math.min(...values.map(turn)), high = Math.max(...values.map(turn));
    const pad = (high - low || (log ? 1 : 0.02)) * 0.06;
    [low, high] = [low - pad, high + pad];
    if (!log && axis.kind === "percent") [low, high] = [Math.max(low, 0), Math.max(high, low + 0.01)];
    const at = (value) => Math.round((from + ((turn(value) - low) / (high - low)) * (to - from)) * 10) / 10;
    const ticks = [];
    if (log) {
      for (let power = Math.floor(low); power <= high; power++)
        for (const digit of high - low > 2.5 ? [1] : [1, 2, 5]) { const tick = digit * 10 ** power; if (turn(tick) >= low && turn(tick) <= high) ticks.push(tick); }
    } else {
      const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10((high - low) / 5))).find((n) => (high - low) / n <= 6);
      for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-12; tick += step) ticks.push(tick);
    }
    const text = (value, exact) => {
      if (log) return value >= 1e6 ? `${+(value / 1e6).toPrecision(3)} M` : value >= 1e4 ? `${+(value / 1e3).toPrecision(3)} k` : `${+value.toPrecision(3)}`;
      if (axis.kind === "number") return value.toFixed(exact || high - low < 0.1 ? 3 : 2);
      return `${(100 * value).toFixed(exact || high - low < 0.05 ? 1 : 0)}${axis.kind === "percent" ? " %" : ""}`;
    };
    return { at, ticks, text };
  }

  // The page of tables

  const page = {
    start() {
      this.panels = $$(".panel");
      this.protocols = $$(".protocols button");
      this.boards = new Map();
      $(".protocols").hidden = this.protocols.length < 2;
      for (const list of $$(".tabs")) this.keys(list);
      for (const button of this.protocols) button.addEventListener("click", () => this.open($(`.datasets[data-protocol="${button.dataset.protocol}"] button`).dataset.tab));
      for (const button of $$(".datasets button")) button.addEventListener("click", () => this.open(button.dataset.tab));
      for (const form of $$(".filters")) {
        form.hidden = false;
        form.addEventListener("input", () => this.filter());
        form.addEventListener("submit", (event) => event.preventDefault());
      }
      document.addEventListener("change", (event) => event.target.matches(".pick input") && this.chosen());
      $(".chosen button").addEventListener("click", () => {
        for (const row of this.shown().flatMap((board) => board.rows)) if ($(".pick input", row)) $(".pick input", row).checked = false;
        this.chosen();
      });
      addEventListener("beforeprint", () => this.shown().forEach((board) => { board.most = Infinity; board.show(); }));
      addEventListener("hashchange", () => this.follow());
      addEventListener("resize", () => { clearTimeout(this.later); this.later = setTimeout(() => this.shown().forEach((board) => board.chart?.draw()), 120); });
      this.follow();
    },

    keys(list) {
      list.addEventListener("keydown", (event) => {
        const buttons = $$("button", list), at = buttons.indexOf(document.activeElement);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
        if (to === undefined) return;
        const button = buttons[(to + buttons.length) % buttons.length];
        button.focus();
        button.click();
        event.preventDefault();
      });
    },

    follow() { // the address says what is shown: a table by its name, or tab, order and filters
      const values = told(), place = document.getElementById(location.hash.slice(1));
      const group = place?.closest(".group");
      const known = this.panels.some((panel) => panel.dataset.tab === values.get("tab"));
      this.open(group ? group.closest(".panel").dataset.tab : known ? values.get("tab") : this.panels[0].dataset.tab, group ? new URLSearchParams() : values);
      group?.scrollIntoView();
    },

    open(tab, values = new URLSearchParams()) {
      this.panel = this.panels.find((panel) => panel.dataset.tab === tab);
      const protocol = this.panel.dataset.protocol;
      for (const panel of this.panels) panel.hidden = panel !== this.panel;
      for (const list of $$(".datasets")) list.hidden = list.dataset.protocol !== protocol;
      this.select(this.protocols, (button) => button.dataset.protocol === protocol);
      this.select($$(`.datasets[data-protocol="${protocol}"] button`), (button) => button.dataset.tab === tab);
      const list = $(`.datasets[data-protocol="${protocol}"]`), chosen = $("[aria-selected=true]", list);
      list.scrollLeft = chosen.offsetLeft - list.offsetLeft - 20; // on a phone the tabs are one long line
      if (!this.boards.has(tab)) {
        const boards = $$(".group", this.panel).map((section) => new Board(section));
        this.boards.set(tab, boards);
        for (const board of boards) new Chart(board);
        for (const board of boards) board.sort(board.key, board.down);
      }
      const form = $(".filters", this.panel);
      for (const name of ["q", "kind", "most", "holds"]) if (form.elements[name]) form.elements[name].value = values.get(name) ?? "";
      const [key, way] = (values.get("sort") ?? "").split(":");
      this.order = "";
      if (key) this.sort(key, way !== "asc");
      this.filter();
      this.chosen();
    },

    select(buttons, is) {
      for (const button of buttons) Object.assign(button, { ariaSelected: `${is(button)}`, tabIndex: is(button) ? 0 : -1 });
    },

    shown() { return this.boards.get(this.panel.dataset.tab); },

    filters() {
      const form = $(".filters", this.panel).elements;
      return Object.fromEntries(["q", "kind", "most", "holds"].map((name) => [name, form[name]?.value ?? ""]));
    },

    sort(key, down) {
      for (const board of this.shown()) board.sort(key, down);
      this.order = `${key}:${down ? "desc" : "asc"}`;
      this.write();
    },

    filter() {
      const wanted = this.filters();
      const left = this.shown().reduce((sum, board) => sum + board.filter(wanted), 0);
      const all = this.shown().reduce((sum, board) => sum + board.rows.length, 0);
      $(".count", this.panel).textContent = left === all ? `${all} entries` : `${left} of ${all} entries`;
      this.write();
    },

    write() { tell({ tab: this.panel.dataset.tab, sort: this.order, ...this.filters() }); },

    chosen() {
      const boxes = this.shown().flatMap((board) => board.rows).map((row) => $(".pick input", row)).filter((box) => box?.checked), bar = $(".chosen");
      const [first, second] = boxes.map((box) => box.closest("tr"));
      const home = (row) => this.shown().find((board) => board.rows.includes(row)).section.dataset.slug;
      const same = second && home(first) === home(second);
      bar.hidden = !boxes.length;
      const link = $("a", bar);
      link.hidden = boxes.length !== 2 || !same;
      $("span", bar).textContent = boxes.length === 2 ? (same ? "" : "These two are in different tables.") : boxes.length > 2 ? "Choose two models, not more." : "Choose one more model of this table.";
      if (!link.hidden) {
        const query = new URLSearchParams({ g: home(first), a: first.dataset.id, b: second.dataset.id });
        link.setAttribute("href", `compare.html#${query}`);
      }
    },
  };

  // For compare.js
  window.holdfast = { $, $$, make, told, tell, choices };
  if ($("body.board")) page.start();
})();
