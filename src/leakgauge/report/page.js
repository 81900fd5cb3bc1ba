// Sorting, filtering, sliding and redacting what the page already holds. Nothing is fetched, nothing is stored.
"use strict";
(() => {
  const FIRST = 8;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = name => document.getElementById(name);
  const root = document.documentElement;
  root.classList.add("scripted");

  // What is closed on the screen is open on paper.
  addEventListener("beforeprint", () => all("details:not([open])").forEach(part => {
    part.open = true;
    part.dataset.printed = "";
  }));
  addEventListener("afterprint", () => all("details[data-printed]").forEach(part => {
    part.open = false;
    delete part.dataset.printed;
  }));

  const under = one("under"), order = one("order"), which = one("which"), more = one("more"), told = one("told");
  const lists = all("[data-items]");
  const line = part => part.closest("[data-line]").dataset.line;
  const standing = {};
  all("[data-rank]").forEach(part => {
    const item = part.closest("[data-item]").dataset.item;
    (standing[line(part)] ??= {})[item] = { rank: Number(part.dataset.rank), leaked: part.dataset.leaked === "yes" };
  });
  let expanded = false;

  function arrange() {
    const known = standing[under?.value] ?? {};
    const items = [...new Set(lists.flatMap(list => [...list.children].map(part => part.dataset.item)))];
    items.sort((a, b) => Number(a) - Number(b));
    if (order && order.value !== "given") {
      const sign = order.value === "most" ? 1 : -1;
      items.sort((a, b) => sign * ((known[a]?.rank ?? 0) - (known[b]?.rank ?? 0)));
    }
    const kept = items.filter(item => !which || which.value === "all"
      || (known[item]?.leaked ?? false) === (which.value === "leaked"));
    const shown = new Set(expanded ? kept : kept.slice(0, FIRST));
    lists.forEach(list => {
      const parts = Object.fromEntries([...list.children].map(part => [part.dataset.item, part]));
      items.filter(item => parts[item]).forEach(item => {
        parts[item].hidden = !shown.has(item);
        list.append(parts[item]);
      });
    });
    if (more) {
      more.hidden = kept.length <= FIRST;
      more.textContent = expanded ? `Show the first ${FIRST} only` : `Show all ${kept.length}`;
      more.setAttribute("aria-expanded", String(expanded));
    }
    if (told) {
      told.textContent = `${shown.size} of ${items.length} shown`;
    }
  }
  [under, order, which].forEach(choice => choice?.addEventListener("change", arrange));
  more?.addEventListener("click", () => {
    expanded = !expanded;
    arrange();
  });
  if (lists.length) {
    arrange();
  }

  // Over each picture that came back lies the private one, cut off where the slider stands.
  const originals = Object.fromEntries(all("[data-original] img").map(image => [
    image.closest("[data-item]").dataset.item, image]));
  all("[data-compared] .open").forEach(button => {
    const original = originals[button.closest("[data-item]").dataset.item];
    if (original) {
      const over = original.cloneNode();
      over.alt = "";
      over.className = "over";
      button.append(over);
    }
  });
  const reveal = one("reveal");
  reveal?.addEventListener("input", () => {
    root.style.setProperty("--cut", `${reveal.value}%`);
    reveal.setAttribute("aria-valuetext", `${reveal.value} % of each private image over what came back`);
  });

  // One pair, large.
  const pair = one("pair"), cut = one("cut");
  let current = null;
  const opened = () => all("[data-compared] .open").filter(button => !button.closest("[hidden]"));
  function show(button) {
    current = button;
    const tile = button.closest("[data-item]"), [back, over] = all("img", button);
    one("pair-title").textContent = `Image ${tile.dataset.item}, ${button.closest("[data-line]").dataset.title}`;
    one("pair-words").textContent = all("figcaption", tile).map(part => part.textContent.trim()).join(" ");
    one("pair-knew").textContent = button.closest("[data-line]").dataset.knew;
    one("pair-back").src = back.src;
    one("pair-back").alt = back.alt;
    one("pair-over").hidden = cut.disabled = !over;
    if (over) {
      one("pair-over").src = over.src;
    }
    pair.style.setProperty("--cut", `${cut.value}%`);
  }
  function step(by) {
    const buttons = opened();
    show(buttons[(buttons.indexOf(current) + by + buttons.length) % buttons.length]);
  }
  if (pair) {
    all("[data-compared] .open").forEach(button => button.addEventListener("click", () => {
      show(button);
      pair.showModal();
    }));
    cut.addEventListener("input", () => {
      pair.style.setProperty("--cut", `${cut.value}%`);
      cut.setAttribute("aria-valuetext", `${cut.value} % private image`);
    });
    one("pair-before").addEventListener("click", () => step(-1));
    one("pair-next").addEventListener("click", () => step(1));
    one("pair-close").addEventListener("click", () => pair.close());
    pair.addEventListener("close", () => current?.focus());
  }

  // Redacted on the screen: blocks for pictures, dots for words, no chart of labels. The file still holds all of it.
  const redact = one("redact");
  redact?.addEventListener("change", () => {
    all("img[data-blocks], img[data-clear]").forEach(image => {
      image.dataset.clear ??= image.src;
      image.src = redact.checked ? image.dataset.blocks : image.dataset.clear;
    });
    all(".private").forEach(cell => {
      cell.dataset.clear ??= cell.textContent;
      cell.textContent = redact.checked ? "•••" : cell.dataset.clear;
    });
    all("[data-private]").forEach(part => {
      part.hidden = redact.checked;
    });
  });
})();
