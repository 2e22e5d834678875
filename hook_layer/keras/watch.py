"""Watches a model while it computes: its layers, losses and optimisers.

While a saved step is computed or traced, the `call` of layers and the `apply` of optimisers are
wrapped, in the objects themselves. In all other steps they are unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, Protocol

import keras
import numpy as np

from hook_layer.keras.names import ModelNames

__all__ = ["Sink", "WatchedModel", "tensors_in"]


class Sink(Protocol):
    """Receives the tensors of a step."""

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Take tensors of one kind, which are numbered if there are several."""
        ...

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Take gradients by name, as they are given to `optimizer.apply`."""
        ...

    def before_update(self) -> None:
        """Note that variables are about to be changed."""
        ...


class WatchedModel:
    """A model, and what must be looked at.

    Args:
        model: The model.
        wants: Returns for a name without a number whether its tensors are wanted.
        sink: What takes them; must not raise.
        outer: Whether an optimiser around another one is looked at, instead of the inner one.
    """

    def __init__(
        self, model: Any, wants: Callable[[str], bool], sink: Sink, *, outer: bool = False
    ) -> None:
        self._model = model
        self._wants = wants
        self._sink = sink
        self._outer = outer
        self._names = ModelNames(model)

    @contextmanager
    def watching(self, *, with_inputs: bool = False) -> Iterator[None]:
        """Look at what is computed within the block.

        Args:
            with_inputs: Whether what the model is called with are its inputs, and the targets of
                losses its labels; else they come from `take_batch`.
        """
        with ExitStack() as put_back:
            for name, layer in self._known_names().layers.items():
                sides = [f"{name}/{side}" for side in ("inputs", "outputs")]
                if any(map(self._wants, sides)):
                    _put(layer, "call", self._layer_call(layer.call, *sides), put_back)
            if self._wants("predictions") or (with_inputs and self._wants("inputs")):
                call = self._model_call(self._model.call, with_inputs=with_inputs)
                _put(self._model, "call", call, put_back)
            if self._wants("Loss_input"):
                loss = keras.losses.Loss
                put_back.callback(setattr, loss, "__call__", loss.__call__)
                loss.__call__ = self._loss_call(loss.__call__, with_labels=with_inputs)
            for optimizer in self._optimizers():
                _put(optimizer, "apply", self._apply(optimizer, optimizer.apply), put_back)
            yield

    def take_batch(self, data: Any) -> None:
        """Take what the model and its loss are given.

        Args:
            data: What a training step gets: inputs, and perhaps labels and weights of samples.
        """
        inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
        for name, value in (("inputs", inputs), ("labels", labels)):
            if self._wants(name):
                self._sink.take(name, tensors_in(keras.tree.map_structure(_as_tensor, value)))

    def _layer_call(
        self, call: Callable[..., Any], inputs_name: str, outputs_name: str
    ) -> Callable[..., Any]:
        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            self._sink.take(inputs_name, tensors_in((args, kwargs)))
            self._sink.take(outputs_name, tensors_in(outputs))
            return outputs

        return watched

    def _model_call(self, call: Callable[..., Any], *, with_inputs: bool) -> Callable[..., Any]:
        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            if with_inputs:
                self._sink.take("inputs", tensors_in(args))
            self._sink.take("predictions", tensors_in(outputs))
            return outputs

        return watched

    def _loss_call(self, call: Callable[..., Any], *, with_labels: bool) -> Callable[..., Any]:
        counts: Counter[str] = Counter()

        @wraps(call)
        def watched(loss: Any, y_true: Any, y_pred: Any, *weight: Any, **kwargs: Any) -> Any:
            kind = loss_name(loss)
            counts[kind] += 1
            name = f"{kind}{counts[kind] if counts[kind] > 1 else ''}Loss"
            inputs = (y_pred, y_true, *weight, *kwargs.values())
            for number, tensor in enumerate(map(_as_tensor, inputs)):
                if keras.ops.is_tensor(tensor):
                    self._sink.take(f"{name}_input_{number}", [tensor])
            if with_labels and self._wants("labels"):
                self._sink.take("labels", tensors_in(_as_tensor(y_true)))
            value = call(loss, y_true, y_pred, *weight, **kwargs)
            self._sink.take(f"{name}_output_0", [value])
            return value

        return watched

    def _apply(self, optimizer: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(apply)
        def watched(grads: Any, trainable_variables: Any = None) -> Any:
            gradients = list(grads)
            variables = trainable_variables
            variables = None if variables is None else list(variables)
            self._sink.before_update()
            self._sink.take_gradients(optimizer, self._named(optimizer, gradients, variables))
            return apply(gradients, variables)

        return watched

    def _named(
        self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None
    ) -> dict[str, Any]:
        if variables is None:
            # Without a public name; so many are given where only gradients are.
            variables = getattr(optimizer, "_trainable_variables", self._model.trainable_variables)
        names = self._known_names().gradients  # the model may have been built just now
        pairs = zip(variables, gradients, strict=False)
        named = {names.get(id(v)): g for v, g in pairs if g is not None}
        return {name: g for name, g in named.items() if name is not None and self._wants(name)}

    def _known_names(self) -> ModelNames:
        if not self._names.is_of(self._model):
            self._names = ModelNames(self._model)
        return self._names

    def _optimizers(self) -> list[Any]:
        """Return the optimisers of the model, also those that a model of several has."""
        found = [getattr(self._model, "optimizer", None), *vars(self._model).values()]
        chosen: dict[int, Any] = {}
        for optimizer in found:
            if isinstance(optimizer, keras.optimizers.Optimizer):
                inner = getattr(optimizer, "inner_optimizer", None)
                one = optimizer if inner is None or self._outer else inner
                chosen[id(one)] = one
        return list(chosen.values())


def loss_name(loss: Any) -> str:
    """Return the kind of a loss in CamelCase, such as `MeanSquaredError`.

    That is its function's name, or that of its class. `WithLogits` follows if it takes logits.
    """
    function = getattr(loss, "fn", None)
    name = getattr(function, "__name__", "").strip("<>_") or type(loss).__name__
    camel = "".join(part[:1].upper() + part[1:] for part in name.removesuffix("_loss").split("_"))
    try:
        is_of_logits = loss.get_config().get("from_logits") is True
    except Exception:  # noqa: BLE001 - code of the script, which need not be serialisable
        is_of_logits = False
    return camel.removesuffix("Loss") + ("WithLogits" if is_of_logits else "")


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in keras.tree.flatten(value) if keras.ops.is_tensor(leaf)]


def _as_tensor(leaf: Any) -> Any:
    """Return numpy's arrays, which JAX trains with where nothing is compiled, as tensors."""
    return keras.ops.convert_to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf


def _put(owner: Any, name: str, function: Any, put_back: ExitStack) -> None:
    if name not in vars(owner):  # else a script has put something of its own there
        vars(owner)[name] = function
        put_back.callback(vars(owner).pop, name, None)
