// Keys: one table, from which the page acts, the help is made and the buttons get their hints.

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];

export const TABLE = [
  ["Tools", [
    [["b"], "brush", (editor) => editor.use("brush")],
    [["e"], "eraser", (editor) => editor.use("eraser")],
    [["p"], "polygon", (editor) => editor.use("polygon")],
    [["f"], "fill", (editor) => editor.use("fill")],
    [["r"], "box around the object", (editor) => editor.use("box")],
    [["i"], "point inside the object", (editor) => editor.use("inside")],
    [["o"], "point outside the object", (editor) => editor.use("outside")],
    [["h"], "hand: move the image", (editor) => editor.use("hand")],
    [["x"], "polygon and fill: add or take away", (editor) => editor.panel.turnOver()],
    [["t"], "rough masks: replace, add or take away", (editor) => editor.panel.nextMode()],
    [["["], "smaller brush", (editor) => editor.panel.setRadius(editor.radius - Math.max(1, Math.round(editor.radius / 8)))],
    [["]"], "larger brush", (editor) => editor.panel.setRadius(editor.radius + Math.max(1, Math.round(editor.radius / 8)))],
    [["."], "grow the mask by a pixel", (editor) => editor.spread(1)],
    [[","], "shrink the mask by a pixel", (editor) => editor.spread(0)],
    [["Escape"], "drop the open polygon, the box and the points", (editor) => editor.drop()],
    [["Backspace"], "take back the polygon's last corner", (editor) => editor.tool.back?.()],
  ]],
  ["Without a mouse", [
    [ARROWS, "move the cursor (with Shift by one pixel)", (editor, event) => editor.move(event)],
    [["Enter"], "use the tool at the cursor; again to lift the brush, end the box, close the polygon", (editor, event) => editor.act(event)],
  ]],
  ["Steps", [
    [["ctrl+z", "z"], "undo", (editor) => editor.undo()],
    [["ctrl+y", "ctrl+shift+z", "y"], "redo", (editor) => editor.redo()],
    [["ctrl+s", "s"], "save now (it saves by itself, too)", (editor) => editor.saver.save()],
  ]],
  ["Seeing", [
    [["+", "="], "zoom in (or the wheel, or two fingers)", (editor) => editor.view.zoom(1.25)],
    [["-"], "zoom out", (editor) => editor.view.zoom(0.8)],
    [["0"], "the whole image", (editor) => editor.view.fit()],
    [["1"], "one pixel a pixel", (editor) => editor.view.zoom(1 / editor.view.scale)],
    [ARROWS.map((key) => `ctrl+${key}`), "move the image (or Space and drag)", (editor, event) => editor.pan(event)],
    [["8"], "mask more transparent", (editor) => editor.panel.setOpacity(editor.view.opacity - 0.1)],
    [["9"], "mask less transparent", (editor) => editor.panel.setOpacity(editor.view.opacity + 0.1)],
    [["v"], "hide or show the mask", (editor) => editor.panel.hide()],
    [["c"], "compare with the version before", (editor) => editor.compare.toggle()],
  ]],
  ["Images", [
    [["d"], "done, and on to the next unfinished one", (editor) => editor.finish()],
    [["shift+d"], "done or not done", (editor) => editor.saver.setDone(!editor.saver.isDone)],
    [["n"], "next unfinished image", (editor) => editor.next()],
    [["PageDown"], "next image of the list", (editor) => editor.go(false)],
    [["PageUp"], "image before", (editor) => editor.go(true)],
    [["l"], "to the list of images, and back", (editor) => editor.panel.goToList()],
    [["/"], "look for images", (editor) => editor.panel.search()],
    [["?"], "this help", (editor) => editor.panel.help()],
  ]],
];

const actions = new Map(TABLE.flatMap(([, lines]) => lines.flatMap(([keys, , act]) => keys.map((key) => [key, act]))));

function named(event) {
  const letter = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const shift = event.shiftKey && /^[a-z]$/.test(letter) ? "shift+" : "";
  return `${(event.ctrlKey || event.metaKey) && !isTyped(event) ? "ctrl+" : ""}${shift}${letter}`;
}

/** Brackets need Alt or AltGr on many keyboards; with other keys Alt is the browser's. */
function isTyped({ altKey, key }) {
  return altKey && (key === "[" || key === "]");
}

/** Whether the key belongs to what has the focus. */
function isTaken(event) {
  const { target, key } = event;
  if (target.closest("dialog[open]")) return true; // the focus leaves a closed one a moment later
  if (target.matches("input[type=range]")) return key.startsWith("Arrow") || key.startsWith("Page");
  if (target.matches("input[type=checkbox]")) return key === " ";
  if (target.matches("input, select, textarea")) return key !== "Escape";
  return target.matches("button, a, summary") && (key === "Enter" || key === " ");
}

export function listen(editor) {
  addEventListener("keydown", (event) => {
    if (isTaken(event) || (event.altKey && !isTyped(event))) return;
    if (event.key === " ") {
      editor.input.isSpaceHeld = true;
      event.preventDefault();
      return;
    }
    const act = actions.get(named(event));
    if (!act) return;
    event.preventDefault();
    if (editor.isReady || ["?", "/", "n", "l"].includes(event.key)) act(editor, event);
  });
  addEventListener("keyup", (event) => {
    if (event.key === " ") editor.input.isSpaceHeld = false;
  });
  addEventListener("blur", () => {
    editor.input.isSpaceHeld = false;
  });
}

/** Fill the help with the table. */
export function explain(root) {
  for (const [heading, lines] of TABLE) {
    const section = document.createElement("section");
    section.append(Object.assign(document.createElement("h3"), { textContent: heading }));
    const list = document.createElement("dl");
    for (const [keys, words] of lines) {
      const term = document.createElement("dt");
      for (const key of keys) term.append(Object.assign(document.createElement("kbd"), { textContent: shown(key) }), " ");
      list.append(term, Object.assign(document.createElement("dd"), { textContent: words }));
    }
    section.append(list);
    root.append(section);
  }
}

function shown(key) {
  const names = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", PageDown: "Page ↓", PageUp: "Page ↑", Escape: "Esc" };
  return key.split(/\+(?=.)/).map((part) => names[part] ?? (part.length > 1 ? part[0].toUpperCase() + part.slice(1) : part.toUpperCase())).join(" ");
}
