// Draws curves with uPlot: extremes of each pixel column, gaps with marks, findings, smoothing.
import { button, div, element, fill, isMissing, li, named, numberText, ul } from "./dom.js";

const COLORS = 8;
const HEIGHT = 220;
const BUTTON = 26; // px
const ZOOM = 0.5; // share of the range that a key press keeps

export function color(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function lineColor(at) {
	return color(`--c${at % COLORS}`);
}

function smoothed(values, strength) {
	let mean = null;
	return values.map((value) => {
		if (isMissing(value)) return value;
		mean = mean === null ? value : mean * strength + value * (1 - strength);
		return mean;
	});
}

function middle(curve) {
	return curve.low.map((low, at) => (low === null || curve.high[at] === null ? null : low / 2 + curve.high[at] / 2));
}

// One table per curve: its steps, then low, high and the smoothed line.
function tables(curves, options) {
	const keep = (value) => (options.isLog && value !== null && value <= 0 ? null : value);
	return curves.map((curve) => [
		curve.steps, curve.low.map(keep), curve.high.map(keep),
		...(options.smoothing ? [smoothed(middle(curve), options.smoothing).map(keep)] : []),
	]);
}

function seriesOf(curve, options) {
	const stroke = lineColor(curve.color);
	const dash = curve.isDashed ? [6, 4] : undefined;
	const faint = options.smoothing ? 0.35 : 1;
	const isSingle = curve.steps.length < 2;
	const raw = { stroke, dash, alpha: faint, width: 1.3, points: { show: isSingle ? true : undefined, size: 5 } };
	const lines = [{ ...raw, label: "low" }, { ...raw, label: "high" }];
	if (options.smoothing) lines.push({ stroke, dash, width: 2, label: "smoothed", points: { show: false } });
	return lines;
}

export function chart(title, { shown, onRange, onEvidence, unit = "" }) {
	const plotPlace = div("plot-place");
	const legend = ul("legend");
	const heading = element("h3", {}, named(title));
	const box = element("section", { class: "chart-box", tabindex: "0", role: "group", "aria-label": `Chart of ${title}. Plus and minus zoom, arrows move, 0 shows all.` }, heading, plotPlace, legend);
	let plot = null;
	let curves = [];
	let drawn = {};
	let isHeld = false;
	let waiting = null;

	function values(at) {
		const per = drawn.smoothing ? 3 : 2;
		return curves.map((curve, which) => {
			const low = plot.data[1 + which * per]?.[at];
			const high = plot.data[2 + which * per]?.[at];
			return isMissing(low) ? "" : low === high ? numberText(low) : `${numberText(low)} \u2026 ${numberText(high)}`;
		});
	}

	function showValues() {
		const at = plot?.cursor.idx;
		const texts = isMissing(at) ? curves.map(() => "") : values(at);
		const step = isMissing(at) ? "" : `step ${plot.data[0][at]}`;
		[...legend.children].forEach((item, which) => {
			item.querySelector("output").textContent = which < texts.length ? texts[which] : step;
		});
	}

	function drawLegend() {
		fill(legend, curves.map((curve) => {
			const swatch = element("i", { class: `swatch${curve.isDashed ? " dashed" : ""}` });
			swatch.style.borderColor = lineColor(curve.color);
			return li("", swatch, named(curve.label), " ", element("output"));
		}), li("faint", element("output")));
	}

	function marks(of) {
		const context = of.ctx;
		const { left, top, width, height } = of.bbox;
		const px = devicePixelRatio;
		context.save();
		context.strokeStyle = color("--red");
		context.lineWidth = 2 * px;
		const size = 4 * px;
		for (const curve of curves) {
			for (const step of curve.bad) {
				const x = of.valToPos(step, "x", true);
				const y = top + height - 2 * size;
				if (x < left - 1 || x > left + width + 1) continue;
				context.stroke(new Path2D(`M${x - size},${y - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`));
			}
		}
		context.setLineDash([5 * px, 4 * px]);
		context.lineWidth = 1.4 * px;
		for (const mark of drawn.marks) {
			const x = of.valToPos(mark.step, "x", true);
			if (x >= left && x <= left + width) context.stroke(new Path2D(`M${x},${top}v${height}`));
		}
		context.restore();
		addButtons(of);
	}

	// Findings that are near to each other share a button.
	function addButtons(of) {
		for (const button of of.over.querySelectorAll("button")) button.remove();
		const groups = [];
		for (const mark of [...drawn.marks].sort((a, b) => a.step - b.step)) {
			const x = of.valToPos(mark.step, "x");
			if (x < 0 || x > of.over.clientWidth) continue;
			if (groups.length && x - groups.at(-1).x < BUTTON) groups.at(-1).marks.push(mark);
			else groups.push({ x, marks: [mark] });
		}
		for (const group of groups) {
			const label = group.marks.map((mark) => mark.label).join(", ");
			const made = button({ class: "mark", "aria-label": label, title: label, onmousedown: (event) => event.stopPropagation(), onclick: () => onEvidence(group.marks) }, group.marks.length > 1 ? String(group.marks.length) : "!");
			made.style.left = `${group.x}px`;
			of.over.append(made);
		}
	}

	// A press may become a selection, which drawing would destroy.
	function draw(given, options) {
		waiting = isHeld ? [given, options] : null;
		if (isHeld || !box.isConnected) return;
		curves = given;
		drawn = options;
		plot?.destroy();
		plot = null;
		box.hidden = !curves.length;
		if (box.hidden) return;
		const width = Math.max(plotPlace.clientWidth, 200);
		const ink = color("--faint");
		const axis = { stroke: ink, grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
		const per = options.smoothing ? 3 : 2;
		const bands = curves.map((curve, at) => ({ series: [2 + at * per, 1 + at * per], fill: `${lineColor(curve.color)}33` }));
		const isEmpty = !curves.some((curve) => curve.low.some((value) => !isMissing(value)));
		plot = new uPlot({
			width, height: HEIGHT, legend: { show: false }, padding: [10, 12, 0, 0],
			cursor: { sync: { key: "steps" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
			scales: {
				x: { time: false, range: () => shown.pair },
				y: isEmpty ? { range: [0, 1] } : { distr: options.isLog ? 3 : 1 },
			},
			axes: [{ ...axis, size: 34 }, { ...axis, size: (_, texts) => 20 + 7 * Math.max(5, ...(texts ?? []).map((text) => text.length)), values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : numberText(tick) + unit)) }],
			series: [{}, ...curves.flatMap((curve) => seriesOf(curve, options))], bands,
			hooks: {
				draw: [marks],
				setCursor: [showValues],
				setSelect: [(of) => {
					const { left, width: selected } = of.select;
					if (selected < 4) return;
					onRange([of.posToVal(left, "x"), of.posToVal(left + selected, "x")]);
					of.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
				}],
			},
		}, uPlot.join(tables(curves, options)), plotPlace);
		plot.over.addEventListener("dblclick", () => onRange(null));
		drawLegend();
		showValues();
	}

	box.addEventListener("keydown", (event) => {
		if (event.target !== box || !plot) return;
		const [first, last] = shown.pair;
		const [centre, half] = [(first + last) / 2, (last - first) / 2];
		const near = [centre - half * ZOOM, centre + half * ZOOM];
		const ranges = {
			"+": near, "=": near, "-": [centre - half / ZOOM, centre + half / ZOOM],
			ArrowLeft: [first - half / 2, last - half / 2], ArrowRight: [first + half / 2, last + half / 2],
			0: null, Escape: null,
		};
		if (!(event.key in ranges) || event.ctrlKey || event.metaKey) return;
		event.preventDefault();
		onRange(ranges[event.key]);
	});

	box.addEventListener("mousedown", (event) => {
		isHeld = event.button === 0;
		addEventListener("mouseup", () => {
			isHeld = false;
			if (waiting) draw(...waiting);
		}, { once: true });
	});

	return {
		box, draw,
		get width() { return Math.max(Math.round(plotPlace.clientWidth || document.getElementById("main").clientWidth), 200); },
		close() { plot?.destroy(); plot = null; },
	};
}
