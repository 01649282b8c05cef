// Two masks side by side: the one before this one, or the one that someone else saved in the meantime.

import { Trouble, send } from "../api.js";
import { decode } from "./rle.js";
import { COLOURS, word } from "./view.js";

/** When something happened, in the reader's own words. */
export function when(seconds) {
  return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function described(version) {
  const who = version.person || version.how;
  return `${who}${version.done ? ", done" : ""}, ${when(version.created_at)}`;
}

/** The panel that compares with a version before. */
export class Compare {
  #editor;
  #root;
  #choice;
  #said;
  #mask = null;
  #turn = 0; // of what was asked: an answer counts while nothing else was asked for

  constructor(editor, root) {
    this.#editor = editor;
    this.#root = root;
    this.#choice = root.querySelector("select");
    this.#said = root.querySelector("[data-difference]");
    this.#choice.addEventListener("change", () => this.#trying(() => this.#show(Number(this.#choice.value))));
    root.querySelector("[data-restore]").addEventListener("click", () => this.#restore());
  }

  get isOn() {
    return !this.#root.hidden;
  }

  async toggle() {
    if (this.isOn) this.off();
    else await this.#on();
  }

  off() {
    this.#turn++;
    this.#mask = null;
    if (this.#root.contains(document.activeElement)) this.#editor.panel.find("canvas").focus({ preventScroll: true });
    this.#root.hidden = true;
    this.#editor.panel.press("compare", false);
    this.#editor.view.compare(null);
  }

  async #on() {
    const { drawing } = this.#editor;
    const turn = ++this.#turn;
    await this.#trying(async () => {
      const versions = await send("GET", `/api/annotate/masks/${drawing.id}/versions`);
      if (turn !== this.#turn) return;
      const earlier = versions.filter((one) => one.version !== this.#editor.saver.base || this.#editor.saver.isChanged);
      if (!earlier.length) {
        this.#editor.say("There is no other version of this mask yet.");
        return;
      }
      this.#choice.replaceChildren(...earlier.map((one) => new Option(described(one), one.version)));
      await this.#show(earlier[0].version, turn);
      if (turn !== this.#turn) return;
      this.#root.hidden = false; // with a version that does not fit, too: there may be others
      this.#editor.panel.press("compare", true);
    });
  }

  async #trying(work) {
    try {
      await work();
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#editor.say(`Nothing to compare with: ${trouble.message}.`, true);
    }
  }

  async #show(version, turn = ++this.#turn) {
    const { drawing, width, height } = this.#editor;
    const found = await send("GET", `/api/annotate/masks/${drawing.id}/versions/${version}`);
    if (turn !== this.#turn) return;
    if (found.mask.width !== width || found.mask.height !== height) {
      this.#mask = null;
      this.#said.textContent = "";
      this.#editor.view.compare(null);
      this.#editor.say("That version has another size than the image.", true);
      return;
    }
    this.#mask = decode(found.mask.counts, width, height);
    this.#editor.view.compare(this.#mask);
    this.refresh();
  }

  /** Count what differs, after the mask changed. */
  refresh() {
    if (!this.#mask) return;
    const { added, removed } = count(this.#editor.mask, this.#mask);
    this.#said.textContent =
      added || removed ? `${added.toLocaleString("en")} pixels only now, ${removed.toLocaleString("en")} only then` : "no difference";
  }

  #restore() {
    const editor = this.#editor;
    const mask = this.#mask;
    if (!mask) return;
    this.off();
    editor.replace(mask);
    editor.say("The version is back; undo if you did not mean it.");
  }
}

function count(now, then) {
  let added = 0;
  let removed = 0;
  for (let place = 0; place < now.length; place++) {
    if (now[place] > then[place]) added++;
    else if (now[place] < then[place]) removed++;
  }
  return { added, removed };
}

/** Both people's changes to what both began with; without it, what either has marked. */
export function join(mine, theirs, base) {
  // A pixel is on or off: if both changed it, they changed it alike.
  return mine.map((value, place) => (base ? (value !== base[place] ? value : theirs[place]) : value | theirs[place]));
}

/** Work that met someone else's and waits for a decision; kept in the browser, so that closing the page loses nothing. */
export const kept = {
  // With the image's name: another server may have been at this address.
  key: ({ id, name }) => `holdfast-conflict:${document.querySelector('meta[name="person"]')?.content}:${id}:${name}`,
  put(drawing, body) {
    try {
      localStorage.setItem(this.key(drawing), JSON.stringify(body));
    } catch {
      // no room: it is still in the open page
    }
  },
  get(drawing) {
    try {
      return JSON.parse(localStorage.getItem(this.key(drawing)));
    } catch {
      return null;
    }
  },
  drop(drawing) {
    localStorage.removeItem(this.key(drawing));
  },
};

/**
 * Show both masks and let the person decide; resolves to the mask to continue with, and the version that it now is
 * upon; to null where they put it off or `isOver` before they were asked. Nothing is saved here.
 */
export async function settle(editor, dialog, mine, baseVersion, baseMask, isOver) {
  const { width, height } = editor;
  const { id } = editor.drawing;
  const newest = (await send("GET", `/api/annotate/masks/${id}`)).newest;
  if (!newest) return { mask: mine, version: 0, theirs: null, isTheirs: false, done: false }; // a server that began again
  const { mask, ...theirs } = await send("GET", `/api/annotate/masks/${id}/versions/${newest.version}`);
  const other = decode(mask.counts, width, height);
  const base = baseMask ?? (await earlier(id, baseVersion, width, height));
  if (isOver()) return null;
  const { added, removed } = count(mine, other);
  const set = (name, text) => {
    dialog.querySelector(`[data-${name}]`).textContent = text;
  };
  set("who", theirs.person || "Somebody");
  set("when", when(theirs.created_at));
  set("differences", `${added.toLocaleString("en")} pixels are only in yours, ${removed.toLocaleString("en")} only in theirs.`);
  set("join-note", base ? "Both people's changes are kept." : "Everything that either of you marked is kept.");
  preview(dialog.querySelector("canvas[data-mine]"), editor, mine, other, COLOURS.added);
  preview(dialog.querySelector("canvas[data-theirs]"), editor, other, mine, COLOURS.removed);
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const chosen = { mine: () => mine, theirs: () => other, join: () => join(mine, other, base) }[dialog.returnValue];
  if (!chosen) return null;
  const isTheirs = dialog.returnValue === "theirs";
  return { mask: chosen(), version: newest.version, theirs: other, isTheirs, done: newest.done };
}

async function earlier(id, version, width, height) {
  if (!version) return new Uint8Array(width * height);
  try {
    const { mask } = await send("GET", `/api/annotate/masks/${id}/versions/${version}`);
    return decode(mask.counts, width, height);
  } catch {
    return null; // autosaves replace each other: that one is gone
  }
}

/** The image, small, with a mask over it; what the other one lacks is in its own colour. */
function preview(canvas, editor, mask, other, colour) {
  const { width, height, image } = editor;
  const scale = Math.min(1, 480 / Math.max(width, height));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const layer = document.createElement("canvas");
  layer.width = width;
  layer.height = height;
  const pixels = new ImageData(width, height);
  const words = new Uint32Array(pixels.data.buffer);
  const colours = [word(colour, 200), word(COLOURS.both, 100)];
  for (let place = 0; place < mask.length; place++) {
    if (mask[place]) words[place] = colours[other[place]];
  }
  layer.getContext("2d").putImageData(pixels, 0, 0);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  context.drawImage(layer, 0, 0, canvas.width, canvas.height);
}

