// Draws the histogram of a saved value; it is hidden where no value was saved.
import { ask, div, element, fill, named, numberText, span } from "./dom.js";

const NAMESPACE = "http://www.w3.org/2000/svg";

function bars(answer) {
	const picture = document.createElementNS(NAMESPACE, "svg");
	const most = Math.max(...answer.counts, 1);
	picture.setAttribute("viewBox", `0 0 ${answer.counts.length} 100`);
	picture.setAttribute("preserveAspectRatio", "none");
	picture.setAttribute("role", "img");
	picture.setAttribute("aria-label", `Histogram of ${answer.tensor} at step ${answer.step}`);
	answer.counts.forEach((count, at) => {
		const bar = document.createElementNS(NAMESPACE, "rect");
		const place = { x: at + 0.05, width: 0.9, y: 100 - (100 * count) / most, height: (100 * count) / most };
		for (const [name, value] of Object.entries(place)) bar.setAttribute(name, value);
		const title = document.createElementNS(NAMESPACE, "title");
		title.textContent = `${numberText(answer.edges[at])} to ${numberText(answer.edges[at + 1])}: ${count}`;
		bar.append(title);
		picture.append(bar);
	});
	return picture;
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
			const answer = await ask("histogram", { run, tensor, step });
			if (turn !== asked || !answer?.counts.length) return; // no value was saved
			const bad = answer.num_bad ? `, ${answer.num_bad} not finite` : "";
			fill(box, element("h3", {}, "Values of ", named(answer.tensor), ` at step ${answer.step}${bad}`), bars(answer), div("step-ends small faint", span("", numberText(answer.edges[0])), span("", numberText(answer.edges.at(-1)))));
			box.hidden = false;
		},
	};
}
