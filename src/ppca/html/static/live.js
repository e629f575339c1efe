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

  document.addEventListener("visibilitychange", () => {  // browsers allow a server six connections: hidden pages take none
    if (document.hidden) { source?.close(); source = null; } else if (!source) { listen(); refresh(); }
  });
  if (events && !document.hidden) listen();
})();
