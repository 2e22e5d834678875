// The controls that all charts of a view share: smoothing, scale, shown range.
import { button, div, element, span } from "./dom.js";

const kept = { smoothing: 0, isLog: false };

export function controls({ onStyle, onRange }) {
	const text = () => (kept.smoothing ? kept.smoothing.toFixed(2) : "none");
	const label = element("output", {}, text());
	const smoothing = element("input", {
		type: "range", min: "0", max: "0.99", step: "0.01", value: String(kept.smoothing), "aria-label": "Smoothing",
		oninput: () => { kept.smoothing = Number(smoothing.value); label.textContent = text(); onStyle(); },
	});
	const log = element("input", { type: "checkbox", checked: kept.isLog, onchange: () => { kept.isLog = log.checked; onStyle(); } });
	const shown = span("faint small range-text");
	const reset = button({ hidden: true, onclick: () => onRange(null) }, "Show all steps");
	return {
		box: div("bar controls", element("label", {}, "Smoothing ", smoothing, " ", label), element("label", {}, log, " Log scale"), shown, reset),
		options: kept,
		showRange({ pair: [first, last], isWhole }) {
			shown.textContent = isWhole ? "Drag over a chart to zoom" : `Steps ${Math.round(first)} to ${Math.round(last)}`;
			reset.hidden = isWhole;
		},
	};
}

// The steps that charts show: all, or a chosen part of them.
export class ShownRange {
	chosen = null;
	whole = [0, 1];

	get isWhole() { return !this.chosen; }

	get pair() { return this.chosen ?? this.whole; }

	cover(runs) {
		const first = Math.min(...runs.map((run) => run.first_step ?? Infinity));
		const last = Math.max(...runs.map((run) => run.last_step ?? 0));
		this.whole = first > last ? [0, 1] : [first, Math.max(last, first + 1)];
	}

	choose(range) {
		const [start, end] = this.whole;
		const [from, to] = range ?? this.whole;
		const width = to - from;
		const first = Math.max(start, Math.min(from, end - width));
		const last = Math.min(end, first + width);
		if (last - first < 1) return;
		this.chosen = first <= start && last >= end ? null : [first, last];
	}

	get query() {
		return this.isWhole ? {} : { first: Math.floor(this.pair[0]), last: Math.ceil(this.pair[1]) };
	}
}

export const modeText = (mode) => ({ TRAIN: "training", EVAL: "validation", PREDICT: "prediction" })[mode] ?? mode;

// Labels and colours of curves: apart by tensor, worker and mode.
export function styled(curves) {
	const tensors = [...new Set(curves.map((curve) => `${curve.tensor}\n${curve.worker}`))];
	const workers = new Set(curves.map((curve) => curve.worker));
	const modes = new Set(curves.map((curve) => curve.mode));
	return curves.map((curve) => ({
		...curve,
		color: tensors.indexOf(`${curve.tensor}\n${curve.worker}`),
		isDashed: modes.size > 1 && ["EVAL", "PREDICT"].includes(curve.mode),
		label: [curve.tensor, modes.size > 1 ? modeText(curve.mode) : "", workers.size > 1 ? curve.worker.replace("worker_", "rank ") : ""].filter(Boolean).join(", "),
	}));
}
