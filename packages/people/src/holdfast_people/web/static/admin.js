// The administrator's pages: forms that speak to the API, and the live progress of a campaign.
import { send } from "/static/api.js";
import { localise } from "/static/times.js";

const find = (selector, root = document) => root.querySelector(selector);
const POLL_S = 3;
const COLUMNS = [
  ["counted", "Votes that count"],
  ["open", "Open"],
  ["finished", "Finished"],
  ["discarded", "Discarded"],
  ["expired", "Out of time"],
];

function complain(trouble) {
  const line = find("#trouble");
  line.textContent = trouble ? `${trouble.message}.` : "";
  line.hidden = !trouble;
  if (trouble) line.scrollIntoView({ block: "nearest" });
}

/** Run what a button or form asks for; buttons rest meanwhile, and trouble is shown. */
async function act(root, work) {
  const buttons = [...root.querySelectorAll("button")].filter((button) => !button.disabled);
  for (const button of buttons) button.disabled = true;
  complain(null);
  try {
    await work();
  } catch (trouble) {
    complain(trouble);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function fields(form) {
  return Object.fromEntries(
    [...form.elements]
      .filter((field) => field.name)
      .map((field) => {
        const isNumber = field.type === "number" || ["source", "controls"].includes(field.name);
        return [field.name, isNumber ? Number(field.value) : field.value];
      }),
  );
}

find("#new-invitation")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  act(form, async () => {
    const wanted = fields(form);
    const made = await send("POST", "/api/invitations", wanted);
    find("#made-for").textContent = wanted.note;
    find("#made-link").value = made.link;
    find("#made-until").dateTime = new Date(made.expires_at * 1000).toISOString();
    find("#made").hidden = false;
    localise(find("#made"));
    form.reset();
    find("#copy").textContent = "Copy";
    find("#copy").focus();
    await renew();
  });
});

let asked = 0; // questions to the server: the answer to the newest is shown, whichever comes last

/** The list of invitations as it is now, without losing the link that is shown only once. */
async function renew() {
  const turn = ++asked;
  const response = await fetch(location.href);
  const text = await response.text();
  if (!response.ok || turn !== asked) return;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  find("#invitations").replaceWith(find("#invitations", fresh));
  localise(find("#invitations"));
}

find("#copy")?.addEventListener("click", async (event) => {
  const link = find("#made-link");
  link.select();
  try {
    await navigator.clipboard.writeText(link.value);
  } catch {
    document.execCommand("copy"); // browsers without a secure connection have only this
  }
  event.target.textContent = "Copied";
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-revoke]");
  if (!button || !confirm(`Withdraw the invitation of ${button.dataset.who} and log them out everywhere?`)) return;
  act(button.closest("td"), async () => {
    await send("DELETE", `/api/invitations/${button.dataset.revoke}`);
    await renew();
  });
});

find("#new-campaign")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  const button = find("button.main", form);
  act(form, async () => {
    button.textContent = "Looking through the images …";
    try {
      const made = await send("POST", "/api/campaigns", fields(form), { seconds: 1800 });
      sessionStorage.setItem(`campaign ${made.id}`, JSON.stringify(made.sentences)); // shown on the page that comes
      location.assign(`/admin/campaigns/${made.id}`);
    } finally {
      button.textContent = "Open the campaign";
    }
  });
});

const shown = find("#progress");
if (shown) {
  const campaign = shown.dataset.campaign;
  tell(find("#told"), JSON.parse(sessionStorage.getItem(`campaign ${campaign}`) ?? "[]"));
  for (const button of shown.querySelectorAll("[data-to]")) {
    button.addEventListener("click", () => {
      const { to } = button.dataset;
      if (to === "closed" && !confirm("Close the campaign? People lose the tasks that they have open.")) return;
      act(shown, async () => {
        await send("PUT", `/api/campaigns/${campaign}/status`, { status: to });
        await refresh(shown, campaign);
      });
    });
  }
  poll(shown, campaign);
}

/** What was said when the campaign was opened: how many controls there are, which images were left out. */
function tell(list, sentences) {
  list.hidden = !sentences.length;
  list.replaceChildren(
    ...sentences.map((sentence) => {
      const item = document.createElement("li");
      item.textContent = sentence[0].toUpperCase() + sentence.slice(1);
      return item;
    }),
  );
}

async function refresh(root, campaign) {
  const turn = ++asked;
  const progress = await send("GET", `/api/campaigns/${campaign}/progress`);
  if (turn === asked) show(root, progress);
}

async function poll(root, campaign) {
  const live = find("[data-live]", root);
  for (let pause = POLL_S; ; ) {
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    if (document.hidden) continue;
    try {
      await refresh(root, campaign);
      live.textContent = "Kept up to date every three seconds.";
      live.classList.remove("wrong");
      pause = POLL_S;
    } catch (trouble) {
      live.textContent = `Not up to date: ${trouble.message}. Trying again.`;
      live.classList.add("wrong");
      pause = Math.min(pause * 2, 30);
    }
  }
}

function show(root, progress) {
  const badge = find("[data-status]", root);
  badge.textContent = progress.status;
  badge.className = `badge ${progress.status}`;
  for (const button of root.querySelectorAll("[data-to]")) {
    const { to } = button.dataset;
    button.hidden = to === progress.status || (to === "paused" && progress.status === "closed");
  }
  const bar = find("[data-bar]", root);
  bar.max = progress.wanted;
  bar.value = progress.counted;
  for (const fact of root.querySelectorAll("[data-fact]")) {
    fact.textContent = progress[fact.dataset.fact].toLocaleString("en");
  }
  if (progress.people.length) find("[data-people]", root).replaceChildren(...progress.people.map(row));
}

function row(person) {
  const line = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  name.textContent = person.name;
  line.append(name);
  for (const [key, label] of COLUMNS) {
    const cell = document.createElement("td");
    cell.className = "number";
    cell.dataset.label = label;
    cell.textContent = person[key];
    line.append(cell);
  }
  return line;
}
