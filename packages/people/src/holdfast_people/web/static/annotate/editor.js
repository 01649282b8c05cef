// The annotate page: opens images and hands places to tools.

import { Trouble, send } from "../api.js";
import { Compare } from "./compare.js";
import { Guide } from "./guide.js";
import { History } from "./history.js";
import { Input } from "./input.js";
import { listen } from "./keys.js";
import { ImageList } from "./list.js";
import { Panel } from "./panel.js";
import { spread, whole } from "./raster.js";
import { Saver } from "./saving.js";
import { boxer, brush, filler, hand, lasso, pointer, trace } from "./tools.js";
import { View } from "./view.js";

const AGAIN_MS = 3000;

class Editor {
  drawing = null; // what the server says of the open image
  mask = new Uint8Array(0);
  width = 0;
  height = 0;
  image = null;
  radius = 8;
  adding = true; // what polygon and fill do
  isReady = false;
  slack = matchMedia("(pointer: coarse)").matches ? 22 : 10; // screen pixels within which a corner is hit
  #history = new History(this.mask, 0);
  #hover = null;
  #turn = 0; // of the images that were opened
  #going = 0; // of the ways to another image
  #finishing = 0;

  constructor(root) {
    this.panel = new Panel(this, root);
    const canvas = this.panel.find("canvas");
    this.view = new View(canvas);
    this.view.marks = (context) => this.#marks(context);
    this.guide = new Guide(this);
    this.compare = new Compare(this, this.panel.find("comparing"));
    this.tools = {
      brush: brush(this, 1), eraser: brush(this, 0), polygon: lasso(this), fill: filler(this), box: boxer(this),
      inside: pointer(this, true), outside: pointer(this, false), hand: hand(),
    };
    this.input = new Input(this, canvas);
    this.list = new ImageList(this.panel.find("list"), Number(root.dataset.set), (id) => this.goTo(id));
    this.saver = new Saver(this, this.panel.find("conflict"));
    this.use("brush");
    this.panel.setRadius(this.radius);
    listen(this);
  }

  async start() {
    await this.saver.outbox.ready;
    this.list.load();
    addEventListener("hashchange", () => this.#follow());
    await this.#follow();
  }

  // Images

  async #follow() {
    const id = Number(location.hash.slice(1));
    if (id) await this.open(id);
    else await this.next();
  }

  goTo(id) {
    this.#going++;
    this.panel.toggleList(false);
    if (Number(location.hash.slice(1)) === id) this.open(id);
    else location.hash = `#${id}`;
  }

