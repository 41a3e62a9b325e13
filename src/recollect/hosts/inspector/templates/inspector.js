// Replaces the parts of an open page when its session grows. Reading needs no script.
const page = document.querySelector("[data-live]");
if (page && window.EventSource && window.trustedTypes) {
  const own = trustedTypes.createPolicy("recollect", { createHTML: (text) => text });
  const events = new EventSource(page.dataset.live);
  let loading = false, again = false;
  const load = async () => {
    if (loading) { again = true; return; }
    loading = true;
    do {
      again = false;
      const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
      if (!answer.ok) { events.close(); break; }
      const fresh = new DOMParser().parseFromString(own.createHTML(await answer.text()), "text/html");
      const parts = document.querySelectorAll("[data-part]");
      if (parts.length !== fresh.querySelectorAll("[data-part]").length) { location.reload(); return; }
      for (const part of parts) {
        const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
        if (next && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(next));
      }
    } while (again);
    loading = false;
  };
  events.addEventListener("turns", load);
  events.addEventListener("open", () => { page.hidden = false; });
  events.addEventListener("error", () => { page.hidden = true; });
}
