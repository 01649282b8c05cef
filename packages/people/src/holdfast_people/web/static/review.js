// The review page: two examples, then the images of one task, one at a time; every answer is sent at once.
import { Outbox, Trouble, send } from "/static/api.js";

const root = document.getElementById("review");
const campaign = root.dataset.campaign;
const find = (name) => root.querySelector(`[data-${name}]`);
const AHEAD = 2; // images fetched before they are needed
const SOON_S = 300; // how long before a task's end the page says so
const LONG_MS = 20_000;
const PRESSED_MS = 140; // how long an answer is seen before the next image comes

let sheet = null; // what the campaign asks
let task = null; // {token, images, doubtful}
let step = null; // the image that is shown: of the task, or an example
let cursor = 0; // the question that keys answer
let fresh = true; // whether the image had no full answer when it was opened
let busy = false;
let endsAt = Infinity; // on this page's clock
let ended = null; // how the last task ended, when that is known
const refused = []; // votes that came too late
const retried = new Set();

const outbox = new Outbox("review", {
  sent(item, answer) {
    if (item.url.endsWith("/finish")) ended = answer.status;
  },
  refused(item) {
    refused.push(item);
    if (task && item.body) take(); // perhaps the set can be opened again
  },
  changed({ trouble, sentence }) {
    find("sending").textContent = trouble ? sentence : "";
  },
});

// ---- Which part of the page is seen

function show(state) {
  root.dataset.state = state;
  for (const section of root.querySelectorAll("[data-show]")) section.hidden = section.dataset.show !== state;
  root.querySelector(`[data-show="${state}"] h1`)?.focus();
  if (state !== "picture") scrollTo(0, 0);
}

const pause = (seconds) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    find("retry").onclick = () => {
      clearTimeout(timer);
      resolve();
    };
  });

/** The server's answer, however long it takes: while it is away the page says so. */
async function ask(method, url) {
  for (let wait = 1; ; wait = Math.min(wait * 2, 30)) {
    try {
      return await send(method, url);
    } catch (trouble) {
      if (!(trouble instanceof Trouble)) throw trouble;
      if (trouble.status === 401) location.reload(); // which leads to the login page and back
      find("trouble").textContent = `${capital(trouble.message)}.`;
      show("trouble");
      await pause(Math.max(wait, trouble.pause));
    }
  }
}

// ---- A task: from the server, answered, sent

/** Show what there is to do: first how a task ended that this browser still had to send, then the task that is open. */
async function start() {
  show("loading");
  await outbox.ready;
  const slow = setTimeout(() => {
    find("trouble").textContent = "Some of your answers are still on their way.";
    show("trouble");
  }, 3000);
  await outbox.empty(); // answers of before, kept in this browser
  clearTimeout(slow);
  if (ended) return end();
  await taking; // it may still be about the set before
  await take();
}

let taking = null;

/** Ask for the task, one request at a time. */
function take() {
  taking ??= taken().finally(() => {
    taking = null;
    if (refused.some((item) => item.body) && task) take(); // refused while we asked
  });
  return taking;
}

async function taken() {
  sheet ??= await ask("GET", `/api/review/campaigns/${campaign}`);
  const before = task?.token;
  const turn = await ask("POST", `/api/review/campaigns/${campaign}/task`);
  if (before !== task?.token) return; // the set was sent while we asked
  if (before && before !== turn.task?.token) {
    task = step = null; // an image that is about to be followed by the next one must not open one of the new set
    return show("expired");
  }
  if (!turn.task) {
    find("sentence").textContent = `${capital(turn.sentence)}.`;
    return show("nothing");
  }
  endsAt = performance.now() + turn.task.seconds_left * 1000;
  if (before && !task.doubtful) {
    // The same task again: what is on this page is newer than what the server has.
    if (!resend()) return open(next());
    return show(step ? "picture" : "review");
  }
  const pictures = turn.task.pictures.map((one) => ({ ...one, url: `/media/places/${one.token}`, answers: { ...one.answers } }));
  task = { token: turn.task.token, pictures };
  resend();
  if (before || pictures.some(complete)) return open(next());
  introduce();
}

/**
 * Votes that came while the task was closed: it is open again, so they are sent again, once. One that is refused even
 * then has to be given again; false if there is such a one.
 */
function resend() {
  let all = true;
  for (const item of refused.splice(0)) {
    const picture = task.pictures.find((one) => one.token === item.body?.place);
    if (!picture) continue;
    all &&= !retried.has(item.key);
    picture.answers = retried.has(item.key) ? {} : { ...item.body.answers };
    if (!retried.has(item.key)) outbox.put({ key: item.key, method: item.method, url: item.url, body: item.body });
    retried.add(item.key);
  }
  return all;
}