  async open(id) {
    const turn = ++this.#turn;
    this.#going++;
    this.input.lift();
    this.tool.leave?.();
    this.isReady = false;
    this.guide.clear();
    this.compare.off();
    this.saver.leave();
    this.busy("opening …");
    try {
      const drawing = await send("GET", `/api/annotate/masks/${id}`);
      const image = await load(`/media/images/${drawing.image_id}`);
      if (turn !== this.#turn) return;
      this.#show(drawing, image);
    } catch (trouble) {
      if (turn !== this.#turn) return;
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#blank(id, trouble);
    } finally {
      if (turn === this.#turn) this.busy("");
    }
    if (turn !== this.#turn || !this.isReady) return;
    this.list.mark(id);
    this.guide.prepare();
    await this.saver.settle();
  }

  #show(drawing, image) {
    const { width, height, others, problem } = drawing;
    Object.assign(this, { drawing, image, width, height });
    this.mask = this.saver.begin(drawing);
    this.#history = new History(this.mask, width);
    this.view.show(image, this.mask, width, height);
    this.isReady = true;
    this.panel.showImage(drawing);
    this.refresh();
    if (problem) this.say(`${problem[0].toUpperCase()}${problem.slice(1)}.`, true);
    else this.say(others.length ? `${others.join(" and ")} ${others.length > 1 ? "have" : "has"} this image open, too.` : "");
  }

  #blank(id, trouble) {
    const turn = this.#turn;
    this.drawing = null;
    this.view.show(null, null, 0, 0);
    this.panel.showImage(null);
    this.say(`This image could not be opened: ${trouble.message}.`, true);
    if (trouble.passes) setTimeout(() => turn === this.#turn && this.open(id), AGAIN_MS);
  }

  async next() {
    await this.#travel({ unfinished: true }, "All images are done.");
  }

  async go(backwards) {
    await this.#travel({ backwards }, "There is no other image like that.");
  }

  async finish() {
    const { drawing } = this;
    const turn = ++this.#finishing;
    const isFinished = await this.saver.finish(); // which may take long, and they may have gone on meanwhile
    if (isFinished && turn === this.#finishing && drawing === this.drawing && this.saver.isDone) await this.next();
  }

  async #travel(options, otherwise) {
    const { drawing } = this;
    const turn = ++this.#going;
    const isOver = () => turn !== this.#going || drawing !== this.drawing; // another image was chosen meanwhile
    try {
      const id = await this.list.neighbour(drawing?.id, options);
      if (isOver()) return;
      if (id) this.goTo(id);
      else this.say(otherwise);
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      if (isOver()) return;
      this.say(`The next image is not known: ${trouble.message}.`, true);
      if (!drawing && trouble.passes) setTimeout(() => isOver() || this.#follow(), AGAIN_MS);
    }
  }

  // Changing the mask

  begin() {
    this.#history.begin();
  }

  /** Make a step of what changed since `begin`, and save it unless quiet; whether anything did. */
  commit(rect, { guided = false, quiet = false } = {}) {
    if (!this.#history.commit(rect)) return false;
    if (guided) this.saver.isGuided = true;
    else this.guide.clear();
    this.view.paint(rect);
    if (!quiet) this.#changed();
    return true;
  }

  /** Take back what changed since `begin`. */
  revert() {
    this.#history.revert();
    this.view.paint();
  }

  /** Take the last step back as if it had never been. */
  forget() {
    const rect = this.#history.forget();
    if (rect) this.view.paint(rect);
  }

  /** Give the whole mask other pixels, as one step. */
  replace(mask, options) {
    this.begin();
    this.mask.set(mask);
    return this.commit(whole(this.width, this.height), options);
  }

  undo() {
    this.#step(this.#history.undo());
  }

  redo() {
    this.#step(this.#history.redo());
  }

  #step(rect) {
    if (!rect) return;
    this.guide.clear();
    this.view.paint(rect);
    this.#changed();
  }

  spread(value) {
    this.begin();
    this.commit(spread(this.mask, this.width, this.height, value));
  }

  #changed() {
    this.saver.isDone = false;
    this.saver.save();
  }

  // What is seen

  refresh() {
    this.panel.enable("undo", this.#history.canUndo);
    this.panel.enable("redo", this.#history.canRedo);
    this.panel.press("done", this.saver.isDone);
    this.panel.showSaved(!this.saver.isChanged);
    this.compare.refresh();
  }

  say(words, isTrouble = false) {
    this.panel.say(words, isTrouble);
  }

  busy(words) {
    this.panel.busy(words);
  }

  #marks(context) {
    this.guide.marks(context);
    this.tool.marks?.(context);
    if (!this.#hover) return;
    const [x, y] = this.view.toScreen(this.#hover.x + 0.5, this.#hover.y + 0.5);
    if (this.tool.round) trace(context, () => context.arc(x, y, (this.radius + 0.5) * this.view.scale, 0, 2 * Math.PI));
    if (!this.input.cursor) return;
    trace(context, () => {
      for (const [across, down] of [[14, 0], [0, 14]]) {
        context.moveTo(x - across, y - down);
        context.lineTo(x + across, y + down);
      }
    });
  }

  // The tool at hand

  use(name) {
    this.input.lift();
    this.tool?.leave?.();
    this.tool = this.tools[name];
    this.panel.showTool(name);
    this.view.draw();
  }

  hover(place) {
    this.#hover = place;
    if (place) this.tool.hover?.(place);
    this.view.draw();
  }

  press(place, event) {
    this.#hover = place;
    this.tool.down?.(place, event);
  }

  /** Drop what was begun: polygon, box, points, comparing. */
  drop() {
    this.panel.toggleList(false);
    this.input.lift();
    this.tool.cancel?.();
    this.tool.leave?.();
    this.guide.clear();
    this.compare.off();
    this.say("");
  }

  /** Enter: close an open polygon that the mouse drew, else use the tool at the keyboard's cursor. */
  act(event) {
    if (this.tool.open && !this.input.cursor) this.tool.finish();
    else this.input.act(event);
  }

  move(event) {
    const far = event.shiftKey ? 1 : Math.max(1, Math.round(8 / this.view.scale));
    this.input.step(...arrow(event, far));
  }

  pan(event) {
    this.view.pan(...arrow(event, -60));
  }
}

function arrow({ key }, far) {
  return [far * ((key === "ArrowRight") - (key === "ArrowLeft")), far * ((key === "ArrowDown") - (key === "ArrowUp"))];
}

async function load(url) {
  const image = new Image();
  image.src = url;
  try {
    await image.decode();
  } catch {
    throw new Trouble(0, "the image did not arrive");
  }
  return image;
}

new Editor(document.getElementById("annotate")).start();
