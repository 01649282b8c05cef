// Buttons, sliders and messages around the canvas.

import { explain } from "./keys.js";

const LARGEST_RADIUS = 250;
const SHOWN_MS = 8000;
const MODES = ["replace", "add", "subtract"];
const ALWAYS = new Set(["next", "earlier", "later", "help", "toggleList"]);

export class Panel {
  #editor;
  #root;
  #fading = 0;

  constructor(editor, root) {
    this.#editor = editor;
    this.#root = root;
    const actions = this.#actions();
    root.addEventListener("click", (event) => {
      const button = event.target.closest("[data-do], [data-tool-button]");
      if (button?.dataset.toolButton) editor.use(button.dataset.toolButton);
      else if (button && (editor.isReady || ALWAYS.has(button.dataset.do))) actions[button.dataset.do]();
      // After a mouse, not after Enter: Space and Enter are the image's again.
      const opens = ["toggleList", "help"].includes(button?.dataset.do);
      if (button && event.detail && !opens) this.find("canvas").focus({ preventScroll: true });
    });
    root.querySelector(".desk").addEventListener("click", (event) => {
      if (event.target === event.currentTarget) this.toggleList(false); // the shade next to the list
    });
    this.find("radius").addEventListener("input", (event) => this.setRadius(LARGEST_RADIUS * (event.target.value / 100) ** 2));
    this.find("opacity").addEventListener("input", (event) => this.setOpacity(event.target.value / 100));
    this.find("mode").addEventListener("change", (event) => editor.guide.setMode(event.target.value));
    explain(this.find("keys"));
  }

  #actions() {
    const editor = this.#editor;
    return {
      undo: () => editor.undo(), redo: () => editor.redo(), grow: () => editor.spread(1), shrink: () => editor.spread(0),
      zoomIn: () => editor.view.zoom(1.25), zoomOut: () => editor.view.zoom(0.8), fit: () => editor.view.fit(),
      hide: () => this.hide(), compare: () => editor.compare.toggle(), over: () => this.turnOver(),
      drop: () => editor.drop(), close: () => editor.tool.finish?.(), done: () => editor.saver.setDone(!editor.saver.isDone),
      finish: () => editor.finish(), next: () => editor.next(), earlier: () => editor.go(true), later: () => editor.go(false),
      help: () => this.help(), toggleList: () => this.toggleList(),
    };
  }

  find(name) {
    return this.#root.querySelector(`[data-part="${name}"]`);
  }

  /** Show which tool is at hand, and what can be set about it. */
  showTool(name) {
    this.#root.dataset.tool = name;
    for (const button of this.#root.querySelectorAll("[data-tool-button]")) {
      button.setAttribute("aria-pressed", button.dataset.toolButton === name);
    }
    for (const part of this.#root.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(name);
  }

  showImage(drawing) {
    this.find("name").textContent = this.find("name").parentElement.title = drawing?.name ?? "";
    this.find("facts").textContent = drawing ? `${drawing.label} · ${drawing.width} × ${drawing.height}` : "";
    this.#root.dataset.image = drawing?.id ?? "";
    if (drawing) document.title = `${drawing.name} · Holdfast`;
  }

  showSaved(isSaved) {
    this.#root.dataset.saved = isSaved;
  }

  enable(name, can) {
    for (const button of this.#root.querySelectorAll(`[data-do="${name}"]`)) button.disabled = !can;
  }

  press(name, isOn) {
    for (const button of this.#root.querySelectorAll(`[data-do="${name}"]`)) button.setAttribute("aria-pressed", isOn);
  }

  say(words, isTrouble) {
    const line = this.find("message");
    line.textContent = words;
    line.hidden = !words;
    line.classList.toggle("trouble", isTrouble);
    clearTimeout(this.#fading);
    if (words && !isTrouble) this.#fading = setTimeout(() => this.say("", false), SHOWN_MS); // it is over the image
  }

  busy(words) {
    this.find("busy").textContent = words;
    this.find("busy").hidden = !words;
  }

  setRadius(radius) {
    const editor = this.#editor;
    editor.radius = Math.min(LARGEST_RADIUS, Math.max(0, Math.round(radius)));
    this.find("radius").value = Math.round(100 * Math.sqrt(editor.radius / LARGEST_RADIUS));
    this.find("diameter").textContent = `${2 * editor.radius + 1} px`;
    editor.view.draw();
  }

  setOpacity(opacity) {
    const { view } = this.#editor;
    view.opacity = Math.min(1, Math.max(0, opacity));
    this.find("opacity").value = Math.round(100 * view.opacity);
    view.paint();
  }

  hide() {
    const { view } = this.#editor;
    view.hidden = !view.hidden;
    this.press("hide", view.hidden);
    view.draw();
  }

  turnOver() {
    const editor = this.#editor;
    editor.adding = !editor.adding;
    this.press("over", !editor.adding);
    editor.say(editor.adding ? "Polygon and fill add to the mask." : "Polygon and fill take away from the mask.");
  }

  nextMode() {
    const { guide } = this.#editor;
    this.find("mode").value = MODES[(MODES.indexOf(guide.mode) + 1) % MODES.length];
    guide.setMode(this.find("mode").value);
  }

  toggleList(isOpen) {
    const isShown = this.#root.classList.toggle("with-list", isOpen);
    this.#root.querySelector(".lists").setAttribute("aria-expanded", isShown);
    const list = this.find("list");
    if (!isShown && list.contains(document.activeElement)) this.find("canvas").focus({ preventScroll: true });
  }

  /** From the image to its line in the list, and back. */
  goToList() {
    const list = this.find("list");
    const isThere = list.contains(document.activeElement);
    this.toggleList(!isThere);
    if (!isThere) (list.querySelector("ol [aria-current]") ?? list.querySelector("ol button"))?.focus();
  }

  search() {
    this.toggleList(true);
    this.find("list").querySelector("input").focus();
  }

  help() {
    this.find("help").showModal();
  }
}