function introduce() {
  find("count").textContent = task.pictures.length;
  const keys = sheet.questions[0].keys;
  const range = keys.length > 2 ? [keys[0], keys.at(-1)] : keys;
  find("keys").replaceChildren(...range.flatMap((key, place) => [place ? (keys.length > 2 ? " to " : " and ") : "", element("kbd", key)]));
  show("intro");
  for (const one of sheet.examples) fetched(exampleOf(one).url);
  ahead(-1);
}

async function finish() {
  const buttons = [find("send"), find("again")];
  for (const button of buttons) button.disabled = true;
  await deliver().finally(() => buttons.forEach((button) => (button.disabled = false)));
}

async function deliver() {
  ended = null;
  await outbox.put({ key: `finish-${task.token}`, method: "POST", url: `/api/review/tasks/${task.token}/finish` });
  await outbox.empty();
  if (ended) return end();
  for (const item of refused.splice(0)) if (item.body) refused.push(item); // votes are sent again, this is not
  await taking; // asked before the server refused
  if (!task) return; // the time was over
  task.doubtful = true; // the server misses something that this page believes to be there
  await take();
}

function end() {
  const status = ended;
  ended = task = step = null;
  show(status === "finished" ? "finished" : "discarded");
}

// ---- Images

const images = new Map(); // url → a promise of the decoded element

function fetched(url) {
  if (!images.has(url)) images.set(url, load(url));
  return images.get(url);
}

async function load(url) {
  for (let wait = 1; ; wait = Math.min(wait * 2, 15)) {
    const image = new Image();
    image.src = url;
    try {
      await image.decode();
      return image;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait * 1000));
    }
  }
}

function ahead(place) {
  for (const one of task.pictures.slice(place + 1, place + 1 + AHEAD)) fetched(one.url);
}

const exampleOf = (one) => (one.url ? one : Object.assign(one, { url: `/media/training/${one.token}`, answers: {} }));

let watched = 0; // milliseconds for which the image has been seen
let since = null;

function watch(on) {
  if (since !== null) watched += performance.now() - since;
  since = on && document.visibilityState === "visible" ? performance.now() : null;
}

document.addEventListener("visibilitychange", () => watch(root.dataset.state === "picture" && step !== null && !busy));

// ---- One image and its questions

const complete = (one) => sheet.questions.every((question) => one.answers[question.id]);
const place = () => task.pictures.indexOf(step);
const next = () => task.pictures.find((one) => !complete(one));

/** Open an image, or where none is left the last page before sending. */
async function open(wanted) {
  const one = wanted ?? next();
  if (!one) {
    step = null;
    return show("review");
  }
  step = one;
  fresh = !complete(one);
  cursor = fresh ? sheet.questions.findIndex((question) => !one.answers[question.id]) : 0;
  busy = true;
  watched = 0;
  since = null;
  const figure = find("figure");
  const waiting = element("p", "The image is on its way …", "waiting");
  figure.replaceChildren(waiting);
  setTimeout(() => (waiting.textContent = "The image still does not come. If you leave, others get this set after a while."), LONG_MS);
  render();
  show("picture");
  scrollTo(0, 0); // a long question may have been scrolled to
  if (!one.right) ahead(place());
  const image = await fetched(one.url);
  if (step !== one) return;
  image.alt = position();
  figure.replaceChildren(image);
  busy = false;
  render();
  watch(true);
}

const isExample = () => step.right !== undefined;

function position() {
  const list = isExample() ? sheet.examples : task.pictures;
  return `${isExample() ? "Example" : "Image"} ${list.indexOf(step) + 1} of ${list.length}`;
}

function render() {
  find("position").textContent = position();
  const progress = find("progress");
  progress.max = task.pictures.length;
  progress.value = task.pictures.filter(complete).length;
  find("back").disabled = isExample() || place() === 0;
  find("forward").disabled = isExample() || !complete(step);
  questions().forEach(({ fieldset, legend, buttons }, number) => {
    const { id, text, answers } = sheet.questions[number];
    legend.replaceChildren(...asked(text, step.asked));
    fieldset.classList.toggle("current", number === cursor && !busy);
    fieldset.disabled = busy || (isExample() && complete(step));
    buttons.forEach((button, answer) => {
      button.setAttribute("aria-pressed", String(step.answers[id] === answers[answer]));
      button.classList.toggle("good", isExample() && complete(step) && step.right[id].includes(answers[answer]));
    });
  });
  const done = isExample() && complete(step);
  find("feedback").hidden = !done;
  if (done) {
    const good = sheet.questions.every(({ id }) => step.right[id].includes(step.answers[id]));
    find("verdict").textContent = good ? "That is right." : "Not quite.";
    find("verdict").className = good ? "right" : "wrong";
    find("explanation").textContent = step.explanation;
  }
}

