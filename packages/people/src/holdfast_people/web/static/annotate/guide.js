// Rough masks: a box and points go to the server, whose mask maker answers. The newest question's answer counts.

import { Trouble, send } from "../api.js";
import { whole } from "./raster.js";
import { decode } from "./rle.js";
import { dot, trace } from "./tools.js";

const JOIN = {
  replace: (before, rough) => rough,
  add: (before, rough) => before | rough,
  subtract: (before, rough) => before & (1 - rough),
};

export class Guide {
  box = null; // left, top, right, bottom: the first and last pixels in it
  inside = [];
  outside = [];
  mode = "replace";
  #editor;
  #before = null; // the mask when the first box or point was set
  #isApplied = false;
  #asking = null;
  #isStale = false; // whether box or points changed since the last question

  constructor(editor) {
    this.#editor = editor;
  }

  get isEmpty() {
    return !this.box && !this.inside.length && !this.outside.length;
  }

  setBox(one, other) {
    const { width, height } = this.#editor;
    const sides = (a, b, most) => {
      const first = Math.min(Math.max(Math.floor(Math.min(a, b)), 0), most - 1);
      return [first, Math.max(first, Math.min(Math.ceil(Math.max(a, b)) - 1, most - 1))];
    };
    const [left, right] = sides(one[0], other[0], width);
    const [top, bottom] = sides(one[1], other[1], height);
    this.box = [left, top, right, bottom];
    this.#ask();
  }

  addPoint({ x, y }, isInside) {
    const { width, height } = this.#editor;
    if (x < 0 || y < 0 || x >= width || y >= height) return;
    (isInside ? this.inside : this.outside).push([x, y]);
    this.#ask();
  }

  /** Draw by other means from here on: the rough mask stays, its box and points go. */
  clear() {
    this.#asking?.abort();
    this.#asking = null;
    this.box = null;
    this.inside = [];
    this.outside = [];
    this.#before = null;
    this.#isApplied = false;
    this.#editor.busy("");
    this.#editor.view.draw();
  }

  /** Let the server look at the image before the first click comes. */
  prepare() {
    const { drawing } = this.#editor;
    if (drawing) send("POST", `/api/annotate/masks/${drawing.id}/prepare`, undefined, { seconds: 120 }).catch(() => {});
  }

  setMode(mode) {
    this.mode = mode;
    if (this.#isApplied) this.#ask();
  }

  /** Ask for a rough mask. One question is on its way at a time; what changes meanwhile is the next question. */
  async #ask() {
    const editor = this.#editor;
    this.#before ??= editor.mask.slice();
    this.#isStale = true;
    editor.view.draw();
    if (!this.box && !this.inside.length) {
      editor.say("Now a box around the object, or a point inside it.");
      return;
    }
    if (this.#asking) return;
    const asking = (this.#asking = new AbortController());
    editor.busy("looking for the object …");
    try {
      while (this.#isStale) {
        this.#isStale = false;
        const answer = await this.#answer(asking.signal);
        while (editor.tool.draws && editor.tool.busy) await new Promise(requestAnimationFrame); // a stroke ends first
        if (asking.signal.aborted) return;
        if (this.#isStale) continue;
        this.#apply(decode(answer.counts, answer.width, answer.height));
        editor.say(this.#advice(answer.confidence));
      }
    } catch (trouble) {
      if (asking.signal.aborted) return;
      if (!(trouble instanceof Trouble)) throw trouble;
      editor.say(`No rough mask: ${trouble.message}.`, true);
    } finally {
      if (this.#asking === asking) {
        this.#asking = null;
        editor.busy("");
      }
    }
  }

  #answer(signal) {
    const question = { box: this.box, inside: this.inside, outside: this.outside };
    return send("POST", `/api/annotate/masks/${this.#editor.drawing.id}/rough`, question, { signal, seconds: 120 });
  }

  #advice(confidence) {
    return `Rough mask, ${Math.round(confidence * 100)} % sure. Add points inside or outside, or continue with the brush.`;
  }

  #apply(rough) {
    const editor = this.#editor;
    const join = JOIN[this.mode];
    if (this.#isApplied) editor.forget();
    editor.begin();
    for (let place = 0; place < rough.length; place++) editor.mask[place] = join(this.#before[place], rough[place]);
    this.#isApplied = editor.commit(whole(editor.width, editor.height), { guided: true });
  }

  marks(context) {
    const { view } = this.#editor;
    if (this.box) {
      const [left, top] = view.toScreen(this.box[0], this.box[1]);
      const [right, bottom] = view.toScreen(this.box[2] + 1, this.box[3] + 1);
      trace(context, () => context.rect(left, top, right - left, bottom - top));
    }
    for (const [points, colour, sign] of [[this.inside, "#7dff8a", "+"], [this.outside, "#ff9a8a", "−"]]) {
      for (const [x, y] of points) dot(context, ...view.toScreen(x + 0.5, y + 0.5), colour, sign);
    }
  }
}
