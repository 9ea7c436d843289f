"use strict";
// Shows the evidence of a GPU, host or switch beside the drawing. All of it is shown as text: the
// page never turns a string into markup. Without this script the links lead to the GPU's row.
(() => {
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const title = document.getElementById("panel-title");
  const data = JSON.parse(document.getElementById("evidence").textContent);
  let opener = null;
  document.documentElement.classList.add("scripted");

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const heading = (text) => body.append(element("h4", text));
  const table = (names, rows) => {
    const made = element("table");
    const top = element("thead");
    const line = element("tr");
    for (const name of names) line.append(element("th", name));
    top.append(line);
    const rest = element("tbody");
    for (const cells of rows) {
      const row = element("tr");
      cells.forEach((cell, at) => {
        const td = element("td", cell);
        td.dataset.label = names[at];
        row.append(td);
      });
      rest.append(row);
    }
    made.append(top, rest);
    body.append(made);
  };
  const withUnit = (value, metric) => {
    const unit = data.metrics[metric][1];
    return unit === "text" || unit === "flag" || value === "–" ? value : `${value} ${unit}`;
  };
  const limit = (number) => (number < 0 ? "–" : `${data.limits[number][0]} (${data.limits[number][1]})`);
  const source = (number) => (number < 0 ? "" : data.limits[number][2]);

  const diagnoses = (list) => {
    heading("Diagnosis");
    for (const [first, ...rest] of list) {
      body.append(element("p", first));
      const items = element("ul");
      for (const line of rest) items.append(element("li", line));
      body.append(items);
    }
  };
  const bad = (part) => {
    heading("Not PASS");
    table(["Verdict", "Burn and metric", "Runs", "Limit", "Reason or source"], part.bad.map(
      ([verdict, place, burn, metric, runs, bound, reason]) => [verdict,
        `${place ? `${place} ` : ""}${data.burns[burn]}: ${data.metrics[metric][0]}`,
        withUnit(runs || "–", metric), limit(bound), reason || source(bound)]));
    if (part.more) body.append(element("p", `and ${part.more} more, in the record`));
  };
  const show = (part) => {
    body.replaceChildren();
    const facts = element("dl");
    const all = part.verdict ? [["Verdict", part.verdict], ...(part.facts || [])] : part.facts || [];
    for (const [name, value] of all) facts.append(element("dt", name), element("dd", value));
    body.append(facts);
    if (part.diagnoses) diagnoses(part.diagnoses);
    if (part.bad) bad(part);
    if (part.said) {
      heading("What the driver said");
      table(["Code", "Text", "When"], part.said);
    }
    if (part.links) {
      heading("NVLinks");
      table(["Burn and metric", "Links", "Values"], part.links.map(([burn, metric, passed, total, span]) =>
        [`${data.burns[burn]}: ${data.metrics[metric][0]}`, `${passed} of ${total} PASS`, withUnit(span, metric)]));
    }
    if (part.pass) {
      heading(`PASS: ${part.pass.length}`);
      table(["Burn and metric", "Value", "Limit"], part.pass.map(([burn, metric, value, bound]) =>
        [`${data.burns[burn]}: ${data.metrics[metric][0]}`, withUnit(value, metric), limit(bound)]));
    }
    if (part.noted) {
      heading("Noted, not judged");
      table(["Burn and metric", "Value"], part.noted.map(([burn, metric, value]) =>
        [`${data.burns[burn]}: ${data.metrics[metric][0]}`, withUnit(value, metric)]));
    }
  };
  const mark = (subject) => {
    for (const cell of document.querySelectorAll("[aria-current]")) cell.removeAttribute("aria-current");
    for (const cell of document.querySelectorAll("[data-part]")) {
      if (cell.dataset.part === subject) cell.setAttribute("aria-current", "true");
    }
  };
  const close = () => {
    panel.hidden = true;
    document.documentElement.classList.remove("panel-open");
    mark("");
    if (opener) opener.focus();
    opener = null;
  };
  const open = () => {
    let subject = "";
    try {
      subject = decodeURIComponent(location.hash.slice(1));
    } catch {
      return; // a fragment that is no address of a part
    }
    if (!Object.hasOwn(data.parts, subject)) {
      if (!panel.hidden) close();
      return;
    }
    title.textContent = subject;
    show(data.parts[subject]);
    panel.hidden = false;
    document.documentElement.classList.add("panel-open");
    mark(subject);
    panel.scrollTop = 0;
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const subject = link.getAttribute("href").slice(1);
    if (!Object.hasOwn(data.parts, subject)) return;
    event.preventDefault();
    opener = link;
    history.pushState(null, "", `#${encodeURI(subject)}`);
    open();
  });
  document.getElementById("panel-close").addEventListener("click", () => {
    history.pushState(null, "", "#");
    close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) {
      history.pushState(null, "", "#");
      close();
    }
  });
  addEventListener("hashchange", open);
  addEventListener("popstate", open);
  open();
})();
