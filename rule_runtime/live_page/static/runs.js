// The table of runs: search, filter, sort, and the choice of runs to compare.
import { ask, button, div, durationText, element, fill, h1, isMissing, named, numberText, oneAtATime, p, problem, searchBox, span, th } from "./dom.js";

const FIRST_ROWS = 200; // more rows are drawn on request: a table of thousands is slow
const MOST_COMPARED = 6;
const COLUMNS = [
	["id", "Run"],
	["diagnosis", "Diagnosis"],
	["differs", "Arguments that differ"],
	["seconds", "Duration"],
	["steps", "Steps"],
	["last_loss", "Last loss"],
	["best_loss", "Best loss"],
	["commit", "Commit"],
	["started", "Started"],
];
const NUMBERS = ["seconds", "steps", "last_loss", "best_loss"];
const FILTERS = {
	all: ["All runs", () => true],
	found: ["With findings", (row) => row.findings?.length],
	sound: ["Without findings", (row) => row.is_judged && !row.findings.length],
	running: ["Running", (row) => row.state === "running"],
	problem: ["Not readable", (row) => row.problem],
};
const kept = { text: "", filter: "all", sort: "started", isDown: true, ticked: new Set() };

export function runAddress(id) {
	return `#/run?${new URLSearchParams([["run", id]])}`;
}

const kind = (name) => (NUMBERS.includes(name) ? "number" : "");

function words(row) {
	return [row.id, row.command, row.diagnosis, row.commit, row.state, ...(row.findings ?? [])].join(" ").toLowerCase();
}

function differing(row) {
	return Object.entries(row.differs).map(([name, value]) => `${name}=${value}`);
}

function compare(a, b, name) {
	const [x, y] = [a, b].map((row) => (name === "differs" ? differing(row) : row[name]));
	const isEmpty = (value) => isMissing(value) || String(value) === "";
	if (isEmpty(x) || isEmpty(y)) return (isEmpty(x) - isEmpty(y)) * (kept.isDown ? -1 : 1);
	return typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
}

function verdictCell(row) {
	if (row.problem) return element("span", { class: "pill unsure", title: row.problem }, "not readable");
	if (!row.is_read) return span("faint", "\u2026");
	if (row.findings.length) return [span("pill issue", `${row.findings.length} found`), " ", named(row.diagnosis)];
	const empty = row.is_empty ? "no run has begun" : row.steps ? "not evaluated" : "no step saved";
	return row.is_judged ? span("pill fine", "no issue") : span("faint", empty);
}

function lossText(value, isSampled) {
	return element("span", { title: isSampled ? "of some steps, evenly over the run" : "" }, (isSampled && !isMissing(value) ? "\u2248 " : "") + numberText(value));
}

function cells(row) {
	const state = row.state ? span(`small ${row.state === "running" ? "going" : "faint"}`, row.state) : null;
	return {
		id: [element("a", { href: runAddress(row.id) }, named(row.id)), " ", state, row.command ? span("command", named(row.command)) : null],
		diagnosis: verdictCell(row),
		differs: differing(row).map((each) => [named(each), " "]),
		seconds: durationText(row.seconds),
		steps: numberText(row.steps),
		last_loss: row.is_last_bad ? span("bad-number", "not finite") : lossText(row.last_loss, row.is_last_sampled),
		best_loss: lossText(row.best_loss, row.is_sampled),
		commit: row.commit ? named(row.commit.slice(0, 8) + (row.is_dirty ? " +" : "")) : "",
		started: row.started ? new Date(row.started).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "",
	};
}

