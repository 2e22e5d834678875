// Overlays runs: differences of arguments, packages and commit, the first different number.
import { chart } from "./chart.js";
import { controls, modeText, ShownRange } from "./controls.js";
import { ask, backLink, div, element, fill, fillOptions, h1, h2, label, li, named, oneAtATime, p, problem, searchBox, td, th, ul } from "./dom.js";
import { runAddress } from "./runs.js";

const MOST_CHARTS = 12;

function firstText(first, baseline) {
	if (first.problem) return named(first.problem);
	return [`differs from `, named(baseline), ` first at ${first.mode} step ${first.mode_step} in `, named(first.tensor), ` (${first.num_differing} of ${first.num_common} tensors differ)`];
}

export function comparisonView(main, ids) {
	const range = new ShownRange();
	const plots = new Map();
	const place = element("div");
	const message = element("div");
	const firsts = ul("plain-list");
	const table = div("scroll");
	const search = searchBox("Add a tensor", { list: "tensor-names", oninput: () => suggest(), onchange: add });
	const names = element("datalist", { id: "tensor-names" });
	const statistic = element("select", { "aria-label": "Statistic", onchange: () => refresh() });
	const settings = controls({ onStyle: () => redraw(), onRange: zoom });
	const shown = new Map(); // tensor: curves
	const added = [];
	let runs = [];
	let versions = {};
	let marks = [];

	function zoom(wanted) {
		range.choose(wanted);
		refresh();
	}

	const suggest = oneAtATime(message, async () => {
		const answers = await Promise.all(ids.map((run) => ask("tensors", { run, text: search.value })));
		fill(names, [...new Set(answers.flatMap((answer) => answer.tensors))].map((name) => element("option", { value: name })));
	});

	function add() {
		const name = search.value.trim();
		if (!name || added.includes(name)) return;
		added.push(name);
		search.value = "";
		refresh();
	}

	function draw(tensor) {
		const curves = shown.get(tensor);
		const modes = new Set(curves.map((curve) => curve.mode));
		const styled = curves.map((curve) => ({
			...curve, color: ids.indexOf(curve.run), isDashed: modes.size > 1 && curve.mode !== "TRAIN",
			label: curve.run + (modes.size > 1 ? `, ${modeText(curve.mode)}` : ""),
		}));
		plots.get(tensor).draw(styled, { ...settings.options, marks });
	}

	function redraw() {
		for (const tensor of shown.keys()) draw(tensor);
	}

	const refresh = oneAtATime(message, async () => {
		runs = await Promise.all(ids.map((run) => ask("run", { run })));
		versions = Object.fromEntries(runs.map((run) => [run.id, run.version]));
		range.cover(runs);
		settings.showRange(range);
		const usual = ["losses", "metrics", "scalars"].flatMap((kind) => runs.flatMap((run) => run.curves[kind]));
		const all = [...new Set([...added, ...usual])];
		const tensors = all.slice(0, MOST_CHARTS);
		for (const tensor of tensors) {
			if (plots.has(tensor)) continue;
			const made = chart(tensor, { shown: range, onRange: zoom, onEvidence: (near) => fill(message, near.map((mark) => p("", named(mark.label)))) });
			plots.set(tensor, made);
			place.append(made.box);
		}
		const width = plots.get(tensors[0])?.width;
		await Promise.all(tensors.map(async (tensor) => {
			const chosen = usual.includes(tensor) ? "mean" : statistic.value;
			const answers = await Promise.all(ids.map((run) => ask("curves", { run, tensor, statistic: chosen, ...range.query, width })));
			shown.set(tensor, answers.flatMap((curves, at) => curves.map((curve) => ({ ...curve, run: ids[at] }))));
			draw(tensor);
		}));
		fill(message, all.length > MOST_CHARTS ? p("", `${all.length - MOST_CHARTS} more are not shown.`) : all.length ? null : p("", "These runs saved no loss. Add a tensor."));
	});

	async function showDifferences() {
		fill(firsts, li("faint", "comparing\u2026"));
		const answer = await ask("differences", { run: ids });
		fill(table, answer.facts.length ? element("table", {}, element("thead", {}, element("tr", {}, th("Setting"), ids.map((id) => th(named(id))))), element("tbody", {}, answer.facts.map((fact) => element("tr", {}, td(named(fact.name)), fact.values.map((value) => td(named(value ?? "\u2013"))))))) : p("", "Arguments, packages, commit and machine are the same, as far as they are stored."));
		fill(firsts, answer.first.map((first, at) => li("", named(ids[at + 1], "strong"), " ", firstText(first, ids[0]))));
		marks = answer.first.flatMap((first, at) => (first.problem || first.step === null ? [] : [{ step: first.step, label: `${ids[at + 1]} differs first in ${first.tensor} at step ${first.step}` }]));
		redraw();
	}

	return {
		async open() {
			runs = await Promise.all(ids.map((run) => ask("run", { run })));
			if (!main.isConnected) return;
			document.title = `${ids.length} runs \u2013 Stepwatch`;
			fillOptions(statistic, runs[0].statistics, "l2");
			fill(main, backLink(), h1(`${ids.length} runs`), ul("plain-list", ids.map((id) => li("", element("a", { href: runAddress(id) }, named(id))))), message, settings.box, div("bar", search, names, label("Statistic ", statistic)), place, h2("First different number"), firsts, h2("What differs"), table);
			await refresh();
			showDifferences().catch((error) => fill(firsts, li("", problem(error.message))));
		},
		changed(news) {
			if (ids.some((id) => news.runs[id] !== versions[id])) refresh();
		},
		close() {
			for (const each of plots.values()) each.close();
		},
	};
}
