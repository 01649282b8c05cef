// Talking to the server: send() for one request, Outbox for work that must not be lost.

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

/** What the server, or the way to it, answered instead. `status` is 0 if the server was not reached. */
export class Trouble extends Error {
  constructor(status, detail, pause = 0) {
    super(detail);
    this.status = status;
    this.pause = pause; // seconds that the server asked us to wait
  }

  /** Whether the same request may succeed later by itself. */
  get passes() {
    return this.status === 0 || this.status === 408 || this.status === 429 || this.status >= 500;
  }

  /** Whether someone has to log in or load the page again first. */
  get needsPerson() {
    return this.status === 401 || this.status === 403;
  }
}

/** One request to the JSON API: the answer's value, or a Trouble is thrown. `body` is sent as JSON. */
export async function send(method, url, body, { signal, seconds = 30 } = {}) {
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["x-csrf-token"] = meta("csrf");
  if (body !== undefined) headers["content-type"] = "application/json";
  const limit = AbortSignal.timeout(seconds * 1000);
  let response, text;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    text = await response.text(); // half an answer is none
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Trouble(0, "the server cannot be reached");
  }
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // an answer from something in front of the server
  }
  if (response.ok) return value;
  throw new Trouble(response.status, words(value) || `the server answered ${response.status}`, pauseOf(response));
}

function words(value) {
  const detail = value?.detail;
  if (Array.isArray(detail)) return detail.map((one) => `${one.loc?.at(-1) ?? ""}: ${one.msg}`).join("; ");
  return typeof detail === "string" ? detail : "";
}

function pauseOf(response) {
  return Number(response.headers.get("retry-after")) || 0;
}

/**
 * Work on its way to the server: kept in the browser until the server has said yes, sent in order, again after
 * growing pauses while the server does not answer, and again when the page is opened next time.
 *
 *   const outbox = new Outbox("review", { sent(item, answer) {…}, refused(item, trouble) {…}, changed(state) {…} });
 *   await outbox.put({ key, method, url, body });    // resolves as soon as it is kept; sending continues behind
 *   await outbox.empty();                            // resolves when everything has been sent
 *
 * `key` names the work: putting the same key again replaces what was not sent yet. What the server refuses for good
 * (400, 404, 409, …) leaves the outbox and goes to `refused`. `state` is {waiting, trouble, sentence}; the sentence is
 * also shown in the page's #saving line.
 */
export class Outbox {
  #store;
  #items = new Map(); // key → item, in the order in which they were put
  #sending = null;
  #wake = null;
  #trouble = null;
  #empties = [];
  #everPut = false;

  constructor(name, { sent = () => {}, refused = () => {}, changed = () => {} } = {}) {
    this.listeners = { sent, refused, changed };
    this.#store = new Store(`${name}:${meta("person")}`);
    this.ready = this.#load();
    addEventListener("online", () => this.flush());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.flush());
    addEventListener("beforeunload", (event) => {
      if (this.#items.size && !this.#store.lasting) event.preventDefault(); // only then would it be lost
    });
  }

  get waiting() {
    return this.#items.size;
  }

