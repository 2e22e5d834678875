// Shows one run.
import { chart } from "./chart.js";
import { controls, ShownRange, styled } from "./controls.js";
import { ask, backLink, button, div, element, facts, fill, fillOptions, h1, h2, isMissing, label, li, named, numberText, oneAtATime, p, problem, searchBox, span, strong, ul } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { histogram } from "./histogram.js";

const MOST_LAYERS = 8;
const MAPS = { gradients: "Gradients", updates: "Updates", weights: "Weights" };
const SEARCH_PAUSE = 120; // ms
const SLOW = 1000; // ms

function evidenceText(verdict) {
	const found = verdict.evidence;
	const pairs = [["Step", found.first_step], ["Last step", found.last_step], ["Steps with it", found.count], ["Tensor", found.tensor], ["Rank", (found.worker ?? "").replace("worker_", "")], ["Mode", found.mode], [found.measure.replaceAll("_", " "), numberText(found.value)], ["Threshold", numberText(found.threshold)]];
	return [p("found-text", named(found.sentence)), facts(pairs.filter(([, value]) => value !== "" && !isMissing(value))), p("", strong("What to try: "), named(found.remedy))];
}

export function runView(main, id) {
	const range = new ShownRange();
	const dialog = element("dialog", { "aria-label": "Evidence" });
	const head = element("div");
	const rest = element("div");
	const message = element("div");
	const layers = { tensors: [], statistic: "l2" };
	let details = null;
	let version = null;
	let shownMap = "gradients";
	const settings = controls({ onStyle: () => redraw(), onRange: zoom });
	const options = { shown: range, onRange: zoom, onEvidence: (marks) => showEvidence(marks.map((mark) => mark.verdict)) };
	const charts = {
		losses: chart("Losses", options), metrics: chart("Metrics", options), scalars: chart("Logged scalars", options),
		layers: chart("Layers", options), system: chart("Machine", { ...options, unit: " %" }),
	};
	const map = heatMap({ onRow: (tensors, step) => { addLayers(tensors, true); bars.show(tensors[0], step); } });
	const bars = histogram(id);
	const maps = element("div", { class: "bar", role: "group", "aria-label": "Map" }, Object.entries(MAPS).map(([name, label]) => button({ "data-map": name, onclick: () => { shownMap = name; refreshMap(); } }, label)));
	const noMap = p("faint");
	const mapPart = element("section", { class: "panel" }, h2("Layers over steps"), maps, map.box, noMap);
	const ranks = div("bar ranks");
	const found = ul("found");
	const foundCount = element("p", { class: "small faint", role: "status" });
	const search = searchBox("Search layers and tensors", { oninput: later(() => searchLayers(), SEARCH_PAUSE) });
	const statistic = element("select", { "aria-label": "Statistic", onchange: () => { layers.statistic = statistic.value; refreshCharts(); } });
	const chips = div("chips");
	const layerPart = element("section", { class: "panel" }, h2("Layers"), div("bar", search, label("Statistic ", statistic)), foundCount, found, chips, charts.layers.box, bars.box);
	let chosenRanks = [];
	let drawnAt = 0;

	function later(work, pause) {
		let timer = 0;
		return () => { clearTimeout(timer); timer = setTimeout(work, pause); };
	}

	function zoom(wanted) {
		range.choose(wanted);
		refreshCharts();
		refreshMap();
	}

	const findings = () => details.verdicts.filter((each) => each.is_finding);

	function marks() {
		return findings().filter((verdict) => verdict.evidence).map((verdict) => ({ step: verdict.step, label: `${verdict.name} at step ${verdict.step}: ${verdict.evidence.sentence}`, verdict }));
	}

	function showTensor(name) {
		dialog.close();
		addLayers([name], true);
		charts.layers.box.scrollIntoView({ block: "center" });
	}

	function showEvidence(verdicts) {
		const part = (verdict) => [h2(named(verdict.name)), verdict.evidence ? evidenceText(verdict) : p("", named(verdict.details)),
			verdict.evidence?.tensor ? button({ onclick: () => showTensor(verdict.evidence.tensor) }, "Show its tensor") : null];
		fill(dialog, verdicts.map(part).flat(), div("bar", button({ class: "primary", autofocus: true, onclick: () => dialog.close() }, "Close")));
		dialog.showModal();
	}

	const drawn = {};
	function draw(name, curves) {
		drawn[name] = curves;
		charts[name].draw(styled(curves), { ...settings.options, marks: marks() });
	}

	function redraw() {
		for (const [name, curves] of Object.entries(drawn)) draw(name, curves);
		map.redraw();
	}

	const refreshCharts = oneAtATime(message, async () => {
		settings.showRange(range);
		const common = { run: id, ...range.query, width: charts.losses.width, worker: chosenRanks };
		const wanted = ["losses", "metrics", "scalars"].filter((name) => details.curves[name].length).map((name) => [name, "curves", { ...common, tensor: details.curves[name] }]);
		wanted.push(["layers", "curves", { ...common, tensor: layers.tensors, statistic: layers.statistic }], ["system", "system", common]);
		if (!layers.tensors.length) draw("layers", []);
		await Promise.all(wanted.filter(([, , query]) => !("tensor" in query) || query.tensor.length).map(async ([name, question, query]) => draw(name, await ask(question, query))));
		drawnAt = performance.now();
	});

	const refreshMap = oneAtATime(message, async () => {
		for (const button of maps.children) button.setAttribute("aria-pressed", String(button.dataset.map === shownMap));
		const answer = await ask("map", { run: id, kind: shownMap, worker: chosenRanks[0], ...range.query });
		map.draw(answer);
		noMap.textContent = answer ? "" : `No ${shownMap} were saved in these steps.`;
	});

	const searchLayers = oneAtATime(message, async () => {
		const text = search.value.trim();
		if (!text) {
			fill(found);
			foundCount.textContent = `${details.num_tensors} tensors`;
			return;
		}
		const answer = await ask("tensors", { run: id, text });
		foundCount.textContent = `${answer.num} of ${details.num_tensors} tensors${answer.num > answer.tensors.length ? `, the first ${answer.tensors.length} are listed` : ""}`;
		fill(found, answer.tensors.map((name) => li("", button({ onclick: () => addLayers([name], false) }, named(name)))));
	});

	function addLayers(tensors, isAlone) {
		layers.tensors = [...new Set([...(isAlone ? [] : layers.tensors), ...tensors])].slice(-MOST_LAYERS);
		drawChips();
		bars.show(layers.tensors.at(-1), details.last_step);
		refreshCharts();
	}

	function drawChips() {
		fill(chips, layers.tensors.map((name) => button({ class: "chip", "aria-label": `Remove ${name}`, onclick: () => { layers.tensors = layers.tensors.filter((each) => each !== name); drawChips(); refreshCharts(); } }, named(name), " \u00d7")));
	}

	function drawRanks() {
		const isOne = details.workers.length < 2;
		ranks.hidden = isOne;
		if (isOne || ranks.children.length === details.workers.length + 1) return;
		chosenRanks = chosenRanks.length ? chosenRanks : [details.workers[0]];
		fill(ranks, span("", "Ranks"), details.workers.map((worker) => {
			const box = element("input", { type: "checkbox", checked: chosenRanks.includes(worker), onchange: () => { chosenRanks = details.workers.filter((each) => (each === worker ? box.checked : chosenRanks.includes(each))); refreshCharts(); refreshMap(); } });
			return label(box, ` ${worker.replace("worker_", "")}`);
		}));
	}

	function pills() {
		const count = findings().length;
		const [kind, text] = count ? ["issue", `${count} found`] : details.is_judged ? ["fine", "no issue"] : ["unsure", details.verdicts.length ? "no verdict" : "not evaluated"];
		return p("pills", span(`pill ${kind}`, text), " ", span(`pill ${details.state === "running" ? "going" : "plain"}`, details.state), " ", span("faint", `${details.steps} steps saved${details.num_unread ? `, reading ${details.num_unread} files` : ""}`));
	}

	function findingsCard() {
		const cause = details.diagnosis;
		const found = findings().sort((a, b) => a.step - b.step);
		if (!found.length) return null;
		const isOwn = ({ name }) => !cause || cause.explains.includes(name);
		const others = found.filter((each) => !isOwn(each));
		const list = (own) => ul("findings", own.map((each) => li("", button({ class: "link", onclick: () => showEvidence([each]) }, named(each.name)), each.evidence ? ` at step ${each.step}` : "", ": ", named(each.evidence?.sentence ?? each.details))));
		return element("section", { class: "card", "aria-label": "Findings" }, h2(named(cause?.headline ?? "Findings")), cause && [p("", strong("Change: "), named(cause.change)), cause.alternative && p("", named(cause.alternative))],
			list(found.filter(isOwn)), others[0] && [p("faint", "Also found:"), list(others)]);
	}

	function drawHead() {
		fill(head, pills(), details.stopped ? p("", "Stopped: ", named(details.stopped)) : null, details.details && details.details !== details.stopped ? p("", named(details.details)) : null, findingsCard(), details.steps ? null : p("", "No step is saved yet."));
		fill(message, details.problem ? problem(details.problem) : null, details.notes.map((note) => p("small faint", named(note))));
	}

	function drawRest() {
		const isOpen = new Set([...rest.querySelectorAll("details[open]")].map((each) => each.dataset.name));
		const part = (name, ...content) => element("details", { "data-name": name, open: isOpen.has(name) }, element("summary", {}, name), content);
		const text = (value) => (Array.isArray(value) ? value.join(" ") : typeof value === "object" && value ? Object.entries(value).map((pair) => pair.join(" ")).join(", ") : value);
		const listed = (of) => facts(Object.entries(of).map(([name, value]) => [name, text(value)]));
		const { Packages: packages, ...environment } = details.environment;
		const others = details.verdicts.filter((each) => !each.is_finding);
		fill(rest,
			others.length ? part(`Other rules (${others.length})`, ul("plain-list", others.map((each) => li("", named(each.name, "strong"), " ", named(each.status), each.details ? [": ", named(each.details)] : null)))) : null,
			Object.keys(environment).length ? part("Environment", listed(environment), packages ? listed(packages) : null) : null,
			details.console ? part("Console output", element("pre", { tabindex: "0" }, details.console)) : null);
	}

	const refresh = oneAtATime(message, async () => {
		if (version !== null) details = await ask("run", { run: id });
		version = details.version;
		range.cover([details]);
		drawHead();
		drawRest();
		drawRanks();
		if (!search.value) foundCount.textContent = `${details.num_tensors} tensors`;
		const wait = details.num_unread ? SLOW - (performance.now() - drawnAt) : 0;
		if (wait > 0) await new Promise((done) => { setTimeout(done, wait); });
		await refreshCharts();
		await refreshMap();
	});

	const closed = new AbortController();
	const closing = { signal: closed.signal };
	return {
		async open() {
			details = await ask("run", { run: id });
			if (!main.isConnected) return;
			document.title = `${id} \u2013 Stepwatch`;
			fillOptions(statistic, details.statistics, layers.statistic);
			fill(main, backLink(), h1(named(id === "." ? details.path.split("/").filter(Boolean).at(-1) : id)), p("path", named(details.path)), message, head, settings.box, ranks, charts.losses.box, charts.metrics.box, charts.scalars.box, mapPart, layerPart, charts.system.box, rest, dialog);
			for (const name of Object.keys(charts)) charts[name].box.hidden = true;
			addEventListener("resize", later(redraw, SEARCH_PAUSE), closing);
			matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, closing);
			await refresh();
		},
		changed(versions) {
			if (versions.runs[id] !== version) refresh();
		},
		close() {
			closed.abort();
			for (const each of Object.values(charts)) each.close();
		},
	};
}
