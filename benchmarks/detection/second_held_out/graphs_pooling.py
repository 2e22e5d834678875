"""A network over graphs learns their largest eigenvalues; four small batches make a step."""

from __future__ import annotations

import math

import networkx as nx
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.hooking import hook_configuration
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import batches_of, unexplained
from hook_layer.pytorch import Hook, modes

NODES = 7
WIDTH = 16
STEPS = 150
SMALL_BATCHES = 4


class Layer(nn.Module):
    """Each node is told of itself and of its neighbours.

    Args:
        size: Numbers of each node.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.own = nn.Linear(size, WIDTH)
        self.neighbours = nn.Linear(size, WIDTH, bias=False)
        self.activation = nn.ReLU()

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return nodes [B, NODES, WIDTH] of nodes [B, NODES, size], edges [B, NODES, NODES]."""
        return self.activation(self.own(nodes) + self.neighbours(edges @ nodes) / NODES)


class Net(nn.Module):
    """Three layers, the sum over nodes that there are, two linear layers.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        layers = [Layer(1), Layer(WIDTH), Layer(WIDTH)]
        # The optimiser is not given what is in a plain list.
        hidden = run.injects("optimiser_missing_parameters")
        self.layers = layers if hidden else nn.ModuleList(layers)
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ELU(), nn.Linear(WIDTH, 1))

    def forward(self, edges: Tensor) -> Tensor:
        """Return numbers [B, 1] of edges [B, NODES, NODES]."""
        degrees = edges.sum(2, keepdim=True)
        nodes = degrees / NODES
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return self.head((nodes * (degrees > 0)).sum(1) / NODES)


def _data() -> Split:
    graphs = [graph for graph in nx.graph_atlas_g() if graph.number_of_edges()]
    edges = torch.zeros(len(graphs), NODES, NODES)
    for row, graph in zip(edges, graphs, strict=True):
        for one, other in graph.edges:
            row[one, other] = row[other, one] = 1
    largest = torch.linalg.eigvalsh(edges)[:, -1:]
    largest = (largest - largest.mean()) / largest.std()
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(0))
    train, valid = order[300:], order[:300]
    return Split(edges[train], largest[train], edges[valid], largest[valid])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not explained."""
    torch.manual_seed(run.seed)
    torch.set_num_threads(1)
    data = _data()
    if run.injects("wrong_loss"):
        data = data._replace(targets=data.targets[:, 0])
    model = Net(run)
    if run.injects("dead_relu"):
        shifted_([layer.own for layer in model.layers], -4.0)
    criterion = nn.MSELoss(reduction="sum")
    optimizer = torch.optim.SGD(
        model.parameters(), lr=run.pick(5e-4, lr_too_high=1.6e-2), momentum=0.9, dampening=0.1
    )
    hook = Hook.create_from_json_file(hook_configuration(run, 3))
    hook.register_module(model)
    hook.register_loss(criterion)
    hook.register_optimizer(optimizer)
    batches = batches_of(data, 8, run.seed)
    found = math.inf
    for step in range(STEPS):
        hook.set_mode(modes.TRAIN)
        model.train()
        optimizer.zero_grad()
        for _ in range(SMALL_BATCHES):
            edges, targets = next(batches)
            criterion(model(edges), targets).backward()
        optimizer.step()
        if (step + 1) % 30 == 0:
            hook.set_mode(modes.EVAL)
            model.eval()
            with torch.no_grad():
                outputs = model(data.valid_inputs)
                criterion(outputs, data.valid_targets)
            found = unexplained(outputs, data.valid_targets)
    hook.close(end_of_training=True)
    return found if math.isfinite(found) else math.inf


PROGRAM = Program(
    model="graph network, 3 layers, ReLU, sums over nodes, sum of losses, SGD, 4 batches a step",
    data="networkx's atlas of graphs with up to 7 nodes",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "1.6e-2, as for a mean over 32 graphs, in place of 5e-4 for their sum",
        "wrong_loss": "outputs [B, 1] less targets [B] are [B, B]",
        "optimiser_missing_parameters": "layers are in a plain list, where nobody finds them",
        "dead_relu": "biases ahead of the ReLUs are 4 lower",
    },
)
