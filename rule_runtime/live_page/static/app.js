// Shows the view that the address names, and passes events of the server to it.
import { element, fill, h1, p, problem, showState } from "./dom.js";
import { comparisonView } from "./comparison.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";

const main = document.getElementById("main");
let view = null;
let source = null;
let isFirst = true;

function chosen() {
	const [path, query] = location.hash.slice(1).split("?");
	return { path: path || "/", runs: new URLSearchParams(query).getAll("run") };
}

function listen(runs) {
	source?.close();
	const query = new URLSearchParams(runs.map((run) => ["run", run]));
	source = new EventSource(`/api/events?${query}`);
	source.addEventListener("versions", (event) => {
		showState("live", `live, ${new Date().toLocaleTimeString()}`);
		view?.changed(JSON.parse(event.data));
	});
	source.addEventListener("bye", () => {
		source.close();
		showState("lost", "the server has ended");
	});
	source.addEventListener("error", () => showState("lost", "the connection is lost, trying again"));
}

async function show() {
	const { path, runs } = chosen();
	view?.close?.();
	source?.close();
	const place = element("div"); // a replaced view draws outside of the page
	fill(main, place);
	if (path === "/run" && runs.length) view = runView(place, runs[0]);
	else if (path === "/compare" && runs.length > 1) view = comparisonView(place, runs);
	else view = runsView(place, isFirst);
	const shown = view;
	try {
		await shown.open();
		if (shown !== view) return;
		if (!isFirst) main.focus({ preventScroll: true });
		isFirst = false;
	} catch (error) {
		if (shown !== view) return;
		fill(place, h1("Not shown"), problem(error.message), p("", element("a", { href: "#/" }, "All runs")));
	}
	listen(path === "/" ? [] : runs);
}

addEventListener("hashchange", show);
show();
