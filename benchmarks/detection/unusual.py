"""Healthy programs that look unusual: no rule may report more than advice on them.

B = rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.detection.data import Split, digits, table
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, next_letter

__all__ = ["PROGRAMS"]

_SPLIT: Final = 0.75
"""Share of made-up rows that are for training."""


class Recipe(NamedTuple):
    """A program in short.

    Attributes:
        data: Returns the data.
        model: Returns the model.
        criterion: From outputs and targets to the loss.
        rate: Learning rate.
        batch: Rows of a batch.
        warm_up: Steps in which the learning rate grows from almost 0.
        steps: Number of training steps.
        optimizer: Returns the optimizer of parameters, with a learning rate.
    """

    data: Callable[[], Split]
    model: Callable[[], nn.Module]
    criterion: Callable[[Tensor, Tensor], Tensor]
    rate: float = 3e-3
    batch: int = 32
    warm_up: int = 1
    steps: int = 400
    optimizer: Callable[[Iterator[nn.Parameter], float], torch.optim.Optimizer] = torch.optim.Adam


class WithoutGradient(nn.Module):
    """A model whose first part is run without gradients."""

    def __init__(self, first: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.last = first, last

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [B, classes] of inputs [B, columns]."""
        with torch.no_grad():
            features = self.first(inputs)
        scores: Tensor = self.last(features)
        return scores


def mlp(inputs: int, outputs: int, hidden: int = 32) -> nn.Sequential:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def made_up(make: Callable[[Tensor], Tensor], columns: int = 8, rows: int = 2400) -> Split:
    """Return normal inputs [B, columns] and what a function makes of them."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, columns, generator=random)
    targets, num = make(inputs), int(_SPLIT * rows)
    return Split(inputs[:num], targets[:num], inputs[num:], targets[num:])


def prices(inputs: Tensor) -> Tensor:
    """Return amounts of money, hundreds of thousands [B, 1]."""
    trend = inputs[:, :3].sum(1, keepdim=True) + inputs[:, 3:4].tanh()
    return 200_000 + 40_000 * trend + 5_000 * inputs[:, 7:]


def of_mean() -> nn.Module:
    """Return a network whose outputs begin at the mean of `prices`."""
    model = mlp(8, 1)
    nn.init.constant_(model[2].bias, 200_000.0)
    return model


def large_inputs() -> Split:
    """Return years, areas and heights without any scaling, and numbers of about 1."""
    data = made_up(lambda x: (x[:, :3].sum(1, keepdim=True) + x[:, 3:4] ** 2) / 3)
    shift, scale = torch.arange(8) * 4.0, torch.arange(1, 9) * 2.0
    return data.with_inputs(lambda inputs: inputs * scale + shift)


def constant_rows() -> Split:
    """Return rows that repeat one number, and its sine."""
    data = made_up(lambda x: (2 * x[:, :1]).sin())
    return data.with_inputs(lambda inputs: inputs[:, :1].repeat(1, 8))


def images() -> Split:
    """Return handwritten digits [B, 1, 8, 8]."""
    return digits().with_inputs(lambda inputs: inputs.view(-1, 1, 8, 8))


def several_labels(missing: float) -> Split:
    """Return four labels of 0 or 1 a row [B, 4]; a third of them is missing.

    Args:
        missing: What stands for a missing label.
    """

    def make(inputs: Tensor) -> Tensor:
        labels = (inputs[:, :4] + inputs[:, 4:] > 0).float()
        gone = torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)) < 1 / 3
        return labels.masked_fill(gone, missing)

    return made_up(make)


def masked(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the binary cross entropy of the labels that are not missing."""
    each = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    known = (targets >= 0) & ~targets.isnan()
    return torch.where(known, each, 0.0).sum() / known.sum().clamp(min=1)


