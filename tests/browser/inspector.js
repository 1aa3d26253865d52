// Runs before the Inspector: chooses its direct mode, then connects, lists, calls and reports.
localStorage.setItem("lastConnectionType", "direct");
localStorage.setItem("lastBearerToken", "ada");
const answers = [], real = window.fetch;
window.fetch = async (url, options) => {
  const of = `${(options && options.method) || "GET"} ${new URL(url, location).pathname}`;
  const response = await real(url, options);
  answers.push(`${of} ${response.status}`);
  return response;
};
const press = name => {
  const found = [...document.querySelectorAll("button")].find(each => each.textContent.trim() === name && !each.disabled);
  if (found) found.click();
  return Boolean(found);
};
const openTools = () => {
  const tab = [...document.querySelectorAll("[role=tab]")].find(each => each.textContent.trim() === "Tools");
  if (tab) tab.dispatchEvent(new MouseEvent("mousedown", {bubbles: true, button: 0}));
  return press("List Tools");
};
const choose = () => {
  const row = [...document.querySelectorAll("*")].filter(each => !each.children.length && each.textContent.trim() === "echo").pop();
  if (row) row.click();
  return Boolean(row);
};
const fillIn = () => {
  const field = document.querySelector("textarea#text, textarea[name=text]") || document.querySelector("textarea");
  if (!field) return false;
  Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(field, "gr\u00fc\u00dfe");
  field.dispatchEvent(new Event("input", {bubbles: true}));
  return true;
};
const text = () => document.body ? document.body.innerText : "";
const steps = [
  () => press("Connect"), openTools, choose, fillIn, () => press("Run Tool"),
  () => text().includes("Tool Result") || null,
];
const timer = setInterval(() => {
  const failed = text().includes("Connection Error");
  if (!failed && steps.length) { if (steps[0]()) steps.shift(); return; }
  clearInterval(timer);
  const result = text().slice(text().indexOf("Tool Result")).split("\n").slice(0, 2);
  real("/done", {method: "POST", body: JSON.stringify(failed ? "Connection Error" : {answers: answers.filter(each => each.includes("/mcp")), result})});
}, 250);
