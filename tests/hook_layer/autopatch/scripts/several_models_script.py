"""Trains several models in the way that its argument names, and prints their last parameters."""

import copy
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS = 6
X, NOISE = torch.randn(8, 4), torch.randn(8, 4)


class Net(nn.Sequential):
    def __init__(self, size: int = 4) -> None:
        super().__init__(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, size))


class Encoder(Net):
    pass


class Head(Net):
    pass


def sgd(*models: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for model in models for p in model.parameters()], 0.1)


def step(loss: torch.Tensor, *optimizers: torch.optim.SGD) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


def in_alternation() -> list[nn.Module]:
    models = [Encoder(), Head()]
    optimizers = [sgd(model) for model in models]
    for _ in range(STEPS):
        for model, optimizer in zip(models, optimizers, strict=True):
            step(F.mse_loss(model(X), NOISE), optimizer)
    return models


def adversarial(
    for_generator: Callable[[torch.Tensor], torch.Tensor] = lambda fake: fake,
) -> list[nn.Module]:
    generator, critic = Net(), Net(1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        fake = generator(NOISE)
        real_loss = criterion(critic(X), torch.ones(8, 1))
        step(real_loss + criterion(critic(fake.detach()), torch.zeros(8, 1)), of_critic)
        step(criterion(critic(for_generator(fake)), torch.ones(8, 1)), of_generator)
    return [generator, critic]


def adversarial_without_gradient() -> list[nn.Module]:
    return adversarial(for_generator=torch.Tensor.detach)


def in_one_step() -> list[nn.Module]:
    encoder, head = Encoder(), Head()
    optimizers = [sgd(encoder), sgd(head)]
    for _ in range(STEPS):
        step(F.mse_loss(head(encoder(X)), NOISE), *optimizers)
    return [encoder, head]


def with_one_optimizer() -> list[nn.Module]:
    encoder, head = Encoder(), Head()
    optimizer = sgd(encoder, head)
    for _ in range(STEPS):
        step(F.mse_loss(head(encoder(X)), NOISE), optimizer)
    return [encoder, head]


def with_a_shared_part() -> list[nn.Module]:
    trunk = nn.Linear(4, 4)
    models = [nn.Sequential(trunk, Encoder()), nn.Sequential(trunk, Head())]
    optimizer = sgd(*models)
    for _ in range(STEPS):
        step(F.mse_loss(models[0](X), NOISE) + F.l1_loss(models[1](X), NOISE), optimizer)
    return models


def of_a_teacher() -> list[nn.Module]:
    teacher, student = Encoder().requires_grad_(False), Head()
    optimizer = sgd(student)
    for _ in range(STEPS):
        step(F.mse_loss(student(X), teacher(X)), optimizer)
    return [student]


def with_an_average() -> list[nn.Module]:
    student = Head()
    average, optimizer = copy.deepcopy(student), sgd(student)
    for _ in range(STEPS):
        with torch.no_grad():
            targets = average(X)
        step(F.mse_loss(student(X), NOISE + targets), optimizer)
        for old, new in zip(average.parameters(), student.parameters(), strict=True):
            old.data.lerp_(new.data, 0.1)
    return [student]


def one_after_the_other() -> list[nn.Module]:
    models: list[nn.Module] = [Encoder(), Head()]
    for model in models:
        optimizer = sgd(model)
        for _ in range(STEPS):
            step(F.mse_loss(model(X), NOISE), optimizer)
    return models


def by_forward() -> list[nn.Module]:
    net = Net()
    optimizer = sgd(net)
    for _ in range(STEPS):
        values = X
        for layer in net:
            values = layer.forward(values)
        step(F.mse_loss(values, NOISE), optimizer)
    return [net]


for model in globals()[sys.argv[1]]():
    print([float(parameter.double().sum()) for parameter in model.parameters()])
