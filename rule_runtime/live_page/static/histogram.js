// Draws the histogram of a saved value; it is hidden where no value was saved.
import { ask, div, element, fill, named, numberText, problem, span } from "./dom.js";

function drawn(tag, attributes, children) {
	const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
	made.append(...children);
	return made;
}

function bars(answer) {
	const most = Math.max(...answer.counts, 1);
	return drawn("svg", { viewBox: `0 0 ${answer.counts.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": `Histogram of ${answer.tensor} at step ${answer.step}` }, answer.counts.map((count, at) =>
		drawn("rect", { x: at + 0.05, width: 0.9, y: 100 - (100 * count) / most, height: (100 * count) / most }, [drawn("title", {}, [`${numberText(answer.edges[at])} to ${numberText(answer.edges[at + 1])}: ${count}`])])));
}

export function histogram(run) {
	const box = element("div", { class: "histogram", hidden: true });
	let asked = 0;
	return {
		box,
		async show(tensor, step) {
			asked += 1;
			const turn = asked;
			box.hidden = true;
			if (!tensor) return;
			const answer = await ask("histogram", { run, tensor, step }).catch((error) => error);
			if (turn !== asked) return;
			box.hidden = !answer?.message && !answer?.counts.length; // no value was saved
			if (box.hidden || answer.message) return fill(box, problem(answer?.message));
			const bad = answer.num_bad ? `, ${answer.num_bad} not finite` : "";
			fill(box, element("h3", {}, "Values of ", named(answer.tensor), ` at step ${answer.step}${bad}`), bars(answer), div("step-ends small faint", span("", numberText(answer.edges[0])), span("", numberText(answer.edges.at(-1)))));
		},
	};
}
