"use strict";
// Two models of one table, image by image. Their answers come as script files, when they are asked for.
(() => {
  const { $, $$, make, told, tell, choices } = window.holdfast;
  const MOST = 200;
  const known = { groups: [], group: new Map(), entry: new Map() };
  const form = $(".choice"), outcome = $(".outcome"), status = $(".status");
  const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(1)}`;
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  const load = (store, name) => new Promise((done, fail) => {
    if (store.has(name)) return done(store.get(name));
    const script = make("script", { src: `data/${name}.js` });
    script.addEventListener("load", () => done(store.get(name)));
    script.addEventListener("error", () => fail(new Error(name)));
    document.head.append(script);
  });

  // The t quantile of 95 % intervals (Cornish–Fisher, exact to a thousandth from 5 degrees of freedom on).
  const quantile = (freedom) => {
    const few = [NaN, 12.7062, 4.3027, 3.1824, 2.7764];
    if (freedom < few.length) return few[Math.max(freedom, 1)];
    const z = 1.959963984540054, z3 = z ** 3, z5 = z ** 5, z7 = z ** 7;
    return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom ** 2) + (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom ** 3);
  };

  // Second − first over images, clustered on the source image, with one imagined image that gains and one that loses.
  function paired(differences, clusters) {
    const n = differences.length, value = differences.reduce((sum, one) => sum + one, 0) / n;
    const sums = new Map();
    differences.forEach((one, at) => sums.set(clusters[at], (sums.get(clusters[at]) ?? 0) + (one - value) / n));
    const count = sums.size, shrunk = (value * count) / (count + 2);
    let variance = ((1 - shrunk) / count) ** 2 + ((-1 - shrunk) / count) ** 2;
    for (const one of sums.values()) variance += one ** 2;
    const few = Math.max(count, 2);
    const half = Math.sqrt((variance * few) / (few - 1)) * (count / (count + 2)) * quantile(few - 1);
    return { n, value, low: Math.max(Math.min(shrunk - half, value), -1), high: Math.min(Math.max(shrunk + half, value), 1) };
  }

  function cells(group, one) { // condition → images with what was said
    let at = 0, wrong = 0;
    return group.conditions.map((_, number) => {
      const images = group.cells[number] ?? group.images.map((_, place) => place);
      return images.map((image) => {
        const sign = one.right[at++];
        const said = sign === "0" ? one.answers[one.wrong[wrong++]] ?? "" : sign === "1" ? group.classes[group.labels[image]] : "";
        return { image, right: sign === "-" ? null : sign === "1", said };
      });
    });
  }

  function counted(group, first, second) {
    const [a, b] = [cells(group, first), cells(group, second)];
    return group.conditions.map((name, number) => {
      const rows = a[number].map((one, at) => ({ image: one.image, a: one, b: b[number][at] })).filter((row) => row.a.right !== null && row.b.right !== null);
      const clusters = rows.map((row) => (group.sources ? group.sources[row.image] : row.image));
      const share = (side) => rows.filter((row) => row[side].right).length / rows.length;
      const kinds = { a: [], b: [], x: [], y: [] };
      for (const row of rows) kinds[row.a.right ? (row.b.right ? "y" : "a") : row.b.right ? "b" : "x"].push(row);
      const found = rows.length ? paired(rows.map((row) => row.b.right - row.a.right), clusters) : null;
      return { name, rows, kinds, found, a: share("a"), b: share("b") };
    });
  }

  const cell = (label, text, extra = "") => make("td", { class: "number", "data-label": label }, text, ...(extra ? [make("span", { class: "interval" }, extra)] : []));
  const header = (names) => make("tr", {}, ...names.map((name, at) => make("th", { scope: "col", class: at ? "number" : "" }, name)));

  const state = { kinds: [], shown: MOST };

  function show(info, group, first, second) {
    const title = (id) => info.entries.find((entry) => entry[0] === id)[1];
    const [one, two] = [title(form.elements.a.value), title(form.elements.b.value)];
    const objects = info.kind === "objects", things = objects ? "objects" : "pictures", right = objects ? "finds" : "right";
    const found = state.kinds = counted(group, first, second).filter((row) => row.found);
    outcome.hidden = false;
    status.textContent = found.length ? "" : `They answered none of the ${things} in common.`;
    const clear = found.filter((row) => row.found.low > 0 || row.found.high < 0);
    $(".lead", outcome).textContent = clear.length
      ? `${two} differs from ${one} under ${clear.length} of ${found.length} conditions, each by its own 95 % interval: ${clear.map((row) => `${row.name.replaceAll("_", " ")} (${signed(row.found.value)} points)`).slice(0, 6).join(", ")}${clear.length > 6 ? ` and ${clear.length - 6} more` : ""}.`
      : `The ${things} do not distinguish ${two} from ${one} under any of ${found.length} conditions.`;
    $(".note", outcome).textContent = `Second − first in points, over the ${things} both answered, each alike; paired intervals, clustered on the source image.${info.kind === "dynamic" ? " Pushed images were made against each model, so they are not the same images: what is paired is the original." : ""}`;
    const table = $(".compared", outcome);
    $("thead", table).replaceChildren(header(["Condition", objects ? "Objects" : "Images", one, two, "Second − first", `Only first ${right}`, `Only second ${right}`, objects ? "Neither finds" : "Both wrong"]));
    $("tbody", table).replaceChildren(...found.map((row) => {
      const button = make("button", { type: "button" }, row.name.replaceAll("_", " "));
      button.addEventListener("click", () => choose(row.name, row.kinds.a.length >= row.kinds.b.length ? "a" : "b"));
      const { value, low, high } = row.found;
      const line = make("tr", { "data-name": row.name }, make("th", { scope: "row" }, button), cell(objects ? "Objects" : "Images", `${row.rows.length}`),
        cell(one, percent(row.a)), cell(two, percent(row.b)), cell("Second − first", signed(value), `${signed(low)} to ${signed(high)}`),
        cell(`Only first ${right}`, `${row.kinds.a.length}`), cell(`Only second ${right}`, `${row.kinds.b.length}`), cell(objects ? "Neither finds" : "Both wrong", `${row.kinds.x.length}`));
      if (low > 0) line.children[4].classList.add("good");
      if (high < 0) line.children[4].classList.add("bad");
      return line;
    }));
    const wanted = told().get("c");
    choices($("select[name=c]", outcome), found.map((row) => [row.name, row.name.replaceAll("_", " ")]), wanted ?? "");
    Object.assign(state, { group, one, two, thing: objects ? "Object" : "Image" });
    if (found.length) list();
  }

  function choose(condition, which) {
    $("select[name=c]", outcome).value = condition;
    $("select[name=show]", outcome).value = which;
    state.shown = MOST;
    list();
    $(".which", outcome).scrollIntoView({ block: "start" });
  }

  function list() {
    const condition = $("select[name=c]", outcome).value, which = $("select[name=show]", outcome).value;
    const row = state.kinds.find((one) => one.name === condition), all = row.kinds[which];
    const { group, one, two, thing } = state;
    $(".which", outcome).textContent = `${thing} by ${thing.toLowerCase()}: ${condition.replaceAll("_", " ")}`;
    for (const line of $$(".compared tbody tr")) line.classList.toggle("current", line.dataset.name === condition);
    const table = $(".listed", outcome);
    $("caption span", table).textContent = `${all.length} ${thing.toLowerCase()}${all.length === 1 ? "" : "s"}`;
    $("thead", table).replaceChildren(make("tr", {}, ...[thing, "Class", `${one} said`, `${two} said`].map((name) => make("th", { scope: "col" }, name))));
    $("tbody", table).replaceChildren(...all.slice(0, state.shown).map(({ image, a, b }) => make("tr", {},
      make("th", { scope: "row" }, group.images[image]), make("td", { "data-label": "Class" }, group.classes[group.labels[image]]),
      make("td", { "data-label": `${one} said`, class: a.right ? "good" : "bad" }, `${a.right ? "✓" : "✗"} ${a.said}`),
      make("td", { "data-label": `${two} said`, class: b.right ? "good" : "bad" }, `${b.right ? "✓" : "✗"} ${b.said}`))));
    $(".more", outcome).hidden = all.length <= state.shown;
    write();
  }

  const write = () => tell({ g: form.elements.g.value, a: form.elements.a.value, b: form.elements.b.value, c: $("select[name=c]", outcome).value, s: $("select[name=show]", outcome).value });

  let asked = 0;

  async function read() {
    const turn = ++asked; // what arrives after another choice was made is not shown
    const info = known.groups.find((group) => group.slug === form.elements.g.value);
    const [a, b] = [form.elements.a.value, form.elements.b.value];
    outcome.hidden = true;
    if (a === b) { status.textContent = "Choose two different models."; return; }
    status.textContent = "Reading …";
    try {
      const [group, first, second] = await Promise.all([load(known.group, info.slug), load(known.entry, a), load(known.entry, b)]);
      if (turn === asked) show(info, group, first, second);
    } catch (error) {
      if (turn === asked) status.textContent = `The answers of ${error.message} cannot be read.`;
    }
  }

  function fill(values) {
    const info = known.groups.find((group) => group.slug === form.elements.g.value);
    const entries = info.entries.map(([id, title, name]) => [id, title === name ? title : `${title} (${name})`]);
    choices(form.elements.a, entries, values.get("a") ?? "");
    choices(form.elements.b, entries, values.get("b") ?? entries[1][0]);
    if (values.get("s")) $("select[name=show]", outcome).value = values.get("s");
    read();
  }

  Object.assign(window.holdfast, {
    group: (slug, value) => known.group.set(slug, value),
    entry: (id, value) => known.entry.set(id, value),
    catalogue(groups) {
      known.groups = groups.filter((group) => group.entries.length > 1);
      if (!known.groups.length) { status.textContent = "No table has two measured models yet."; return; }
      form.hidden = false;
      const follow = () => {
        const values = told();
        choices(form.elements.g, known.groups.map((group) => [group.slug, `${group.protocol}: ${group.dataset}, ${group.heading}`]), values.get("g") ?? "");
        fill(values);
      };
      form.elements.g.addEventListener("change", () => fill(new URLSearchParams()));
      for (const name of ["a", "b"]) form.elements[name].addEventListener("change", () => read());
      for (const select of $$("select[name=c], select[name=show]", outcome)) select.addEventListener("change", () => { state.shown = MOST; list(); });
      $(".more", outcome).addEventListener("click", () => { state.shown = Infinity; list(); });
      form.addEventListener("submit", (event) => event.preventDefault());
      addEventListener("hashchange", follow);
      follow();
    },
  });
})();
