// Draws a map of layers over steps on a canvas; a cell opens the series of its layer.
import { color } from "./chart.js";
import { div, element, fill, isMissing, li, named, numberText, p, span } from "./dom.js";

const ROW = 16; // px
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const MIN_RANGE = 1; // orders of magnitude

const within = (value, most) => Math.min(Math.max(value, 0), most);

function rampColor(share) {
	const at = within(share, 1) * (RAMP.length - 1);
	const from = Math.min(Math.floor(at), RAMP.length - 2);
	const mixed = RAMP[from].map((value, i) => Math.round(value + (RAMP[from + 1][i] - value) * (at - from)));
	return `rgb(${mixed.join(",")})`;
}

export function heatMap({ onRow }) {
	const names = element("ol", { class: "rows" });
	const canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": "Layers over steps" });
	const readout = element("p", { class: "small faint readout", role: "status" });
	const legend = div("scale");
	const note = p("small faint");
	const steps = div("step-ends small faint");
	const box = element("div", { class: "heat-box", hidden: true }, div("heat", names, div("cells", canvas, steps)), readout, legend, note);
	let map = null;
	let chosen = { row: 0, column: 0 };

	function bounds() {
		const logs = map.values.flat().filter((value) => value > 0).map(Math.log10).sort((a, b) => a - b);
		if (!logs.length) return [-1, 0];
		let [low, high] = [logs[Math.floor(logs.length * 0.02)], logs[Math.ceil(logs.length * 0.98) - 1]];
		if (high - low < MIN_RANGE) [low, high] = [(low + high - MIN_RANGE) / 2, (low + high + MIN_RANGE) / 2];
		return [low, high];
	}

	function stepOf(column) {
		const num = map.values[0]?.length ?? 1;
		return Math.round(map.first_step + (map.last_step - map.first_step) * (num > 1 ? column / (num - 1) : 0));
	}

	function describe() {
		const value = map.values[chosen.row]?.[chosen.column];
		const isBad = map.bad.has(`${chosen.row},${chosen.column}`);
		const text = isBad ? "not finite" : isMissing(value) ? "not saved" : numberText(value);
		fill(readout, named(map.rows[chosen.row] ?? ""), `, step ${stepOf(chosen.column)}: ${text}. Enter or click shows its series.`);
	}

	function draw() {
		if (!map) return;
		const [bad, zero] = [color("--bad"), color("--zero")];
		const [rows, columns] = [map.rows.length, map.values[0]?.length ?? 0];
		const ratio = devicePixelRatio || 1;
		const width = canvas.parentElement.clientWidth || 300;
		canvas.width = Math.round(width * ratio);
		canvas.height = Math.round(rows * ROW * ratio);
		canvas.style.width = `${width}px`;
		canvas.style.height = `${rows * ROW}px`;
		const context = canvas.getContext("2d");
		const [low, high] = bounds();
		for (let row = 0; row < rows; row += 1) {
			for (let column = 0; column < columns; column += 1) {
				const value = map.values[row][column];
				const isBad = map.bad.has(`${row},${column}`);
				if (!isBad && isMissing(value)) continue;
				const left = Math.round((column / columns) * canvas.width);
				const right = Math.round(((column + 1) / columns) * canvas.width);
				context.fillStyle = isBad ? bad : value === 0 ? zero : rampColor((Math.log10(value) - low) / (high - low));
				context.fillRect(left, Math.round(row * ROW * ratio), right - left, Math.round(ROW * ratio) - 1);
			}
		}
		drawLegend(low, high);
	}

	function drawLegend(low, high) {
		const ramp = div("ramp");
		ramp.style.background = `linear-gradient(90deg, ${RAMP.map((each) => `rgb(${each})`)})`;
		const isZero = map.values.some((row) => row.includes(0));
		fill(legend, div("", ramp, div("ramp-texts", span("", `\u2264 ${numberText(10 ** low)}`), span("", `\u2265 ${numberText(10 ** high)}`))),
			isZero ? span("", element("i", { class: "zero-swatch" }), " zero") : null,
			map.bad.size ? span("", element("i", { class: "bad-swatch" }), " not finite") : null);
	}

	function cellAt(event) {
		const place = canvas.getBoundingClientRect();
		const [rows, columns] = [map.rows.length, map.values[0]?.length ?? 1];
		return {
			row: within(Math.floor((event.clientY - place.top) / ROW), rows - 1),
			column: within(Math.floor(((event.clientX - place.left) / place.width) * columns), columns - 1),
		};
	}

	function open() {
		onRow(map.members[chosen.row] ?? [], stepOf(chosen.column));
	}

	canvas.addEventListener("mousemove", (event) => { chosen = cellAt(event); describe(); });
	canvas.addEventListener("click", (event) => { chosen = cellAt(event); describe(); open(); });
	canvas.addEventListener("keydown", (event) => {
		const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
		if (event.key === "Enter") open();
		else if (event.key in moves) {
			const [down, right] = moves[event.key];
			chosen = {
				row: within(chosen.row + down, map.rows.length - 1),
				column: within(chosen.column + right, map.values[0].length - 1),
			};
			describe();
		} else return;
		event.preventDefault();
	});

	return {
		box,
		draw: (given) => {
			map = given && { ...given, bad: new Set(given.not_finite.map((cell) => cell.join(","))) };
			box.hidden = !map;
			if (!map) return;
			canvas.setAttribute("aria-label", `${map.what} by layer over steps ${map.first_step} to ${map.last_step}. Arrows choose a cell, Enter shows its series.`);
			fill(names, map.rows.map((name) => li("", named(name))));
			fill(steps, span("", `step ${map.first_step}`), span("", String(map.last_step)));
			note.textContent = `${map.what}; ${map.note}`;
			readout.textContent = "Point at a cell for its number; click for the series of its layer.";
			draw();
		},
		redraw: draw,
	};
}