let built = null;

/** The fieldsets of the questions, made once. */
function questions() {
  built ??= sheet.questions.map((question, number) => {
    const fieldset = find("question-template").content.cloneNode(true).querySelector("fieldset");
    const group = fieldset.querySelector(".answers");
    fieldset.classList.toggle("scale", question.answers.length > 2);
    const buttons = question.answers.map((answer, at) => {
      const button = element("button");
      button.type = "button";
      button.dataset.answer = answer;
      button.append(element("span", capital(answer), "answer"));
      if (question.answers.length > 2) button.append(element("small", ["not at all", "", "", "", "entirely"][at] ?? ""));
      else button.append(element("kbd", question.keys[at]));
      button.addEventListener("click", () => answered(number, answer));
      group.append(button);
      return button;
    });
    find("questions").append(fieldset);
    return { fieldset, legend: fieldset.querySelector("legend"), buttons };
  });
  return built;
}

/** A question's text with the class in bold; "a" before a vowel becomes "an". */
function asked(text, name) {
  const [before, after = ""] = (/^[aeiou]/i.test(name) ? text.replace("a {category}", "an {category}") : text).split("{category}");
  return text.includes("{category}") ? [before, element("strong", name), after] : [text];
}

async function answered(number, answer) {
  if (busy || !step || (isExample() && complete(step))) return;
  step.answers[sheet.questions[number].id] = answer;
  const open_questions = sheet.questions.findIndex((question) => !step.answers[question.id]);
  const whole = open_questions < 0;
  cursor = whole ? Math.min(number + 1, sheet.questions.length - 1) : open_questions;
  const goes_on = whole && (fresh || number === sheet.questions.length - 1);
  if (isExample()) {
    render();
    if (whole) find("continue").focus();
    return;
  }
  if (whole) {
    watch(!goes_on);
    vote();
  }
  busy = goes_on;
  render();
  if (!goes_on) return;
  const one = step;
  await new Promise((resolve) => setTimeout(resolve, PRESSED_MS));
  if (step !== one) return; // the task was taken again meanwhile
  open(fresh ? next() : task.pictures[place() + 1]);
}

function vote() {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const body = { place: step.token, key, answers: { ...step.answers }, seconds: Math.round(watched) / 1000 };
  outbox.put({ key, method: "POST", url: "/api/review/votes", body });
}

function goOn() {
  if (!isExample() || !complete(step)) return;
  open(sheet.examples[sheet.examples.indexOf(step) + 1] ?? next());
}

function back() {
  if (step === null) return open(task.pictures.at(-1));
  if (!isExample() && place() > 0) open(task.pictures[place() - 1]);
}

function forward() {
  if (step && !isExample() && complete(step)) open(task.pictures[place() + 1]);
}

function begin() {
  for (const one of sheet.examples) exampleOf(one).answers = {};
  open(sheet.examples[0] ?? next());
}

// ---- Keys, buttons, time

const KEYS = {
  intro: { Enter: begin },
  picture: { ArrowLeft: back, Backspace: back, ArrowRight: () => (isExample() ? goOn() : forward()), Enter: () => (isExample() ? goOn() : forward()) },
  review: { ArrowLeft: () => find("again").click(), Backspace: () => find("again").click(), Enter: () => find("send").click() },
};

document.addEventListener("keydown", (event) => {
  const state = root.dataset.state;
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  // Enter on a button or a link is that button's or link's.
  if (event.key === "Enter" && event.target.closest("button, a")) return;
  const number = state === "picture" && !busy ? cursor : -1;
  const at = number < 0 ? -1 : sheet.questions[number].keys.indexOf(event.key.toLowerCase());
  const work = at < 0 ? KEYS[state]?.[event.key] : () => answered(number, sheet.questions[number].answers[at]);
  if (!work) return;
  event.preventDefault();
  work();
});

for (const [name, work] of Object.entries({ begin, back, forward, continue: goOn, send: finish, again: back })) {
  find(name).addEventListener("click", work);
}
find("retry").addEventListener("click", () => outbox.flush());
for (const button of root.querySelectorAll("[data-next]")) button.addEventListener("click", start);

setInterval(() => {
  const left = (endsAt - performance.now()) / 1000;
  const minutes = Math.max(Math.ceil(left / 60), 1);
  find("time").hidden = !(left < SOON_S && task);
  find("time").textContent = `Please send this set within ${minutes} ${minutes === 1 ? "minute" : "minutes"}; after that it goes to someone else.`;
}, 5000);

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = name;
  return made;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

start();
