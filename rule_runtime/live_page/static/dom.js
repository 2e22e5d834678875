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

const classed = (tag) => (name, ...children) => element(tag, { class: name }, ...children);

export const [div, li, p, span] = ["div", "li", "p", "span"].map(classed);

export const button = (attributes, ...children) => element("button", { type: "button", ...attributes }, ...children);

export const backLink = () => p("back", element("a", { href: "#/" }, "\u2190 All runs"));

export const searchBox = (label, attributes) => element("input", { type: "search", placeholder: label, "aria-label": label, ...attributes });

export function named(text, className = "") {
	return element("bdi", { class: className, title: String(text) }, String(text));
}

export async function ask(name, parameters = {}, signal = undefined) {
	const query = new URLSearchParams();
	for (const [key, value] of Object.entries(parameters)) {
		for (const each of [value].flat()) if (!isMissing(each)) query.append(key, each);
	}
	const answer = await fetch(`/api/${name}?${query}`, { signal });
	const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
	if (!answer.ok) throw new Error(content.error ?? `the server answered ${answer.status}`);
	return content;
}

export function numberText(value) {
	if (isMissing(value)) return "";
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

// Calls a function at most once at a time, and once more if it was called meanwhile.
export function oneAtATime(work) {
	let running = false;
	let again = false;
	return async function call() {
		if (running) {
			again = true;
			return;
		}
		running = true;
		try {
			do {
				again = false;
				await work();
			} while (again);
		} finally {
			running = false;
		}
	};
}
