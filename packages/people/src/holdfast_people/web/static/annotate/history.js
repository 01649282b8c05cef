// Undo and redo. A step is the pixels that changed, as run lengths within their rectangle: undoing flips them again.

const MOST_BYTES = 32 << 20;
const MOST_STEPS = 500;

export class History {
  #mask;
  #width;
  #before; // the mask as it was when the step began
  #undo = [];
  #redo = [];
  #bytes = 0;

  constructor(mask, width) {
    this.#mask = mask;
    this.#width = width;
    this.#before = mask.slice();
  }

  get canUndo() {
    return this.#undo.length > 0;
  }

  get canRedo() {
    return this.#redo.length > 0;
  }

  /** From here on the mask may change; `commit` makes a step of it, `revert` takes it back. */
  begin() {
    this.#before.set(this.#mask);
  }

  /** Whether anything had changed within the rectangle. */
  commit(rect) {
    const runs = rect && this.#difference(rect);
    if (!runs) return false;
    for (const step of this.#redo.splice(0)) this.#bytes -= step.runs.byteLength;
    this.#undo.push({ rect, runs });
    this.#bytes += runs.byteLength;
    while (this.#undo.length > 1 && (this.#bytes > MOST_BYTES || this.#undo.length > MOST_STEPS)) {
      this.#bytes -= this.#undo.shift().runs.byteLength;
    }
    return true;
  }

  revert() {
    this.#mask.set(this.#before);
  }

  /** The rectangle that changed, or null if there is nothing to undo. */
  undo() {
    return this.#flip(this.#undo, this.#redo);
  }

  redo() {
    return this.#flip(this.#redo, this.#undo);
  }

  /** Take the last step back for good. */
  forget() {
    const rect = this.undo();
    const step = this.#redo.pop();
    if (step) this.#bytes -= step.runs.byteLength;
    return rect;
  }

  #difference({ left, top, right, bottom }) {
    const runs = [];
    let changed = 0;
    let run = 0;
    for (let y = top; y < bottom; y++) {
      for (let place = y * this.#width + left, end = y * this.#width + right; place < end; place++) {
        const now = this.#mask[place] ^ this.#before[place];
        if (now === changed) {
          run++;
        } else {
          runs.push(run);
          changed = now;
          run = 1;
        }
      }
    }
    runs.push(run);
    return runs.length > 1 ? Uint32Array.from(runs) : null;
  }

  #flip(from, to) {
    const step = from.pop();
    if (!step) return null;
    to.push(step);
    const { left, top, right } = step.rect;
    const across = right - left;
    let position = 0;
    step.runs.forEach((run, index) => {
      for (const end = position + run; position < end; position++) {
        if (index % 2) this.#mask[(top + Math.floor(position / across)) * this.#width + left + (position % across)] ^= 1;
      }
    });
    return step.rect;
  }
}
