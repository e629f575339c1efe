// Keeps a page current: when its server says that something changed, the parts marked data-live are taken from the page anew.
(() => {
  const events = document.documentElement.dataset.events;
  const seen = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.innerHTML]));
  let source = null, busy = false, again = false;

  function replace(part, html) {
    const focused = document.activeElement && document.activeElement.id;
    const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
    const typed = [...part.querySelectorAll("input[id]:not([type=file]), textarea[id]")].map((field) => [field.id, field.value]);
    part.innerHTML = html;
    seen.set(part.id, html);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, value] of typed) { const field = document.getElementById(id); if (field) field.value = value; }
    if (focused && !document.activeElement?.id) document.getElementById(focused)?.focus();
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const next = page.getElementById(part.id);
        if (next && next.innerHTML !== seen.get(part.id)) replace(part, next.innerHTML);
      }
      dress();
    } catch { /* the stream of events says when the server is back */ } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  }

  function listen() {
    source = new EventSource(events);
    source.onopen = () => document.body.classList.remove("lost");
    source.onerror = () => document.body.classList.add("lost");
    source.addEventListener("changed", refresh);
  }

  // Copies a command; only the browser's own clipboard is used.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "Copied"; }
    catch { button.textContent = "Select it by hand"; }
  });

  // Tells a person who looks elsewhere that a job needs them: in the title, and as a notification if they want that.
  const title = document.title;
  let waiting = todo();
  function todo() { return Number(document.querySelector("[data-todo]")?.dataset.todo ?? 0); }
  function wanted() { return "Notification" in window && Notification.permission === "granted"; }
  function dress() {
    for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
    const notify = document.getElementById("notify");
    if (notify) notify.hidden = !("Notification" in window) || Notification.permission !== "default";
    const now = todo();
    document.title = now ? `(${now}) ${title}` : title;
    if (now > waiting && wanted()) new Notification("PPCA", { body: "A job needs you.", tag: "ppca" });
    waiting = now;
  }
  document.getElementById("notify")?.addEventListener("click", async () => { await Notification.requestPermission(); dress(); });
  setInterval(() => { if (document.hidden && events && wanted()) refresh(); }, 20000);
  dress();

  document.addEventListener("visibilitychange", () => {  // browsers allow a server six connections: hidden pages take none
    if (document.hidden) { source?.close(); source = null; } else if (!source) { listen(); refresh(); }
  });
  if (events && !document.hidden) listen();
})();
