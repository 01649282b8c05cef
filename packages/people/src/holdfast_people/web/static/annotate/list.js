// The list of images: progress, filter, pages.

import { send } from "../api.js";

const PAGE = 50;
const WORDS = { new: "no mask", automatic: "not looked at", draft: "begun", done: "done" };

function described({ status, confidence }) {
  return status === "automatic" && confidence !== null ? `automatic, ${Math.round(confidence * 100)} % sure` : WORDS[status];
}

export class ImageList {
  wanted = { show: "unfinished", label: "", text: "" };
  #root;
  #set;
  #pick;
  #offset = 0;
  #total = 0;
  #current = 0;
  #asked = 0;
  #counted = 0;

  /** `pick(id)` is called when someone chooses an image. */
  constructor(root, set, pick) {
    this.#root = root;
    this.#set = set;
    this.#pick = pick;
    const form = root.querySelector("form");
    let pause = 0;
    form.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(() => this.#filter(form), 200);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#filter(form);
    });
    this.#filter(form, false);
    root.querySelector("[data-earlier]").addEventListener("click", () => this.turn(-1));
    root.querySelector("[data-later]").addEventListener("click", () => this.turn(1));
  }

  #filter(form, load = true) {
    const data = new FormData(form);
    this.wanted = { show: data.get("show"), label: data.get("label"), text: data.get("text").trim() };
    this.#offset = 0;
    if (load) this.load();
  }

  turn(by) {
    const offset = this.#offset + by * PAGE;
    if (offset < 0 || offset >= this.#total) return;
    this.#offset = offset;
    this.load().then(() => this.#root.querySelector("ol").scrollTo(0, 0));
  }

  async load() {
    const turn = ++this.#asked;
    const count = ++this.#counted;
    const query = new URLSearchParams({ ...this.wanted, offset: this.#offset, limit: PAGE });
    const page = await send("GET", `/api/annotate/sets/${this.#set}/images?${query}`).catch(() => null);
    if (!page || turn !== this.#asked) return;
    this.#total = page.total;
    if (this.#offset >= page.total && this.#offset > 0) {
      this.#offset = Math.max(0, Math.floor((page.total - 1) / PAGE) * PAGE);
      await this.load();
      return;
    }
    if (count === this.#counted) this.#progress(page.counts);
    const list = this.#root.querySelector("ol");
    list.replaceChildren(...page.images.map((image) => this.#line(image)));
    const last = Math.min(this.#offset + PAGE, page.total);
    const said = page.total ? `${this.#offset + 1}–${last} of ${page.total.toLocaleString("en")}` : "no image is like that";
    this.#root.querySelector("[data-range]").textContent = said;
    this.#root.querySelector("[data-earlier]").disabled = this.#offset === 0;
    this.#root.querySelector("[data-later]").disabled = last >= page.total;
    this.mark(this.#current);
  }

  #progress(counts) {
    const bar = this.#root.querySelector("progress");
    bar.max = counts.all || 1;
    bar.value = counts.done;
    const doubtful = counts.doubtful ? `, ${counts.doubtful.toLocaleString("en")} doubtful` : "";
    this.#root.querySelector("[data-progress]").textContent =
      `${counts.done.toLocaleString("en")} of ${counts.all.toLocaleString("en")} done${doubtful}`;
  }

  #line(image) {
    const line = this.#root.querySelector("template").content.cloneNode(true);
    const button = line.querySelector("button");
    button.dataset.id = image.id;
    line.querySelector("img").src = `/media/images/${image.image_id}/small`;
    const prefix = `${image.label}/`; // most datasets have a folder a class
    line.querySelector(".name").textContent = image.name.startsWith(prefix) ? image.name.slice(prefix.length) : image.name;
    line.querySelector(".label").textContent = image.label;
    line.querySelector(".state").textContent = described(image);
    button.classList.add(image.status);
    button.addEventListener("click", () => this.#pick(image.id));
    return line;
  }

  /** Show which image is open. */
  mark(id) {
    this.#current = id;
    for (const button of this.#root.querySelectorAll("ol button")) {
      const isOpen = Number(button.dataset.id) === id;
      if (isOpen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      if (isOpen) button.scrollIntoView({ block: "nearest" });
    }
  }

  /** An image's status changed. */
  async update(id, status) {
    const button = this.#root.querySelector(`ol button[data-id="${Number(id)}"]`);
    if (!button || button.classList.contains(status)) return;
    button.classList.remove(...Object.keys(WORDS));
    button.classList.add(status);
    button.querySelector(".state").textContent = WORDS[status];
    const count = ++this.#counted;
    const { counts } = await send("GET", `/api/annotate/sets/${this.#set}`).catch(() => ({}));
    if (counts && count === this.#counted) this.#progress(counts); // else a later question has the newer answer
  }

  /** The image after (or before) another: of the list as it is narrowed, or the next that is unfinished. */
  async neighbour(after, { backwards = false, unfinished = false } = {}) {
    const wanted = { ...this.wanted };
    if (unfinished && wanted.show !== "doubtful") wanted.show = "unfinished";
    const query = new URLSearchParams({ ...wanted, backwards });
    if (after) query.set("after", after);
    const ask = (words) => send("GET", `/api/annotate/sets/${this.#set}/next?${words}`);
    const found = (await ask(query)).id;
    if (found !== null || !unfinished) return found;
    const any = new URLSearchParams({ show: "unfinished", ...(after ? { after } : {}) }); // whatever the filter says
    return (await ask(any)).id;
  }
}