export function runsView(main, mayOpen) {
	let answer = { rows: [] };
	let limit = FIRST_ROWS;
	const body = element("tbody");
	const count = element("p", { class: "faint", role: "status" });
	const message = element("div");
	const more = button({ hidden: true, onclick: () => { limit = Infinity; draw(); } });
	const start = button({ class: "primary", disabled: true, onclick: openComparison }, "Compare");
	const search = searchBox("Search runs", { value: kept.text, oninput: () => { kept.text = search.value; draw(); } });
	const filter = element("select", { "aria-label": "Show", onchange: () => { kept.filter = filter.value; draw(); } },
		Object.entries(FILTERS).map(([name, [label]]) => element("option", { value: name, selected: name === kept.filter }, label)));
	const head = element("tr");
	const sorter = element("select", { class: "phone", "aria-label": "Sort by", onchange: () => sortBy(sorter.value) },
		COLUMNS.map(([name, label]) => element("option", { value: name, selected: name === kept.sort }, `Sort by ${label.toLowerCase()}`)));

	function sortBy(name) {
		kept.isDown = kept.sort === name ? !kept.isDown : name === "started";
		kept.sort = name;
		draw();
		document.getElementById(`sort-${name}`)?.focus();
	}

	function drawHead() {
		fill(head, th(span("hidden", "Compare")), COLUMNS.map(([name, label]) => {
			const order = kept.sort === name ? (kept.isDown ? "descending" : "ascending") : "none";
			const arrow = { descending: " \u2193", ascending: " \u2191", none: "" }[order];
			return element("th", { scope: "col", "aria-sort": order, class: kind(name) },
				button({ class: "sort", id: `sort-${name}`, onclick: () => sortBy(name) }, label + arrow));
		}));
	}

	function tick(row, isTicked) {
		kept.ticked[isTicked ? "add" : "delete"](row.id);
		showTicked();
	}

	function showTicked() {
		const num = kept.ticked.size;
		start.disabled = num < 2 || num > MOST_COMPARED;
		start.textContent = num > MOST_COMPARED ? `Compare at most ${MOST_COMPARED}` : num ? `Compare ${num} runs` : "Compare";
	}

	function openComparison() {
		location.hash = `#/compare?${new URLSearchParams([...kept.ticked].map((id) => ["run", id]))}`;
	}

	function drawRow(row) {
		const shown = cells(row);
		const box = element("input", { type: "checkbox", checked: kept.ticked.has(row.id), disabled: Boolean(row.is_empty), "aria-label": `Compare ${row.id}`, onchange: () => tick(row, box.checked) });
		return element("tr", {}, element("td", { class: "tick-cell" }, box), COLUMNS.map(([name, label]) => element("td", { "data-name": label, class: `${name} ${kind(name)}` }, shown[name])));
	}

	function draw() {
		const focused = document.activeElement?.getAttribute?.("aria-label");
		const wanted = kept.text.toLowerCase().split(/\s+/).filter(Boolean);
		const fits = FILTERS[kept.filter][1];
		const rows = answer.rows.filter((row) => fits(row) && wanted.every((word) => words(row).includes(word)));
		rows.sort((a, b) => compare(a, b, kept.sort) * (kept.isDown ? -1 : 1));
		drawHead();
		fill(body, rows.slice(0, limit).map(drawRow));
		more.hidden = rows.length <= limit;
		more.textContent = `Show all ${rows.length}`;
		const unread = answer.rows.filter((row) => !row.is_read).length;
		count.textContent = `${rows.length} of ${answer.rows.length} runs${unread ? `, reading ${unread} more` : ""}`;
		fill(message, answer.problem ? problem(answer.problem) : null,
			answer.rows.length ? null : p("", "No run is stored here yet. Start one with ", element("code", {}, "stepwatch run -- python train.py"), "."));
		showTicked();
		if (focused?.startsWith("Compare ")) [...body.querySelectorAll("input")].find((box) => box.getAttribute("aria-label") === focused)?.focus();
	}

	const refresh = oneAtATime(message, async () => {
		answer = await ask("runs");
		draw();
	});

	return {
		async open() {
			answer = await ask("runs");
			if (!main.isConnected) return;
			if (mayOpen && answer.rows.length === 1 && !answer.rows[0].is_empty) {
				location.replace(runAddress(answer.rows[0].id));
				return;
			}
			const ids = new Set(answer.rows.map((row) => row.id));
			for (const id of kept.ticked) if (!ids.has(id)) kept.ticked.delete(id);
			document.title = "Runs \u2013 Stepwatch";
			fill(main, h1("Runs"), p("path", named(answer.root)),
				div("bar", search, filter, sorter, start), count, message,
				div("scroll", element("table", { class: "runs" }, element("thead", {}, head), body)), more);
			draw();
		},
		changed(versions) {
			if (versions.catalogue !== answer.version) refresh();
		},
	};
}
