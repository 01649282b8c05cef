// The way of a mask to the server, and what happens when someone else's arrived first.

import { Outbox, Trouble } from "../api.js";
import { kept, settle } from "./compare.js";
import { decode, encode } from "./rle.js";

/** A random name; crypto.randomUUID is missing if a page is served without https. */
export function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Saver {
  base = 0; // the version that the mask was drawn upon
  isDone = false;
  isChanged = false; // since the newest version that the server has
  isGuided = false;
  #baseMask = null;
  #key = ""; // lets the server know which saves are this page's
  #editor;
  #dialog;
  #settling = null; // the drawing of which there are two masks
  #decided = 0; // the version upon which they decided
  #taken = new Map(); // image → the newest mask that the server took from this page: { version, body }

  constructor(editor, dialog) {
    this.#editor = editor;
    this.#dialog = dialog;
    this.outbox = new Outbox("annotate", {
      sent: (item, answer) => this.#sent(item, answer),
      refused: (item, trouble) => this.#refused(item, trouble),
      changed: () => this.#remind(),
    });
  }

  /** The mask to begin with: what waits to be sent, or what the server has. */
  begin(answered) {
    this.leave();
    const drawing = this.#atLeast(answered);
    const { id, width, height, version } = drawing;
    const unsent = this.outbox.get(`mask-${id}`)?.body ?? kept.get(drawing);
    const waiting = unsent?.name === drawing.name ? unsent : null; // another server may have been at this address
    const stored = drawing.mask ? decode(drawing.mask.counts, width, height) : new Uint8Array(width * height);
    this.base = waiting?.base ?? version;
    this.#baseMask = this.base === version ? stored : null;
    this.#decided = 0;
    this.#key = waiting?.editor || randomName();
    this.isDone = waiting?.done ?? drawing.status === "done";
    this.isChanged = Boolean(waiting);
    this.isGuided = Boolean(waiting?.guided);
    return waiting ? decode(waiting.counts, width, height) : stored.slice();
  }

  /** What the server said of an image, or what it took from here since: the answer may have been under way. */
  #atLeast(drawing) {
    const own = this.#taken.get(drawing.id);
    if (!own || own.version <= drawing.version || own.body.name !== drawing.name) return drawing;
    return { ...drawing, version: own.version, status: own.body.done ? "done" : "draft", mask: own.body };
  }

  /** Keep the mask in the browser and send it; whatever of it was still waiting is replaced. */
  save() {
    const { drawing, mask, width, height } = this.#editor;
    this.isChanged = true;
    const body = {
      base: this.base, width, height, counts: encode(mask, width, height), done: this.isDone, guided: this.isGuided,
      editor: this.#key, name: drawing.name,
    };
    this.#editor.refresh();
    return this.outbox.put({ key: `mask-${drawing.id}`, method: "PUT", url: `/api/annotate/masks/${drawing.id}`, body });
  }

  setDone(isDone) {
    this.isDone = isDone;
    return this.save();
  }

  /** Done; resolves to whether the server has it and nothing is left to decide. */
  async finish() {
    const { drawing } = this.#editor;
    await this.setDone(true);
    await this.outbox.empty();
    return !this.#settling && !kept.get(drawing);
  }

  #sent(item, answer) {
    const id = Number(item.key.slice("mask-".length));
    this.#taken.set(id, { version: answer.version, body: item.body });
    this.#editor.list.update(id, item.body.done ? "done" : "draft");
    if (this.#editor.drawing?.id !== id) return;
    this.base = answer.version;
    this.#baseMask = decode(item.body.counts, item.body.width, item.body.height);
    this.isChanged = Boolean(this.outbox.get(item.key));
    this.#editor.refresh();
  }

  async #refused(item, trouble) {
    const id = Number(item.key.slice("mask-".length));
    if (trouble.status !== 409) {
      this.#editor.say(`The server does not take this mask: ${trouble.message}.`, true);
      return;
    }
    const isOpen = this.#editor.drawing?.id === id;
    if (isOpen && item.body.base < this.#decided) return; // it was on its way while they decided
    kept.put({ id, name: item.body.name }, item.body);
    if (isOpen) await this.settle();
    else this.#editor.say(`${trouble.message}: open image ${id} again to decide.`, true);
  }

  /** The outbox is rid of a mask that met another's, but it is not saved yet. */
  #remind() {
    const { drawing } = this.#editor;
    if (drawing && kept.get(drawing)) this.#line("not saved yet: there are two masks of this image to choose from", true);
  }

  #line(words, isTrouble) {
    const line = document.getElementById("saving");
    line.hidden = false;
    line.textContent = words;
    line.classList.toggle("trouble", isTrouble);
  }

  /** Show both masks, if there are two, until the person has decided. */
  async settle() {
    const editor = this.#editor;
    const { drawing } = editor;
    if (this.#settling === drawing || !kept.get(drawing)) return;
    this.#settling = drawing;
    const isOver = () => this.#settling !== drawing || drawing !== editor.drawing;
    editor.isReady = false;
    editor.tool.cancel?.();
    editor.guide.clear();
    try {
      const chosen = await settle(editor, this.#dialog, editor.mask.slice(), this.base, this.#baseMask, isOver);
      if (!chosen || isOver()) return;
      this.base = this.#decided = chosen.version;
      this.#baseMask = chosen.theirs;
      this.isDone = chosen.isTheirs && chosen.done;
      editor.replace(chosen.mask, { quiet: true });
      kept.drop(drawing);
      if (chosen.isTheirs) {
        this.isChanged = false;
        this.#line("saved", false);
      } else {
        await this.save();
      }
      editor.refresh();
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      if (isOver()) return;
      editor.say(`Both masks cannot be shown yet: ${trouble.message}. Yours is kept in this browser.`, true);
      setTimeout(() => drawing === editor.drawing && this.settle(), 3000);
    } finally {
      if (!isOver()) {
        this.#settling = null;
        editor.isReady = true;
      }
    }
  }

  /** Another image is opened: what is undecided stays so. */
  leave() {
    this.#settling = null;
    if (this.#dialog.open) this.#dialog.close("");
  }
}
