// Builds elements. Texts from files are set as text, so that they never become markup.

export const isMissing = (value) => value === null || value === undefined;

const present = (children) => children.flat(Infinity).filter((child) => !isMissing(child));

export function element(tag, attributes = {}, ...children) {
	const made = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
		else if (name in made && typeof value !== "string") made[name] = value;
		else if (!isMissing(value)) made.setAttribute(name, value);
	}
	made.append(...present(children));
	return made;
}

export function fill(place, ...children) {
	place.replaceChildren(...present(children));
}

export const fillOptions = (place, names, chosen) => fill(place, names.map((name) => element("option", { selected: name === chosen }, name)));

const classed = (tag) => (name, ...children) => element(tag, { class: name }, ...children);

export const [div, li, p, span, ul] = ["div", "li", "p", "span", "ul"].map(classed);

const plain = (tag) => (...children) => element(tag, {}, ...children);

export const [h1, h2, label, strong, td, th] = ["h1", "h2", "label", "strong", "td", "th"].map(plain);

export const button = (attributes, ...children) => element("button", { type: "button", ...attributes }, ...children);

export const backLink = () => p("", element("a", { href: "#/" }, "\u2190 All runs"));

export const searchBox = (label, attributes) => element("input", { type: "search", placeholder: label, "aria-label": label, ...attributes });

export function named(text, className = "") {
	return element("bdi", { class: className, title: String(text) }, String(text));
}

export async function ask(name, parameters = {}) {
	const query = new URLSearchParams();
	for (const [key, value] of Object.entries(parameters)) {
		for (const each of [value].flat()) if (!isMissing(each)) query.append(key, each);
	}
	const answer = await fetch(`/api/${name}?${query}`);
	const content = await answer.json().catch(() => undefined);
	if (!answer.ok || content === undefined) throw new Error(content?.error ?? `the server answered ${answer.status}`);
	return content;
}

export const facts = (pairs) => element("dl", { class: "facts" }, pairs.map(([name, value]) => div("", element("dt", {}, named(name)), element("dd", {}, named(value)))));

export function numberText(value) {
	if (isMissing(value)) return "";
	if (typeof value === "string") return value; // "Infinity"
	if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
	const size = Math.abs(value);
	return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export function durationText(seconds) {
	if (isMissing(seconds)) return "";
	if (seconds < 60) return `${Math.round(seconds)} s`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
	return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function showState(kind, text) {
	const place = document.getElementById("state");
	place.className = `state ${kind}`;
	place.querySelector("span").textContent = text;
}

export function problem(text) {
	return element("p", { class: "problem", role: "alert" }, String(text));
}

// Calls a function one at a time, once more if called meanwhile; shows failures.
export function oneAtATime(message, work) {
	let running = false;
	let again = false;
	let failure = null;
	return async function call() {
		again = true;
		if (running) return;
		running = true;
		while (again) {
			again = false;
			const before = failure;
			try {
				await work();
				failure = null;
			} catch (error) {
				failure = problem(error.message);
				message.append(failure);
			}
			before?.remove();
		}
		running = false;
	};
}