  get state() {
    const waiting = this.#items.size;
    let sentence = waiting ? "saving …" : this.#everPut ? "saved" : "";
    if (waiting && this.#trouble) sentence = `not saved yet: ${this.#trouble.message}${this.#advice()}`;
    return { waiting, trouble: waiting ? this.#trouble : null, sentence };
  }

  #advice() {
    if (this.#trouble.needsPerson) return " – load the page again; nothing is lost";
    return " – kept in this browser, sent when the server is back";
  }

  async put(item) {
    await this.ready;
    const kept = { ...item, stamp: `${Date.now()}-${Math.random()}` };
    this.#everPut = true;
    this.#items.delete(kept.key);
    this.#items.set(kept.key, kept);
    this.#tell(); // before it is kept: until then nothing may call it saved
    await this.#store.put(kept);
    this.flush();
  }

  /** Unsent work by its key, or undefined: pages show it instead of what the server has. */
  get(key) {
    return this.#items.get(key);
  }

  /** Try now, without waiting for the pause to end. */
  flush() {
    this.#wake?.();
    this.#sending ??= this.#deliver().finally(() => {
      this.#sending = null;
      if (this.#items.size && !this.#trouble?.needsPerson) this.flush(); // put while the last round ended
    });
  }

  empty() {
    return this.#items.size ? new Promise((resolve) => this.#empties.push(resolve)) : Promise.resolve();
  }

  async #load() {
    for (const item of await this.#store.all()) this.#items.set(item.key, item);
    if (this.#items.size) {
      this.#everPut = true;
      this.#tell();
      this.flush();
    }
  }

  async #deliver() {
    await this.ready;
    let pause = 1;
    while (this.#items.size) {
      const item = this.#items.values().next().value;
      try {
        const answer = await send(item.method, item.url, item.body);
        this.#trouble = null;
        pause = 1;
        await this.#done(item, () => this.listeners.sent(item, answer));
      } catch (trouble) {
        if (!(trouble instanceof Trouble)) throw trouble;
        if (trouble.passes) {
          this.#report(trouble);
          await this.#sleep(Math.max(pause, trouble.pause));
          pause = Math.min(pause * 2, 30);
        } else if (trouble.needsPerson) {
          this.#report(trouble);
          return;
        } else {
          this.#trouble = null;
          await this.#done(item, () => this.listeners.refused(item, trouble));
          this.#everPut = false; // nothing is called saved until more was put and sent
        }
      }
      this.#tell();
    }
  }

  #report(trouble) {
    this.#trouble = trouble;
    this.#tell();
  }

  /** Forget an item and return how it ended; both at one go, or someone finds the outbox empty and does not know. */
  async #done(item, tell) {
    const isNewest = () => this.#items.get(item.key)?.stamp === item.stamp; // else replaced while it was on its way
    if (isNewest()) await this.#store.delete(item.key);
    if (isNewest()) this.#items.delete(item.key);
    tell();
  }

  #sleep(seconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    }).finally(() => {
      this.#wake = null;
    });
  }

  #tell() {
    const { state } = this;
    const line = document.getElementById("saving");
    if (line) {
      line.hidden = !state.sentence;
      line.textContent = state.sentence;
      line.classList.toggle("trouble", Boolean(state.trouble));
    }
    this.listeners.changed(state);
    if (!state.waiting) for (const resolve of this.#empties.splice(0)) resolve();
  }
}

/** Items of one outbox in IndexedDB; in memory if the browser has none to give. */
class Store {
  constructor(name) {
    this.name = name;
    this.lasting = true;
    this.order = 0;
    this.database = open().catch(() => {
      this.lasting = false;
      return null;
    });
  }

  async all() {
    const items = await this.#ask("readonly", (table) => table.getAll(IDBKeyRange.bound([this.name], [this.name, []])));
    const mine = (items ?? []).sort((one, other) => one.order - other.order);
    this.order = mine.at(-1)?.order ?? 0;
    return mine.map((row) => row.item);
  }

  put(item) {
    this.order += 1;
    const row = { outbox: this.name, key: item.key, order: this.order, item };
    return this.#ask("readwrite", (table) => table.put(row));
  }

  delete(key) {
    return this.#ask("readwrite", (table) => table.delete([this.name, key]));
  }

  async #ask(mode, work) {
    const database = await this.database;
    if (!database) return null;
    try {
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction("items", mode);
        const request = work(transaction.objectStore("items"));
        transaction.oncomplete = () => resolve(request.result);
        transaction.onerror = transaction.onabort = () => reject(transaction.error);
      });
    } catch {
      this.lasting = false; // no room: the work stays in memory, and leaving the page asks first
      return null;
    }
  }
}

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("holdfast", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("items", { keyPath: ["outbox", "key"] });
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(request.error);
  });
}