def masked_by_weight(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the binary cross entropy; the labels that are missing have the weight 0."""
    known = (targets >= 0).float()
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, known)


def known_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of the targets that are not NaN."""
    known = ~targets.isnan()
    return nn.functional.mse_loss(outputs[known], targets[known])


def clusters() -> Split:
    """Return two classes that are far apart."""
    data = made_up(lambda x: (x[:, 0] > 0).long())
    shift = 6 * (2 * torch.cat([data.targets, data.valid_targets])[:, None] - 1)
    inputs = (torch.cat([data.inputs, data.valid_inputs]) + shift) / 6
    num = len(data.inputs)
    return data._replace(inputs=inputs[:num], valid_inputs=inputs[num:])


def pretrained() -> tuple[nn.Sequential, nn.Linear]:
    """Return a backbone that learned which digits are even, and a new head for all digits."""
    data, backbone = digits(), nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32))
    model = nn.Sequential(backbone, nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        rows = torch.randint(len(data.inputs), (64,))
        optimizer.zero_grad()
        scores = model(data.inputs[rows])
        nn.functional.cross_entropy(scores, data.targets[rows] % 2).backward()
        optimizer.step()
    return nn.Sequential(backbone, nn.ReLU()), nn.Linear(32, 10)


def frozen() -> nn.Module:
    """Return a model whose backbone does not require gradients."""
    backbone, head = pretrained()
    return nn.Sequential(backbone.requires_grad_(requires_grad=False), head)


def pooled() -> nn.Module:
    """Return a network that ends in a convolution, ReLU and pooling, as SqueezeNet does."""
    first = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3))
    last = (nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(32, 10, 1), nn.ReLU())
    return nn.Sequential(*first, *last, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def normalised_first(inputs: int) -> nn.Module:
    """Return a network that normalises its inputs itself."""
    return nn.Sequential(nn.BatchNorm1d(inputs), mlp(inputs, 1))


def sums(inputs: Tensor) -> Tensor:
    """Return the sum of two columns, with noise [B, 1]."""
    return inputs[:, :2].sum(1, keepdim=True) + torch.randn(len(inputs), 1) / 2


def noisy_sums(inputs: Tensor, degrees: float) -> Tensor:
    """Return sums with noise of Student's distribution, most of their variance [B, 1]."""
    noise = torch.distributions.StudentT(torch.tensor(degrees)).sample((len(inputs), 1))
    return 0.9 * sums(inputs) + noise


def of_line(inputs: Tensor) -> Tensor:
    """Return a linear function of two columns [B, 1]."""
    return inputs @ torch.tensor([[2.0], [-3.4]]) + 4.2


def of_four(inputs: Tensor) -> Tensor:
    """Return four numbers, with noise [B, 4]."""
    return inputs[:, :4] - inputs[:, 4:] + torch.randn(len(inputs), 4)


def of_sides(inputs: Tensor) -> Tensor:
    """Return a class, of a tenth of the rows a wrong one [B]."""
    sides = (sums(inputs).flatten() > 0).long()
    return torch.where(torch.rand(len(inputs)) < 1 / 10, 1 - sides, sides)


def line() -> nn.Module:
    """Return two slopes and an intercept that begin at about zero."""
    model = nn.Linear(2, 1)
    nn.init.normal_(model.weight, 0, 0.01)
    nn.init.zeros_(model.bias)
    return model


def of_zero_head(outputs: int) -> nn.Module:
    """Return a network whose last layer begins at zero."""
    model = mlp(8, outputs)
    nn.init.zeros_(model[-1].weight)
    return model


def normalised_hidden() -> nn.Module:
    """Return a network with batch normalisation."""
    first = (nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
    return nn.Sequential(*first, nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error, without a function of torch for it."""
    return (outputs - targets).square().mean()


def with_momentum(parameters: Iterator[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(parameters, rate, momentum=0.9)


_CE, _MSE = nn.functional.cross_entropy, nn.functional.mse_loss
_RECIPES: Final = {
    "large_targets": Recipe(partial(made_up, prices), of_mean, _MSE, 0.2, steps=600),
    "large_inputs": Recipe(large_inputs, partial(mlp, 8, 1), _MSE, 1e-3),
    "normalised_first": Recipe(large_inputs, partial(normalised_first, 8), _MSE),
    "batch_of_one": Recipe(digits, partial(mlp, 64, 10), _CE, 1e-3, 1, steps=1200),
    "constant_rows": Recipe(constant_rows, partial(mlp, 8, 1), _MSE),
    "random_targets": Recipe(
        lambda: made_up(lambda x: torch.randint(10, (len(x),))),
        partial(mlp, 8, 10),
        _CE,
        1e-3,
        steps=60,
    ),
    "frozen_backbone": Recipe(digits, frozen, _CE),
    "backbone_without_gradient": Recipe(digits, lambda: WithoutGradient(*pretrained()), _CE),
    "warm_up": Recipe(digits, partial(mlp, 64, 10), _CE, warm_up=300),
    "pooled_relu": Recipe(images, pooled, _CE),
    "masked_labels": Recipe(partial(several_labels, -1.0), partial(mlp, 8, 4), masked),
    "masked_labels_by_weight": Recipe(
        partial(several_labels, -1.0), partial(mlp, 8, 4), masked_by_weight
    ),
    "missing_labels": Recipe(
        partial(several_labels, float("nan")), partial(mlp, 8, 4), known_squares
    ),
    "far_clusters": Recipe(clusters, partial(mlp, 8, 2), _CE),
    "tables_of_amounts": Recipe(
        partial(table, "diabetes"),
        partial(mlp, 10, 1),
        lambda outputs, targets: _MSE(outputs, targets.view(-1, 1)),
        0.05,
    ),
    "noise_of_few_rows": Recipe(
        partial(made_up, partial(noisy_sums, degrees=30.0)),
        partial(mlp, 8, 1),
        _MSE,
        batch=8,
        steps=600,
    ),
    "noise_with_outliers": Recipe(
        partial(made_up, partial(noisy_sums, degrees=3.0)), partial(mlp, 8, 1), _MSE, steps=600
    ),
    "line_by_hand": Recipe(
        partial(made_up, of_line, columns=2), line, squares, 0.03, 10, optimizer=torch.optim.SGD
    ),
    "line_of_single_rows": Recipe(
        partial(made_up, of_line, columns=2), line, squares, 0.03, 1, optimizer=torch.optim.SGD
    ),
    "regression_of_single_rows": Recipe(
        partial(made_up, of_four), partial(mlp, 8, 4), squares, 1e-3, 1, steps=1200
    ),
    "classes_of_two_rows": Recipe(
        partial(made_up, of_sides), partial(mlp, 8, 2), _CE, 1e-3, 2, steps=1000
    ),
    "labels_of_four_rows": Recipe(
        partial(made_up, lambda x: (x[:, :4] + x[:, 4:] > 0).float()),
        partial(mlp, 8, 4),
        nn.functional.binary_cross_entropy_with_logits,
        1e-3,
        4,
        steps=1000,
    ),
    "first_jump_of_rmsprop": Recipe(
        partial(made_up, sums), normalised_hidden, _MSE, 0.04, optimizer=torch.optim.RMSprop
    ),
    "first_jump_after_zeros": Recipe(
        partial(made_up, sums), partial(of_zero_head, 1), _MSE, 0.02, optimizer=torch.optim.RMSprop
    ),
    "momentum_and_warm_up": Recipe(
        partial(made_up, sums), partial(mlp, 8, 1), _MSE, 0.05, warm_up=20, optimizer=with_momentum
    ),
    "zero_head": Recipe(partial(made_up, of_sides), partial(of_zero_head, 2), _CE, 1e-2),
}


# Programs whose parts learn in unusual ways: adapters, frozen parts, experts, one time step.


class Adapted(nn.Module):
    """A frozen linear layer beside two small ones that learn."""

    def __init__(self, base: nn.Linear, dropout: float = 0.0) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(base.in_features, 8, bias=False)
        self.up = nn.Linear(8, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs [B, columns] of inputs [B, columns]."""
        added: Tensor = self.up(self.down(self.dropout(inputs)))
        outputs: Tensor = self.base(inputs) + 2 * added
        return outputs


class Residual(nn.Module):
    """Blocks that are added to their input, with a stem and a head.

    Args:
        blocks: The blocks, of 48 columns.
        dropped: Probability with which a block is left out in training.
        is_recomputed: Whether blocks run again in the backward pass.
    """

    def __init__(
        self, *blocks: nn.Module, dropped: float = 0.0, is_recomputed: bool = False
    ) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = nn.Linear(64, 48), nn.ModuleList(blocks), _head()
        self.dropped, self.is_recomputed = dropped, is_recomputed

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [B, classes] of inputs [B, columns]."""
        hidden: Tensor = self.stem(inputs)
        for block in self.blocks:
            if self.training and float(torch.rand(())) < self.dropped:
                continue
            if self.is_recomputed and self.training:
                hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
            else:
                hidden = hidden + block(hidden)
        scores: Tensor = self.head(hidden)
        return scores


class Experts(nn.Module):
    """A mixture of 32 experts; each row goes to one, so most get no row of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(48, 32)
        self.experts = nn.ModuleList(mlp(48, 48) for _ in range(32))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return outputs [B, columns] of inputs [B, columns]."""
        weights, chosen = self.gate(hidden).softmax(-1).max(-1)
        outputs = torch.zeros_like(hidden)
        for at, expert in enumerate(self.experts):
            rows = (chosen == at).nonzero()[:, 0]
            outputs = outputs.index_add(0, rows, weights[rows, None] * expert(hidden[rows]))
        return outputs


class Prompted(nn.Module):
    """A frozen model with columns in front of its input that learn."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(80, 96), nn.ReLU(), nn.Linear(96, 10))
        self.model.requires_grad_(requires_grad=False)
        self.prompt = nn.Parameter(0.1 * torch.randn(16))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [B, classes] of inputs [B, columns]."""
        prompts = self.prompt.expand(len(inputs), -1)
        scores: Tensor = self.model(torch.cat([prompts, inputs], dim=1))
        return scores


class OneStep(nn.Module):
    """A recurrent layer that gets rows as sequences of one time step."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.recurrent, self.head = kind(64, 48, batch_first=True), _head()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores [B, classes] of inputs [B, columns]."""
        outputs, _ = self.recurrent(inputs[:, None])
        scores: Tensor = self.head(outputs[:, -1])
        return scores


class Causal(nn.Module):
    """A causal model of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 32)
        self.places = nn.Parameter(0.3 * torch.randn(16, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.head = nn.Linear(32, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, places, tokens] of tokens [B, places]."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        scores: Tensor = self.head(self.layer(self.embedding(tokens) + self.places, src_mask=mask))
        return scores


def _head() -> nn.Linear:
    return nn.Linear(48, 10)


def _block() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 48))


def _adapted_block() -> nn.Module:
    first, last = (Adapted(nn.Linear(48, 48), 0.05) for _ in range(2))
    return nn.Sequential(nn.LayerNorm(48), first, nn.GELU(), last)


def _adapted(*, is_trained: bool) -> nn.Module:
    """Return a frozen backbone with adapters, and a head."""
    if is_trained:
        backbone, head = pretrained()
        first, last = backbone[0][0], backbone[0][2]
    else:
        first, last, head = nn.Linear(64, 48), nn.Linear(48, 32), nn.Linear(32, 10)
    return nn.Sequential(Adapted(first), nn.ReLU(), Adapted(last), nn.ReLU(), head)


def _adapted_blocks() -> nn.Module:
    """Return adapters behind a frozen stem, in blocks that run again in the backward pass."""
    model = Residual(*(_adapted_block() for _ in range(3)), is_recomputed=True)
    model.stem.requires_grad_(requires_grad=False)
    return model


def _biases_only() -> nn.Module:
    """Return a trained backbone whose biases learn, and a head."""
    backbone, head = pretrained()
    for parameter in backbone.parameters():
        parameter.requires_grad_(parameter.ndim == 1)
    return nn.Sequential(backbone, head)


def _frozen_norms() -> nn.Module:
    """Return a network whose normalisations do not learn."""
    model = Residual(*(_block() for _ in range(3)))
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.requires_grad_(requires_grad=False)
    return model


def _layout(*, is_coin: bool) -> Split:
    """Return sequences of 17 tokens with a fixed layout, as inputs and next tokens.

    Args:
        is_coin: Whether every second token is random, and the others follow up to a coin.
            Otherwise all tokens follow from the first, except the last, which is random.
    """
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 20, (2400, 17), generator=random)
    if is_coin:
        moves = torch.tensor([1, 3])[torch.randint(0, 2, (2400, 8), generator=random)]
        tokens[:, 1::2] = (tokens[:, 0:-1:2] + moves) % 20
    else:
        tokens[:, :-1] = (tokens[:, :1] + torch.arange(16)) % 20
    num = int(_SPLIT * len(tokens))
    return Split(tokens[:num, :-1], tokens[:num, 1:], tokens[num:, :-1], tokens[num:, 1:])


def _trunk() -> nn.Module:
    """Return a trunk of layers as initialised, and a head."""
    trunk = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
    return nn.Sequential(trunk, _head())


def _convolutional_trunk() -> nn.Module:
    """Return a trunk of convolutions and normalisations as in a ResNet, and a head."""
    convolutions = (nn.Conv2d(1, 16, 3, bias=False), nn.Conv2d(16, 48, 3, bias=False))
    for one in convolutions:
        nn.init.kaiming_normal_(one.weight, mode="fan_out", nonlinearity="relu")
    first, last = (
        nn.Sequential(one, nn.BatchNorm2d(one.out_channels), nn.ReLU()) for one in convolutions
    )
    trunk = nn.Sequential(first, last, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(trunk, _head())


_PARTS: Final = {
    "adapters_of_new_layers": Recipe(digits, partial(_adapted, is_trained=False), _CE),
    "adapters_of_trained_layers": Recipe(digits, partial(_adapted, is_trained=True), _CE),
    "adapters_recomputed": Recipe(digits, _adapted_blocks, _CE, steps=200),
    "biases_only": Recipe(digits, _biases_only, _CE),
    "prompt": Recipe(digits, Prompted, _CE),
    "frozen_norms": Recipe(digits, _frozen_norms, _CE),
    "dropped_blocks": Recipe(
        digits, lambda: Residual(*(_block() for _ in range(4)), dropped=0.4), _CE, 1e-3
    ),
    "idle_experts": Recipe(digits, lambda: Residual(Experts()), _CE, 1e-3, steps=200),
    "one_step_lstm": Recipe(digits, lambda: OneStep(nn.LSTM), _CE),
    "one_step_gru": Recipe(digits, lambda: OneStep(nn.GRU), _CE),
    "last_token_is_random": Recipe(partial(_layout, is_coin=False), Causal, next_letter),
    "every_second_token_is_random": Recipe(partial(_layout, is_coin=True), Causal, next_letter),
    "trunk": Recipe(digits, _trunk, _CE),
    "convolutional_trunk": Recipe(images, _convolutional_trunk, _CE),
}


def _train(recipe: Recipe, run: Run) -> float:
    data, model = recipe.data(), recipe.model()
    if run.injects("frozen_layer"):  # the trunk, before it was ever trained
        model.get_submodule("0").requires_grad_(requires_grad=False)
    optimizer = recipe.optimizer(model.parameters(), recipe.rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / recipe.warm_up)
    )
    loop = Loop(model, recipe.criterion, optimizer, recipe.steps, scheduler)
    batches = batches_of(data, recipe.batch, run.seed)
    return fit(run, loop, batches, data.validation(), lambda *pair: float(recipe.criterion(*pair)))


PROGRAMS: Final[dict[str, Program]] = {
    name: partial(_train, recipe) for name, recipe in (_RECIPES | _PARTS).items()
}
